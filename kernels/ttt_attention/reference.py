"""Definition of `ttt_attention` in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor


def ttt_attention_reference(
    query: Tensor,
    prefix_key: Tensor,
    prefix_value: Tensor,
    rows: Tensor,
    step_keys: Sequence[Tensor],
    step_values: Sequence[Tensor],
    *,
    scale: float,
) -> Tensor:
    """See `draftsmith.kernels.ttt_attention.ttt_attention` for shapes."""
    batch, heads, num_queries, head_dim = query.shape
    kv_heads, num_rows = prefix_key.shape[1], prefix_key.shape[2]
    group = heads // kv_heads
    # Query heads that share a kv head sit side by side, so keys need no repeating.
    grouped = query.reshape(batch, kv_heads, group * num_queries, head_dim)

    prefix = (grouped @ prefix_key.transpose(-1, -2)).float() * scale
    prefix = prefix.view(batch, kv_heads, group, num_queries, num_rows)
    columns = torch.arange(num_rows, device=query.device)
    hidden = columns > rows[:, None, None, :, None]  # [B, 1, 1, Q, T]
    scores = [prefix.masked_fill(hidden, float("-inf"))]
    grouped = grouped.view(batch, kv_heads, group, num_queries, head_dim)
    for key in step_keys:
        own = (grouped * key[:, :, None]).sum(-1, dtype=torch.float32) * scale
        scores.append(own[..., None])

    weights = torch.cat(scores, dim=-1).softmax(dim=-1).to(query.dtype)
    prefix_weights = weights[..., :num_rows].reshape(batch, kv_heads, group * num_queries, num_rows)
    output = (prefix_weights @ prefix_value).view(batch, kv_heads, group, num_queries, head_dim)
    for step, value in enumerate(step_values):
        output = output + weights[..., num_rows + step, None] * value[:, :, None]
    return output.reshape(batch, heads, num_queries, head_dim)
