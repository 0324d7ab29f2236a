"""Tiny targets that tests build on the spot."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftsmith.configs.target import TargetConfig
from draftsmith.infer.target import Target, load_target

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
}


def tiny_llama(folder: Path, **overrides: Any) -> Path:
    """Write a random Llama with seed 0 and return its folder."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**{**SIZES, **overrides})).save_pretrained(folder)
    return folder


def tiny_target(folder: Path, **overrides: Any) -> Target:
    """The same, loaded in fp32."""
    path = tiny_llama(folder, **overrides)
    return load_target(TargetConfig(path=str(path), dtype="float32", device="cpu"))


def fit_counter(target: Target, num_steps: int = 300) -> None:
    """Fit `target` in place to `next = (t + 1) mod V`: then a good drafter can be perfect."""
    model, vocab = target.model, target.vocab_size
    model.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_steps):
        starts = torch.randint(0, vocab, (16, 1), generator=generator)
        ids = (starts + torch.arange(24)) % vocab
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.requires_grad_(False).eval()
