"""The draft's vocabulary: the tokens that the training data's assistant writes most."""

import sys

import torch
from torch import Tensor

from draftsmith.train.samples import SampleSet


def build_draft_vocabulary(samples: SampleSet, size: int, vocab_size: int) -> Tensor:
    """Choose `size` target ids: int64 [D], ascending; all of them when `size` >= `vocab_size`.

    The most frequent supervised tokens come first, lower ids before higher ones at equal counts.
    Where the data has fewer distinct tokens than `size`, the lowest unused ids fill up. Prints the
    share of supervised tokens that a drafter with this vocabulary can propose.
    """
    if size >= vocab_size:
        return torch.arange(vocab_size)
    counts = count_supervised(samples, vocab_size)
    ids = counts.argsort(descending=True, stable=True)[:size].sort().values
    num_distinct, total = int((counts > 0).sum()), int(counts.sum())
    covered = int(counts[ids].sum())
    filled = f", {size - num_distinct} ids unused in the data" if num_distinct < size else ""
    print(
        f"draft vocabulary: {size} of {vocab_size} tokens{filled}; {num_distinct} distinct tokens "
        f"in the data; covers {covered} of {total} supervised tokens ({covered / total:.2%})",
        file=sys.stderr,
    )
    return ids


def count_supervised(samples: SampleSet, vocab_size: int) -> Tensor:
    """How often each target id is a supervised token: int64 [V]."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for place in range(len(samples)):
        input_ids, loss_mask = samples.tokens(place)
        counts += torch.bincount(input_ids[loss_mask], minlength=vocab_size)
    return counts
