"""The target: a Hugging Face decoder, its head, its tokenizer, and what identifies them."""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn

from draftsmith.configs.base import ConfigError
from draftsmith.configs.target import TargetConfig
from draftsmith.infer.gguf import find_gguf, load_gguf
from draftsmith.infer.precision import resolve_dtype


@dataclass
class Target:
    """A loaded target in eval mode, without gradients.

    `decoder` is the model below the head; `layers` its blocks; `final_norm` the norm before the
    head; `softcap` the bound some families put on logits.
    """

    path: str
    model: Any
    tokenizer: Any | None
    fingerprint: str
    decoder: Any = field(init=False)
    config: Any = field(init=False)

    def __post_init__(self) -> None:
        self.decoder = self.model.get_decoder()
        # Models that also see or hear keep the language model's settings in `text_config`.
        self.config = self.model.config.get_text_config()
        for name in ("layers", "norm", "embed_tokens"):
            if not hasattr(self.decoder, name):
                raise ConfigError(
                    f"target.path={self.path!r}: {type(self.decoder).__name__} has no `{name}`; "
                    "accepted: decoders with `layers`, `norm` and `embed_tokens`"
                )
        # `logits` is the head and a softcap; families that do more would be decoded wrongly.
        scales = {
            name: value
            for name in ("logits_scaling", "logit_scale")
            if (value := getattr(self.config, name, None)) not in (None, 1, 1.0)
        }
        if scales or self.model.get_output_embeddings().bias is not None:
            raise ConfigError(
                f"target.path={self.path!r}: {type(self.model).__name__} scales its logits or has "
                f"a head bias ({scales or 'lm_head.bias'}); accepted: a plain head"
            )

    @property
    def layers(self) -> nn.ModuleList:
        return self.decoder.layers

    @property
    def num_layers(self) -> int:
        return len(self.decoder.layers)

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def embed_tokens(self) -> nn.Embedding:
        return self.decoder.embed_tokens

    @property
    def final_norm(self) -> nn.Module:
        return self.decoder.norm

    @property
    def head_weight(self) -> Tensor:
        """[V, H]; the embedding's own tensor where the two are tied."""
        return self.model.get_output_embeddings().weight

    @property
    def vocab_size(self) -> int:
        """Rows of the head, padding included."""
        return self.head_weight.shape[0]

    @property
    def softcap(self) -> float | None:
        return getattr(self.config, "final_logit_softcapping", None)

    @property
    def device(self) -> torch.device:
        return self.head_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.head_weight.dtype

    @property
    def max_positions(self) -> int:
        return self.config.max_position_embeddings

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits of post-norm states: [..., H] -> [..., V]."""
        logits = self.model.get_output_embeddings()(hidden)
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """End-of-sequence ids of the generation config and of the tokenizer."""
        ids = self.model.generation_config.eos_token_id
        stops = set(ids if isinstance(ids, list) else [ids]) - {None}
        if self.tokenizer is not None:
            stops |= {self.tokenizer.eos_token_id} - {None}
        return frozenset(stops)

    @contextmanager
    def attention(self, implementation: str) -> Iterator[None]:
        """Run the block with another attention implementation."""
        before = self.config._attn_implementation
        self.model.set_attn_implementation(implementation)
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)


def fingerprint_weights(model: nn.Module) -> str:
    """A hash of names, shapes and 256 evenly spaced values of every weight, as bf16.

    Equal for the same weights loaded in bf16 and fp32; different after any retraining that moves
    a sampled value by one bf16 step.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        picked = flat[:: max(1, flat.numel() // 256)][:256].to(torch.bfloat16).cpu()
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(picked.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:32]


def fingerprint_tokenizer(tokenizer: Any | None) -> str | None:
    """A hash of the vocabulary, added tokens included; None without a tokenizer."""
    if tokenizer is None:
        return None
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=True)
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:32]


def fingerprint_template(tokenizer: Any | None) -> str | None:
    """A hash of the chat template; None without one."""
    if tokenizer is None or not tokenizer.chat_template:
        return None
    return hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()[:32]


def load_target(config: TargetConfig) -> Target:
    """Load a Hugging Face id, a model folder, or a GGUF file.

    Raises ConfigError naming `target.path` when there is nothing loadable there.
    """
    device = pick_device(config.device)
    dtype, line = resolve_dtype(config.dtype, device)
    if line is not None:
        print(f"target.dtype=auto: {line}", file=sys.stderr)
    path = Path(config.path).expanduser()
    if path.exists():
        file = find_gguf(path)
        source = str(path)
        if config.revision is not None:
            raise ConfigError(
                f"target.revision={config.revision!r} concerns Hugging Face ids, and target.path="
                f"{config.path!r} is on this machine; accepted: no revision"
            )
    else:
        _require_hub_id(config.path)
        file, source = None, config.path
    try:
        if file is not None:
            model, tokenizer = load_gguf(file, dtype)
        else:
            model, tokenizer = _load_pretrained(source, config, dtype)
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"target.path={config.path!r} cannot be loaded: {error}") from error
    model.to(device).eval().requires_grad_(False)
    return Target(config.path, model, tokenizer, fingerprint_weights(model))


def pick_device(name: str) -> torch.device:
    """The device a `target.device` setting means. Raises ConfigError when there is none such."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(
            f"target.device={name!r} is not a device; accepted: auto, cpu, cuda, cuda:N"
        )
    device = torch.device(name)
    num_seen = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= num_seen:
        raise ConfigError(f"target.device={name!r}, but this torch sees {num_seen} CUDA devices")
    return device


def _require_hub_id(path: str) -> None:
    parts = path.split("/")
    if path.startswith((".", "/", "~")) or len(parts) > 2 or not all(parts):
        raise ConfigError(
            f"target.path={path!r} does not exist; accepted: a Hugging Face id, a model folder, "
            "a .gguf file or a folder that holds one"
        )


def _load_pretrained(source: str, config: TargetConfig, dtype: torch.dtype) -> tuple[Any, Any]:
    options = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
    # With loading info the call returns a pair, which its type does not say.
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=dtype, output_loading_info=True, **options
    )
    model, found = loaded
    # transformers only warns of these and fills them with random values.
    if found["missing_keys"]:
        raise ConfigError(
            f"target.path={config.path!r} lacks tensors of {type(model).__name__}: "
            f"{', '.join(sorted(found['missing_keys'])[:8])}"
        )
    has_tokenizer = not Path(source).is_dir() or any(
        (Path(source) / name).exists()
        for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    )
    if not has_tokenizer:
        return model, None
    return model, transformers.AutoTokenizer.from_pretrained(source, **options)
