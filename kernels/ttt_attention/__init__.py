"""Attention of EAGLE-3's unrolled training steps: a causal prefix and a diagonal."""

from collections.abc import Sequence

from torch import Tensor

from draftsmith.kernels.backend import choose_backend
from draftsmith.kernels.ttt_attention.reference import ttt_attention_reference

__all__ = ["ttt_attention"]


def ttt_attention(
    query: Tensor,
    prefix_key: Tensor,
    prefix_value: Tensor,
    rows: Tensor,
    step_keys: Sequence[Tensor],
    step_values: Sequence[Tensor],
    *,
    scale: float,
    backend: str = "auto",
) -> Tensor:
    """Attend from selected rows to the prefix of step 0 and to their own keys of later steps.

    In step `k` of training-time test (arXiv 2503.01840, section 3) the query of row `t` sees the
    step-0 keys of rows `<= t` and, of each step `1..k`, only the key of row `t` itself.

    query: [B, heads, Q, D] of the selected rows, in step `len(step_keys)`.
    prefix_key, prefix_value: [B, kv_heads, T, D] of step 0, all rows.
    rows: [B, Q] int64, the row of each query (0 <= rows < T).
    step_keys, step_values: one [B, kv_heads, Q, D] for each step 1..k, rows as in `query`.
    Returns [B, heads, Q, D] in query's dtype; softmax in fp32.
    """
    choose_backend("ttt_attention", backend)
    heads, kv_heads = query.shape[1], prefix_key.shape[1]
    if heads % kv_heads:
        raise ValueError(f"ttt_attention: {heads} query heads do not divide by {kv_heads} kv heads")
    if rows.shape != (query.shape[0], query.shape[2]):
        raise ValueError(
            f"ttt_attention: rows has shape {tuple(rows.shape)}; "
            f"expected {(query.shape[0], query.shape[2])}"
        )
    if len(step_keys) != len(step_values):
        raise ValueError(
            f"ttt_attention: {len(step_keys)} step keys but {len(step_values)} step values"
        )
    return ttt_attention_reference(
        query, prefix_key, prefix_value, rows, step_keys, step_values, scale=scale
    )
