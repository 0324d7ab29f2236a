"""Definition of `linear_distill` in plain torch: whole logits, autograd, fp32."""

from torch import Tensor


def linear_distill_reference(
    draft_hidden: Tensor,
    draft_weight: Tensor,
    teacher_hidden: Tensor,
    full_teacher_weight: Tensor,
    row_weights: Tensor,
    draft_to_target: Tensor,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `(loss, cross_entropy, accept_rate, top1_match)` as in `DistillOutput`.

    `full_teacher_weight` is the target's whole head [V, H]; the rest as in `linear_distill`.
    """
    logits = teacher_hidden.float() @ full_teacher_weight.float().T
    if softcap is not None:
        logits = softcap * (logits / softcap).tanh()
    full = logits.softmax(-1)  # p over the target's vocabulary
    restricted = logits[:, draft_to_target].softmax(-1)  # p as the loss sees it
    log_q = (draft_hidden.float() @ draft_weight.float().T).log_softmax(-1)
    cross_entropy = -(restricted * log_q).sum(-1)
    accept_rate = full[:, draft_to_target].minimum(log_q.exp()).sum(-1)
    top1_match = draft_to_target[log_q.argmax(-1)] == logits.argmax(-1)
    return (
        (row_weights * cross_entropy).sum(),
        cross_entropy.detach(),
        accept_rate.detach(),
        top1_match,
    )
