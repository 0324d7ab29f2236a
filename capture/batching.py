"""Group samples of like length, so that a forward wastes little on padding."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeVar


class HasTokens(Protocol):
    @property
    def input_ids(self) -> list[int]: ...


T = TypeVar("T", bound=HasTokens)


def batch_by_length(samples: Iterable[T], tokens_per_batch: int, window: int) -> Iterator[list[T]]:
    """Yield batches of at most `tokens_per_batch` tokens, padding included.

    Each `window` samples are sorted by length, longest first, so the first batch of a run already
    shows the most memory a batch of that window takes. A sample longer than the budget makes a
    batch of its own. The grouping is a pure function of the order and lengths of the samples.
    """
    stream = iter(samples)
    while group := list(islice(stream, window)):
        group.sort(key=lambda sample: -len(sample.input_ids))
        batch: list[T] = []
        for sample in group:
            width = len(batch[0].input_ids) if batch else len(sample.input_ids)
            if batch and width * (len(batch) + 1) > tokens_per_batch:
                yield batch
                batch = []
            batch.append(sample)
        yield batch
