"""EAGLE-3 while decoding: its own cache, one slot a request, chained greedy proposals."""

from collections.abc import Sequence

import torch
from torch import Tensor

from draftsmith.infer.attention import SlotStep, attend
from draftsmith.infer.cache import SlotCache
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.target import Target


class Eagle3Proposer:
    """Proposes for requests in consecutive slots.

    Row t of a slot pairs the target's feature of token t with the embedding of token t + 1, at
    rotary position t. `extend` appends such rows; `propose` chains from the last of them, feeding
    back its own output. The chain's rows lie beyond the slot's length, so the next `extend`
    overwrites them: that is the whole of the rollback.
    """

    def __init__(
        self, drafter: Eagle3Drafter, target: Target, num_slots: int, capacity: int
    ) -> None:
        self.drafter = drafter
        self.layer_ids = drafter.settings.target_layer_ids
        self._embed = target.embed_tokens
        self._scale = drafter.settings.head_dim**-0.5
        self._draft_to_target = drafter.draft_to_target
        self._cache = SlotCache(num_slots, capacity)
        self._lengths = [0] * num_slots
        # The layer's output of each slot's last row: where the next chain starts.
        self._last = torch.zeros(
            num_slots, drafter.settings.hidden_size, dtype=target.dtype, device=target.device
        )

    def reset(self, slot: int) -> None:
        self._lengths[slot] = 0

    def move(self, source: int, destination: int) -> None:
        self._cache.move(source, destination, self._lengths[source])
        self._lengths[destination] = self._lengths[source]
        self._last[destination] = self._last[source]

    def extend(
        self, first_slot: int, tokens: Tensor, features: Tensor, counts: Sequence[int]
    ) -> None:
        """Append `counts[r]` rows to slot `first_slot + r`; the rest of the row is padding.

        tokens: [R, Q] int64, the token after each row. features: [R, Q, L·H] in layer_ids order.
        """
        output = self._run(first_slot, tokens, self.drafter.fc(features))
        last = torch.tensor(counts, device=tokens.device) - 1
        rows = torch.arange(len(counts), device=tokens.device)
        self._last[first_slot : first_slot + len(counts)] = output[rows, last]
        for row, count in enumerate(counts):
            self._lengths[first_slot + row] += count

    def propose(self, first_slot: int, num_rows: int, num_draft: int) -> Tensor:
        """[num_rows, num_draft] int64 target ids, each the most likely after those before it."""
        hidden = self._last[first_slot : first_slot + num_rows, None]
        proposed = []
        for step in range(num_draft):
            drafted = self._draft_to_target[self.drafter.logits(hidden).argmax(-1)]
            proposed.append(drafted)
            if step + 1 < num_draft:
                hidden = self._run(first_slot, drafted, hidden, offset=step)
        return torch.cat(proposed, dim=1)

    def _run(self, first_slot: int, tokens: Tensor, feature: Tensor, offset: int = 0) -> Tensor:
        rows, width = tokens.shape
        starts = torch.tensor(self._lengths[first_slot : first_slot + rows], device=tokens.device)
        positions = (starts + offset)[:, None] + torch.arange(width, device=tokens.device)
        step = SlotStep(self._cache, first_slot, positions)

        def attend_cached(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, *step.write(0, key, value), step, self._scale)

        return self.drafter.decode(self._embed(tokens), feature, positions, attend_cached)
