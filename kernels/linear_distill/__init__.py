"""Distillation through two vocabulary heads without ever holding `[N, V]` logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from draftsmith.kernels.backend import choose_backend
from draftsmith.kernels.linear_distill.chunked import ChunkedDistill, measure_teacher

__all__ = ["DistillOutput", "TeacherStatistics", "linear_distill", "teacher_statistics"]

# Logits that exist at one time: 16 MB in fp32, which caches and allocators reuse well.
CHUNK_LOGITS = 2**22


@dataclass(frozen=True)
class TeacherStatistics:
    """What the full vocabulary contributes to a row: `logsumexp` fp32 [N], `top1` int64 [N]."""

    logsumexp: Tensor
    top1: Tensor

    def __getitem__(self, rows: Tensor) -> "TeacherStatistics":
        return TeacherStatistics(self.logsumexp[rows], self.top1[rows])


@dataclass(frozen=True)
class DistillOutput:
    """`loss` is the weighted sum (scalar); the rest is per row, without gradient.

    cross_entropy: [N] fp32, `-Σ p log q` with `p` restricted to the draft vocabulary.
    accept_rate: [N] fp32, `Σ min(p, q)` with `p` over the full vocabulary: the probability that
        rejection sampling keeps a token drawn from `q`.
    top1_match: [N] bool, the draft's most likely token is the target's most likely one.
    """

    loss: Tensor
    cross_entropy: Tensor
    accept_rate: Tensor
    top1_match: Tensor


def teacher_statistics(
    hidden: Tensor,
    weight: Tensor,
    *,
    softcap: float | None = None,
    chunk_rows: int | None = None,
) -> TeacherStatistics:
    """Log-partition and most likely token of the target over its full vocabulary.

    hidden: [N, H] post-norm states; weight: [V, H], the target's head.
    """
    rows = chunk_rows or _rows_of(weight)
    return TeacherStatistics(*measure_teacher(hidden, weight, softcap, rows))


def linear_distill(
    draft_hidden: Tensor,
    draft_weight: Tensor,
    teacher_hidden: Tensor,
    teacher_weight: Tensor,
    teacher: TeacherStatistics,
    row_weights: Tensor,
    *,
    draft_to_target: Tensor | None = None,
    softcap: float | None = None,
    chunk_rows: int | None = None,
    backend: str = "auto",
) -> DistillOutput:
    """Soft cross-entropy of the draft's head against the target's, forward and backward in chunks.

    draft_hidden: [N, H_d], draft_weight: [D, H_d]: the draft's logits are their product.
    teacher_hidden: [N, H], teacher_weight: [D, H]: rows of the target's head for the draft
        vocabulary, in its order; no gradient reaches either.
    teacher: statistics of the same N rows over the full vocabulary.
    row_weights: [N] fp32; `loss = Σ row_weights · cross_entropy`.
    draft_to_target: [D] int64 target id of each draft id; None when the vocabularies are equal.
    softcap: the target's `final_logit_softcapping`, if it has one.

    The gradient of draft_hidden and draft_weight is computed with the loss, so that no logits are
    kept: calling backward on `loss` scales it.
    """
    choose_backend("linear_distill", backend)
    num_rows = draft_hidden.shape[0]
    for name, tensor in (
        ("teacher_hidden", teacher_hidden),
        ("row_weights", row_weights),
        ("teacher.logsumexp", teacher.logsumexp),
    ):
        if tensor.shape[0] != num_rows:
            raise ValueError(
                f"linear_distill: {name} has {tensor.shape[0]} rows, draft_hidden {num_rows}"
            )
    if draft_weight.shape[0] != teacher_weight.shape[0]:
        raise ValueError(
            f"linear_distill: draft_weight has {draft_weight.shape[0]} rows, "
            f"teacher_weight {teacher_weight.shape[0]}; both follow the draft vocabulary"
        )
    if draft_to_target is None:
        draft_to_target = torch.arange(draft_weight.shape[0], device=draft_weight.device)
    loss, cross_entropy, accept_rate, top1_match = ChunkedDistill.apply(
        draft_hidden,
        draft_weight,
        teacher_hidden,
        teacher_weight,
        teacher.logsumexp,
        teacher.top1,
        row_weights,
        draft_to_target,
        softcap,
        chunk_rows or _rows_of(draft_weight),
    )
    return DistillOutput(loss, cross_entropy, accept_rate, top1_match)


def _rows_of(weight: Tensor) -> int:
    """Rows of a chunk for a head [V, H]."""
    return max(1, CHUNK_LOGITS // weight.shape[0])
