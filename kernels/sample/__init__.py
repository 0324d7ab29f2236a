"""Choose tokens from logits: the most likely one, or a draw after temperature and filters."""

from torch import Tensor

from draftsmith.kernels.backend import choose_backend
from draftsmith.kernels.sample.reference import filter_logits, sample_reference

__all__ = ["filter_logits", "sample"]


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    noise: Tensor | None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Draw one token per row.

    logits: [N, V]. temperature: [N] fp32, 0 takes the most likely token. top_k: [N] int64, 0 keeps
    all. top_p: [N] fp32 in (0, 1], 1 keeps all. noise: [N, V] draws of the unit exponential
    distribution, or None when every temperature is 0: the token with the largest `p / noise` is a
    draw from `p`, so a row's draw depends on its own noise and on nothing else in the batch.
    Returns [N] int64.
    """
    choose_backend("sample", backend)
    if noise is None:
        if bool((temperature > 0).any()):
            raise ValueError("sample: noise=None needs every temperature to be 0")
        return logits.argmax(-1)
    if noise.shape != logits.shape:
        raise ValueError(
            f"sample: noise has shape {tuple(noise.shape)}; expected {tuple(logits.shape)}"
        )
    return sample_reference(logits, temperature, top_k, top_p, noise)
