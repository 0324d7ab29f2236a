"""Keys and values of many requests at once, one slot each, with rollback by length."""

import torch
from torch import Tensor


class SlotCache:
    """Key/value tensors `[num_slots, kv_heads, capacity, D]` per layer.

    A slot's valid part is whatever its owner says it is: rows beyond that are overwritten by the
    next write, so taking back rejected tokens costs nothing. Layers allocate at their first write,
    when their head size is known.
    """

    def __init__(self, num_slots: int, capacity: int) -> None:
        self.num_slots = num_slots
        self.capacity = capacity
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    @property
    def num_layers_written(self) -> int:
        return len(self._keys)

    def write(
        self, layer: int, key: Tensor, value: Tensor, first_slot: int, positions: Tensor, end: int
    ) -> tuple[Tensor, Tensor]:
        """Store new rows and return views of everything up to `end`.

        key, value: [R, kv_heads, Q, D] of slots `first_slot … first_slot + R - 1`.
        positions: [R, Q] int64, where each row goes. Returns two [R, kv_heads, end, D] views.
        """
        if layer not in self._keys:
            shape = (self.num_slots, key.shape[1], self.capacity)
            # Zeros, not empty: rows never written may be multiplied by a weight of zero.
            self._keys[layer] = key.new_zeros(*shape, key.shape[3])
            self._values[layer] = value.new_zeros(*shape, value.shape[3])
        slots = slice(first_slot, first_slot + key.shape[0])
        keys, values = self._keys[layer][slots], self._values[layer][slots]
        if key.shape[0] == 1:
            start = end - key.shape[2]
            keys[:, :, start:end] = key
            values[:, :, start:end] = value
        else:
            rows = torch.arange(key.shape[0], device=key.device)[:, None]
            keys.transpose(1, 2)[rows, positions] = key.transpose(1, 2)
            values.transpose(1, 2)[rows, positions] = value.transpose(1, 2)
        return keys[:, :, :end], values[:, :, :end]

    def move(self, source: int, destination: int, length: int) -> None:
        """Copy the first `length` rows of one slot over another's."""
        for tensors in (self._keys, self._values):
            for tensor in tensors.values():
                tensor[destination, :, :length] = tensor[source, :, :length]
