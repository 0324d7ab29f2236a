"""The tensors of one micro-batch."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Samples padded on the right to one length.

    input_ids: [B, T] int64, 0 on padding. loss_mask: [B, T] bool, False on padding.
    features: [B, T, L·H], the drafter's layers in its own order. hidden_states: [B, T, H],
    after the target's final norm. keys: the samples' names.
    """

    keys: tuple[str, ...]
    input_ids: Tensor
    loss_mask: Tensor
    features: Tensor
    hidden_states: Tensor

    def to(self, device: object) -> "Batch":
        moved = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in ("input_ids", "loss_mask", "features", "hidden_states")
        }
        return Batch(self.keys, **moved)
