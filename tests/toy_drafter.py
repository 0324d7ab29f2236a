"""Untrained EAGLE-3 drafters for tiny targets."""

from typing import Any

import torch

from draftsmith.infer.drafters.eagle3 import Eagle3Drafter, Eagle3Settings
from draftsmith.infer.target import Target


def toy_drafter(target: Target, vocabulary: list[int] | None = None, **changes: Any):
    """Random weights with seed 0; `vocabulary` lists the target ids that are ever drafted."""
    values: dict[str, Any] = {
        "hidden_size": target.hidden_size,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": target.vocab_size if vocabulary is None else len(vocabulary),
        "target_hidden_size": target.hidden_size,
        "target_layer_ids": (1, 4, 6),
        "rope_parameters": dict(target.config.rope_parameters),
        "max_position_embeddings": 256,
    }
    torch.manual_seed(0)
    drafter = Eagle3Drafter(Eagle3Settings(**(values | changes)))
    if vocabulary is not None:
        drafter.set_vocabulary(torch.tensor(vocabulary))
    return drafter
