"""Attention over a slot cache, reached through the transformers attention interface."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from draftsmith.infer.cache import SlotCache

IMPLEMENTATION = "draftsmith_slots"


@dataclass
class SlotStep:
    """One forward over consecutive slots: who writes where, and who may look at what.

    positions: [R, Q] int64, consecutive in each row. Rows with fewer new tokens than Q are padded
    on the right: their padding writes rows that no later query looks at before they are
    overwritten.
    """

    cache: SlotCache
    first_slot: int
    positions: Tensor
    end: int = field(init=False)
    _masks: dict[tuple[int | None, int], Tensor | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end = int(self.positions[:, -1].max()) + 1
        if self.end > self.cache.capacity:
            raise ValueError(f"cache holds {self.cache.capacity} tokens a slot, {self.end} needed")

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.cache.write(layer, key, value, self.first_slot, self.positions, self.end)

    def mask(self, window: int | None, group: int, dtype: torch.dtype) -> Tensor | None:
        """Additive mask [R, 1, group · Q, end]; None where every query sees every key."""
        if (window, group) not in self._masks:
            keys = torch.arange(self.end, device=self.positions.device)
            visible = keys <= self.positions[:, :, None]
            if window is not None:
                visible &= keys > self.positions[:, :, None] - window
            mask = None
            if not bool(visible.all()):
                mask = torch.zeros(visible.shape, dtype=dtype, device=keys.device)
                mask.masked_fill_(~visible, float("-inf"))
                mask = mask.repeat(1, group, 1)[:, None]
            self._masks[window, group] = mask
        return self._masks[window, group]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    step: SlotStep,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """query [R, heads, Q, D], key and value [R, kv_heads, end, D] -> [R, heads, Q, D].

    Query heads that share a kv head are laid along the query axis, so keys are never repeated.
    """
    rows, heads, num_queries, head_dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    grouped = query.reshape(rows, kv_heads, group * num_queries, head_dim)
    mask = step.mask(window, group, query.dtype)
    if softcap is None:
        output = F.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
    else:
        scores = (grouped @ key.transpose(-1, -2)).float() * scale
        scores = softcap * torch.tanh(scores / softcap)
        if mask is not None:
            scores = scores + mask
        output = scores.softmax(-1).to(value.dtype) @ value
    return output.reshape(rows, heads, num_queries, value.shape[-1])


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    slot_step: SlotStep | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The function transformers calls for each layer; `slot_step` comes from the engine."""
    if slot_step is None:
        raise ValueError(
            f"{type(module).__name__} does not pass keyword arguments on to its attention; "
            "the engine cannot run this family"
        )
    if options.get("s_aux") is not None:
        raise ValueError(f"{type(module).__name__} uses attention sinks; the engine has none")
    key, value = slot_step.write(int(module.layer_idx), key, value)  # type: ignore[arg-type]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = attend(query, key, value, slot_step, scale, sliding_window, softcap)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(IMPLEMENTATION, slot_attention)
