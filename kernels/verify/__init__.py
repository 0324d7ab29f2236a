"""Accept or reject the drafted tokens of a round."""

from torch import Tensor

from draftsmith.kernels.backend import choose_backend
from draftsmith.kernels.verify.reference import verify_reference

__all__ = ["verify"]


def verify(
    drafted: Tensor, target_tokens: Tensor, *, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Exact-match verification of a chain: keep drafted tokens while the target chose the same.

    drafted: [N, K] int64. target_tokens: [N, K + 1] int64, the target's own choice after the known
    token and after each drafted one. Whatever rule chose them (greedy or sampled), what is emitted
    is always the target's choice, so the output's distribution is the target's.
    Returns `(accepted [N], bonus [N])`: the length of the matching prefix and the target's token
    after it.
    """
    choose_backend("verify", backend)
    if target_tokens.shape != (drafted.shape[0], drafted.shape[1] + 1):
        raise ValueError(
            f"verify: target_tokens has shape {tuple(target_tokens.shape)}; "
            f"expected {(drafted.shape[0], drafted.shape[1] + 1)}"
        )
    return verify_reference(drafted, target_tokens)
