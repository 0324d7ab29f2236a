"""Definition of `sample` in plain torch."""

import torch
from torch import Tensor


def filter_logits(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Return log-probabilities [N, V] fp32 after temperature, then top-k, then top-p.

    Rows with temperature 0 are a point mass on their most likely token. Top-p keeps the smallest
    set of most likely tokens whose probability reaches `top_p`, the token that reaches it included.
    """
    greedy = temperature <= 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperature)[:, None]
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    limit = torch.where(top_k > 0, top_k, logits.shape[-1]).masked_fill(greedy, 1)
    ordered = ordered.masked_fill(rank >= limit[:, None], float("-inf"))
    probability = ordered.softmax(-1)
    before = probability.cumsum(-1) - probability
    ordered = ordered.masked_fill((before >= top_p[:, None]) & (top_p[:, None] < 1), float("-inf"))
    return torch.empty_like(ordered).scatter_(-1, order, ordered.log_softmax(-1))


def sample_reference(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, noise: Tensor
) -> Tensor:
    """See `draftsmith.kernels.sample.sample`."""
    log_p = filter_logits(logits, temperature, top_k, top_p)
    # argmax of p / E with E ~ Exp(1) is distributed as p (the exponential-race form of Gumbel-max).
    return (log_p - noise.log()).argmax(-1)
