"""Which captured samples train the drafter, which measure it, and which can do neither."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from draftsmith.capture.dataset import CapturedDataset, Sample
from draftsmith.configs.base import ConfigError
from draftsmith.configs.split import split_of
from draftsmith.train.batch import Batch
from draftsmith.train.objectives.eagle3 import supervised


@dataclass(frozen=True)
class SampleSet:
    """Part of a dataset: sample `numbers[i]`, cut to its first `lengths[i]` tokens."""

    dataset: CapturedDataset
    numbers: Sequence[int]
    lengths: Sequence[int]
    num_supervised: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def tokens(self, place: int) -> tuple[Tensor, Tensor]:
        """`input_ids` int32 [T] and `loss_mask` bool [T] of the sample at `place`."""
        sample, length = self.dataset[self.numbers[place]], self.lengths[place]
        return sample.input_ids[:length], sample.loss_mask[:length].bool()

    def collate(self, places: Sequence[int], layer_ids: Sequence[int]) -> Batch:
        """Pad the samples at `places` on the right; features are the columns of `layer_ids`."""
        rows = [self._read(place, layer_ids) for place in places]
        width = max(self.lengths[place] for place in places)
        input_ids = torch.zeros(len(places), width, dtype=torch.int64)
        loss_mask = torch.zeros(len(places), width, dtype=torch.bool)
        hidden_states, features = (
            torch.zeros(len(places), width, states.shape[1], dtype=states.dtype)
            for states in rows[0][1:]
        )
        for row, (sample, final, columns) in enumerate(rows):
            length = self.lengths[places[row]]
            input_ids[row, :length] = sample.input_ids[:length]
            loss_mask[row, :length] = sample.loss_mask[:length]
            hidden_states[row, :length] = final[:length]
            features[row, :length] = columns[:length]
        keys = tuple(sample.key for sample, _, _ in rows)
        return Batch(keys, input_ids, loss_mask, features, hidden_states)

    def _read(self, place: int, layer_ids: Sequence[int]) -> tuple[Sample, Tensor, Tensor]:
        """A sample, its final states [T, H] and the columns of `layer_ids`, uncut."""
        number = self.numbers[place]
        sample = self.dataset[number]
        if list(layer_ids) == self.dataset.manifest.aux_layer_ids:
            # Stored side by side in this very order: read in place instead of gathered.
            assert sample.aux_hidden_states is not None
            return sample, sample.hidden_states, sample.aux_hidden_states
        return sample, sample.hidden_states, self.dataset.features(number, layer_ids)


@dataclass(frozen=True)
class Split:
    """The samples of a dataset by use; `num_unsupervised` were left out of both."""

    train: SampleSet
    heldout: SampleSet
    num_unsupervised: int

    def of(self, dataset: CapturedDataset) -> "Split":
        """The same split, read through another reader of the same dataset."""
        train, heldout = (replace(part, dataset=dataset) for part in (self.train, self.heldout))
        return Split(train, heldout, self.num_unsupervised)


def split_samples(dataset: CapturedDataset, heldout_fraction: float, max_length: int) -> Split:
    """Share a dataset out by the hash of each sample's key, so that a rerun shares it the same way.

    Samples are cut to `max_length` tokens; one in which no drafted token could then be compared
    with the target is left out. Raises ConfigError when none is left to train on.
    """
    chosen: dict[str, list[tuple[int, int, int]]] = {"train": [], "heldout": []}
    num_unsupervised = 0
    for number, key in enumerate(dataset.keys):
        length = min(dataset.lengths[number], max_length)
        # A drafted token needs two supervised tokens side by side: its anchor and itself.
        mask = None
        if dataset.num_supervised[number] >= 2:
            mask = dataset[number].loss_mask[:length].bool()
        if mask is None or not bool(supervised(mask[None], 1).any()):
            num_unsupervised += 1
            continue
        chosen[split_of(key, heldout_fraction)].append((number, length, int(mask.sum())))
    if not chosen["train"]:
        raise ConfigError(
            f"data={str(dataset.directory)!r}: nothing to train on: of {len(dataset)} samples "
            f"{num_unsupervised} have no two assistant tokens side by side within their first "
            f"{max_length} tokens, {len(chosen['heldout'])} are held out "
            f"(heldout_fraction={heldout_fraction})"
        )
    train, heldout = (
        SampleSet(dataset, *map(list, zip(*rows, strict=True)))
        if rows
        else SampleSet(dataset, [], [], [])
        for rows in chosen.values()
    )
    return Split(train, heldout, num_unsupervised)
