"""The order in which samples are trained on: a pure function of lengths, seed and epoch."""

import hashlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch.utils.data import DataLoader, Dataset

from draftsmith.train.batch import Batch
from draftsmith.train.samples import SampleSet

# Samples are sorted by length within about this many micro-batches: enough for little padding,
# few enough that what is batched together still differs from epoch to epoch.
WINDOW_BATCHES = 64


@dataclass(frozen=True)
class Position:
    """Where the next step begins: `micro_batch` of that epoch, counted over all processes."""

    epoch: int = 0
    micro_batch: int = 0


@dataclass(frozen=True)
class Step:
    """One process's share of an optimizer step, and where the step after it begins.

    An entry of `micro_batches` is None where an epoch's last step has none left for this process:
    all processes still make the same number of passes.
    """

    micro_batches: list[Batch | None]
    following: Position


def plan_epoch(lengths: Sequence[int], tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Micro-batches as places in `lengths`: every place once, at most `tokens` with padding.

    A sample longer than `tokens` makes a micro-batch of its own.
    """
    digest = hashlib.blake2b(f"{seed}:{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
    order = torch.randperm(len(lengths), generator=generator).tolist()
    window = max(1, WINDOW_BATCHES * tokens * len(lengths) // max(1, sum(lengths)))
    batches = []
    for start in range(0, len(order), window):
        places = sorted(order[start : start + window], key=lambda place: -lengths[place])
        batches += _pack(places, lengths, tokens)
    shuffled = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[number] for number in shuffled]


def plan_measurement(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Micro-batches for one pass without training: longest first, always the same."""
    places = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    return _pack(places, lengths, tokens)


def _pack(places: Sequence[int], lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Cut `places`, longest first, where one more padded row would pass `tokens`."""
    batches: list[list[int]] = []
    for place in places:
        if not batches or lengths[batches[-1][0]] * (len(batches[-1]) + 1) > tokens:
            batches.append([])
        batches[-1].append(place)
    return batches


class Batches:
    """Endless steps over the training samples, from any position."""

    def __init__(
        self,
        samples: SampleSet,
        layer_ids: Sequence[int],
        *,
        tokens: int,
        accumulation: int,
        seed: int,
        rank: int = 0,
        num_processes: int = 1,
        num_workers: int = 0,
    ) -> None:
        self.samples, self.layer_ids = samples, list(layer_ids)
        self.tokens, self.seed = tokens, seed
        self.accumulation, self.rank, self.num_processes = accumulation, rank, num_processes
        self.num_workers = num_workers
        self._plan = lru_cache(maxsize=2)(
            lambda epoch: plan_epoch(samples.lengths, tokens, seed, epoch)
        )

    @property
    def per_step(self) -> int:
        """Micro-batches of one step, all processes together."""
        return self.accumulation * self.num_processes

    def steps_in_epoch(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)) // self.per_step)

    def steps(self, position: Position) -> Iterator[Step]:
        epoch, start = position.epoch, position.micro_batch
        while True:
            yield from self._epoch(epoch, start)
            epoch, start = epoch + 1, 0

    def _epoch(self, epoch: int, start: int) -> Iterator[Step]:
        plan = self._plan(epoch)
        starts = range(start, len(plan), self.per_step)
        shares = [self._share(plan, first) for first in starts]
        flat = [places for share in shares for places in share]
        loaded = load_batches(self.samples, self.layer_ids, flat, self.num_workers)
        for first, share in zip(starts, shares, strict=True):
            after = first + self.per_step
            following = Position(epoch, after) if after < len(plan) else Position(epoch + 1, 0)
            yield Step([next(loaded) for _ in share], following)

    def _share(self, plan: list[list[int]], first: int) -> list[list[int] | None]:
        group = plan[first : first + self.per_step]
        rounds = -(-len(group) // self.num_processes)
        mine: list[list[int] | None] = list(group[self.rank :: self.num_processes])
        return mine + [None] * (rounds - len(mine))


class _MicroBatches(Dataset[Batch | None]):
    """What worker processes index: a list of micro-batches, each read when asked for."""

    def __init__(
        self, samples: SampleSet, layer_ids: Sequence[int], plan: Sequence[list[int] | None]
    ) -> None:
        self.samples, self.layer_ids, self.plan = samples, layer_ids, plan

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, number: int) -> Batch | None:
        places = self.plan[number]
        return None if places is None else self.samples.collate(places, self.layer_ids)


def load_batches(
    samples: SampleSet,
    layer_ids: Sequence[int],
    plan: Sequence[list[int] | None],
    num_workers: int = 0,
) -> Iterator[Batch | None]:
    """Read the micro-batches of `plan` in order, ahead of time when there are worker processes."""
    source = _MicroBatches(samples, layer_ids, plan)
    if num_workers == 0:
        return (source[number] for number in range(len(source)))
    # The order is the plan's, so the loader must not draw from the random state that resuming
    # restores.
    generator = torch.Generator().manual_seed(0)
    return iter(
        DataLoader(
            source,
            batch_size=None,
            num_workers=num_workers,
            generator=generator,
            worker_init_fn=_leave_signals,
        )
    )


def _leave_signals(worker: int) -> None:
    """The training process answers Ctrl-C, and ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
