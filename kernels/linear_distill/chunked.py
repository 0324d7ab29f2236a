"""`linear_distill` a few hundred rows at a time, with its backward written out."""

from typing import Any

import torch
from torch import Tensor


def _head(hidden: Tensor, weight: Tensor, softcap: float | None) -> Tensor:
    """Target logits in fp32; the product runs in the weight's dtype."""
    logits = (hidden.to(weight.dtype) @ weight.T).float()
    return logits if softcap is None else softcap * (logits / softcap).tanh_()


def _row_dot(left: Tensor, right: Tensor) -> Tensor:
    """Σ_d left · right, [N, D] each -> [N], without the product in memory."""
    return torch.bmm(left[:, None, :], right[:, :, None])[:, 0, 0]


@torch.no_grad()
def measure_teacher(
    hidden: Tensor, weight: Tensor, softcap: float | None, chunk_rows: int
) -> tuple[Tensor, Tensor]:
    logsumexp = torch.empty(hidden.shape[0], dtype=torch.float32, device=hidden.device)
    top1 = torch.empty(hidden.shape[0], dtype=torch.int64, device=hidden.device)
    for start in range(0, hidden.shape[0], chunk_rows):
        chunk = slice(start, start + chunk_rows)
        logits = _head(hidden[chunk], weight, softcap)
        # In place and with the maximum shared: three sweeps over [rows, V], no second buffer.
        highest, top1[chunk] = logits.max(-1)
        logsumexp[chunk] = logits.sub_(highest[:, None]).exp_().sum(-1).log_().add_(highest)
    return logsumexp, top1


class ChunkedDistill(torch.autograd.Function):
    """Loss and gradient in one sweep: d loss / d logits = weight · (q - p)."""

    @staticmethod
    def forward(
        ctx: Any,
        draft_hidden: Tensor,
        draft_weight: Tensor,
        teacher_hidden: Tensor,
        teacher_weight: Tensor,
        teacher_logsumexp: Tensor,
        teacher_top1: Tensor,
        row_weights: Tensor,
        draft_to_target: Tensor,
        softcap: float | None,
        chunk_rows: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        num_rows, device = draft_hidden.shape[0], draft_hidden.device
        # Under autocast the hidden states arrive in bf16 and the master weight in fp32.
        head = draft_weight.to(draft_hidden.dtype)
        cross_entropy = torch.empty(num_rows, dtype=torch.float32, device=device)
        accept_rate = torch.empty_like(cross_entropy)
        top1_match = torch.empty(num_rows, dtype=torch.bool, device=device)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(draft_hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(draft_weight, dtype=torch.float32) if needs_weight else None

        for start in range(0, num_rows, chunk_rows):
            chunk = slice(start, start + chunk_rows)
            # Each line below is one sweep over [rows, D]: on a processor without fast matrix
            # units these sweeps, not the products, are most of the time.
            logits = _head(teacher_hidden[chunk], teacher_weight, softcap)
            share = (logits.logsumexp(-1) - teacher_logsumexp[chunk]).exp_()  # p inside the draft
            restricted = logits.softmax(-1)
            log_q = (draft_hidden[chunk] @ head.T).float().log_softmax(-1)
            cross_entropy[chunk] = -_row_dot(restricted, log_q)
            top1_match[chunk] = draft_to_target[log_q.argmax(-1)] == teacher_top1[chunk]
            q = log_q.exp_()
            accept_rate[chunk] = (
                torch.mul(restricted, share[:, None], out=logits).minimum(q).sum(-1)
            )
            if grad_hidden is None and grad_weight is None:
                continue
            grad_logits = q.sub_(restricted).to(draft_hidden.dtype)
            # The row weights meet the narrow side of each product, not the wide logits.
            weights = row_weights[chunk, None].to(draft_hidden.dtype)
            if grad_hidden is not None:
                torch.matmul(grad_logits, head, out=grad_hidden[chunk])
                grad_hidden[chunk] *= weights
            if grad_weight is not None:
                grad_weight += grad_logits.T @ (weights * draft_hidden[chunk])

        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.weight_dtype = draft_weight.dtype
        ctx.mark_non_differentiable(cross_entropy, accept_rate, top1_match)
        return (row_weights * cross_entropy).sum(), cross_entropy, accept_rate, top1_match

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else grad_hidden * grad_loss.to(grad_hidden.dtype),
            None if grad_weight is None else (grad_weight * grad_loss).to(ctx.weight_dtype),
            *(None,) * 8,
        )
