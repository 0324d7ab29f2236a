"""Drafters on disk: the `LlamaForCausalLMEagle3` layout that SGLang and vLLM load.

`config.json` also carries a `draftsmith` section: the conventions the weights were trained under
and the target they belong to. A folder without it is refused, not guessed at.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from draftsmith.configs.base import ConfigError
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter, Eagle3Settings
from draftsmith.infer.target import Target

FORMAT_VERSION = 1
ARCHITECTURE = "LlamaForCausalLMEagle3"
CONVENTIONS = {
    "layer_ids": "k is the residual stream after decoder block k",
    "rows": "feature of token t with embedding of token t + 1 at position t; step k at t + k",
    "d2t": "target id minus draft id",
}


def save_drafter(
    drafter: Eagle3Drafter, folder: Path, *, target: Target, training: dict[str, Any]
) -> None:
    """Write `config.json` and `model.safetensors` into `folder`, each by rename, config last.

    training: what made the weights (settings, counts, figures), stored for the reader.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous().cpu() for name, tensor in drafter.state_dict().items()}
    weights = folder / "model.safetensors"
    save_file(tensors, weights.with_suffix(".partial"), metadata={"format": "pt"})
    os.replace(weights.with_suffix(".partial"), weights)
    config = _write_config(drafter.settings, target, training, str(drafter.fc.weight.dtype))
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config, indent=2) + "\n")
    os.replace(partial, folder / "config.json")


def load_drafter(folder: str | Path, target: Target) -> Eagle3Drafter:
    """Read a drafter and check that it belongs to `target`.

    Raises ConfigError naming the file and the key, tensor or fingerprint that does not fit.
    """
    folder = Path(folder)
    config = _read_json(folder / "config.json")
    section = config.get("draftsmith")
    if not isinstance(section, dict):
        raise ConfigError(
            f"{folder / 'config.json'} has no `draftsmith` section with its conventions; "
            "accepted: drafters that draftsmith trained"
        )
    if section.get("format_version") != FORMAT_VERSION:
        raise ConfigError(
            f"{folder / 'config.json'}: draftsmith.format_version="
            f"{section.get('format_version')!r}; accepted: {FORMAT_VERSION}"
        )
    if section.get("conventions") != CONVENTIONS:
        raise ConfigError(
            f"{folder / 'config.json'}: draftsmith.conventions={section.get('conventions')!r}; "
            f"accepted: {CONVENTIONS!r}"
        )
    _check_target(folder, section, config, target)
    drafter = _build(folder / "config.json", config)
    _load_weights(drafter, folder / "model.safetensors")
    return drafter.to(device=target.device, dtype=target.dtype).eval()


def _write_config(
    settings: Eagle3Settings, target: Target, training: dict[str, Any], dtype: str
) -> dict[str, Any]:
    llama = settings.llama_config().to_dict()
    kept = (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act", "vocab_size",
        "attention_bias", "mlp_bias", "rope_parameters",
    )  # fmt: skip
    rope = settings.rope_parameters
    scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        **{name: llama[name] for name in kept},
        # Readers older than transformers 5 look for these two instead of `rope_parameters`.
        "rope_theta": rope["rope_theta"],
        "rope_scaling": None if scaling.get("rope_type", "default") == "default" else scaling,
        "num_hidden_layers": 1,
        "draft_vocab_size": settings.draft_vocab_size,
        "target_hidden_size": settings.target_hidden_size,
        "norm_before_residual": settings.norm_before_residual,
        "tie_word_embeddings": False,
        "dtype": dtype.removeprefix("torch."),
        "bos_token_id": target.config.bos_token_id,
        "eos_token_id": target.config.eos_token_id,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(settings.target_layer_ids),
            "use_aux_hidden_state": True,
        },
        "draftsmith": {
            "format_version": FORMAT_VERSION,
            "drafter": "eagle3",
            "conventions": CONVENTIONS,
            "target": {"path": target.path, "fingerprint": target.fingerprint},
            "training": training,
        },
    }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"drafter={str(path.parent)!r}: no {path.name} there; accepted: a drafter folder"
        ) from None
    except (ValueError, NotADirectoryError) as error:
        raise ConfigError(f"{path} is not readable JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds {type(content).__name__}; accepted: a JSON object")
    return content


def _check_target(
    folder: Path, section: dict[str, Any], config: dict[str, Any], target: Target
) -> None:
    made_for = section.get("target")
    made_for = made_for if isinstance(made_for, dict) else {}
    if made_for.get("fingerprint") != target.fingerprint:
        raise ConfigError(
            f"{folder} was trained for target {made_for.get('path')!r} "
            f"(fingerprint {made_for.get('fingerprint')}), but target.path={target.path!r} has "
            f"fingerprint {target.fingerprint}"
        )
    if config.get("vocab_size") != target.vocab_size:
        raise ConfigError(
            f"{folder / 'config.json'}: vocab_size={config.get('vocab_size')!r}; "
            f"the target has {target.vocab_size}"
        )


def _build(path: Path, config: dict[str, Any]) -> Eagle3Drafter:
    """The module that the config describes, with no weights of its own yet."""
    plain = (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "vocab_size", "draft_vocab_size", "target_hidden_size", "rope_parameters",
        "max_position_embeddings", "rms_norm_eps", "hidden_act", "norm_before_residual",
    )  # fmt: skip
    try:
        layer_ids = tuple(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"])
        values = {name: config[name] for name in plain}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} lacks {error.args[0]!r}") from None
    try:
        return Eagle3Drafter(Eagle3Settings(**values, target_layer_ids=layer_ids))
    # What the layers and the rotary tables make of values they do not know.
    except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ConfigError(f"{path} describes no drafter that can be built: {error!r}") from error


def _load_weights(drafter: Eagle3Drafter, path: Path) -> None:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    expected: dict[str, Tensor] = drafter.state_dict()
    missing = sorted(expected.keys() - tensors.keys())
    unexpected = sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        raise ConfigError(f"{path}: missing tensors {missing}, unexpected tensors {unexpected}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ConfigError(
                f"{path}: {name} has shape {list(tensor.shape)}; "
                f"expected {list(expected[name].shape)}"
            )
        if tensor.is_floating_point() != expected[name].is_floating_point():
            raise ConfigError(
                f"{path}: {name} has dtype {tensor.dtype}; expected {expected[name].dtype}"
            )
    drafter.load_state_dict(tensors)
    if drafter.d2t is not None:
        ids = drafter.draft_to_target
        vocab = drafter.settings.vocab_size
        inside = bool(((ids >= 0) & (ids < vocab)).all())
        if not inside or len(torch.unique(ids)) != len(ids):
            raise ConfigError(f"{path}: d2t does not map to distinct ids below {vocab}")
        assert drafter.t2d is not None
        if not torch.equal(drafter.t2d.nonzero()[:, 0], ids.sort().values):
            raise ConfigError(f"{path}: t2d and d2t name different tokens")
