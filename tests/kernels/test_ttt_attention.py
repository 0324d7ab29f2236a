"""ttt_attention against attention over explicitly repeated keys with a dense mask."""

import pytest
import torch

from draftsmith.kernels.ttt_attention import ttt_attention


def dense(query, prefix_key, prefix_value, rows, step_keys, step_values, scale):
    """One query at a time: gather the keys it may see and attend to them."""
    batch, heads, num_queries, _ = query.shape
    group = heads // prefix_key.shape[1]
    output = torch.zeros_like(query)
    for b in range(batch):
        for h in range(heads):
            kv = h // group
            for q in range(num_queries):
                limit = int(rows[b, q]) + 1
                keys = [prefix_key[b, kv, :limit], *(k[b, kv, q : q + 1] for k in step_keys)]
                values = [prefix_value[b, kv, :limit], *(v[b, kv, q : q + 1] for v in step_values)]
                weights = (torch.cat(keys) @ query[b, h, q] * scale).softmax(0)
                output[b, h, q] = weights @ torch.cat(values)
    return output


@pytest.mark.parametrize(
    ("num_rows", "num_queries", "num_steps"), [(1, 1, 0), (9, 4, 0), (9, 5, 3)]
)
def test_values_and_gradients_match_dense_attention(num_rows, num_queries, num_steps):
    torch.manual_seed(0)
    rows = torch.stack([torch.randperm(num_rows)[:num_queries].sort().values for _ in range(2)])
    tensors = [torch.randn(2, 4, num_queries, 8)]
    tensors += [torch.randn(2, 2, num_rows, 8) for _ in range(2)]
    tensors += [torch.randn(2, 2, num_queries, 8) for _ in range(2 * num_steps)]
    leaves = [tensor.requires_grad_() for tensor in tensors]
    query, key, value, *steps = leaves
    arguments = (query, key, value, rows, steps[:num_steps], steps[num_steps:])
    expected = dense(*arguments, 0.3)
    output = ttt_attention(*arguments, scale=0.3)
    torch.testing.assert_close(output, expected)
    probe = torch.randn_like(output)
    got = torch.autograd.grad((output * probe).sum(), leaves)
    wanted = torch.autograd.grad((expected * probe).sum(), leaves)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_arguments_that_do_not_fit_are_named():
    query, key = torch.zeros(1, 3, 2, 4), torch.zeros(1, 2, 5, 4)
    rows = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="3 query heads"):
        ttt_attention(query, key, key, rows, [], [], scale=1.0)
    with pytest.raises(ValueError, match="rows has shape"):
        ttt_attention(query[:, :2], key, key, rows[:, :1], [], [], scale=1.0)
