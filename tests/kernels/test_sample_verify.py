"""sample draws from the filtered distribution; verify keeps the matching prefix."""

import pytest
import torch

from draftsmith.kernels.sample import filter_logits, sample
from draftsmith.kernels.verify import verify


def settings(rows, temperature=1.0, top_k=0, top_p=1.0):
    return (
        torch.full((rows,), temperature),
        torch.full((rows,), top_k, dtype=torch.int64),
        torch.full((rows,), top_p),
    )


def test_draws_follow_the_distribution():
    rows = 20_000
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    generator = torch.Generator().manual_seed(0)
    noise = torch.empty(rows, 5).exponential_(generator=generator)
    drawn = sample(logits.expand(rows, 5), *settings(rows, temperature=0.7), noise)
    expected = (logits / 0.7).softmax(0) * rows
    counts = torch.bincount(drawn, minlength=5).float()
    # 18.47 is the 0.999 quantile of chi-square with 4 degrees of freedom.
    assert float(((counts - expected) ** 2 / expected).sum()) < 18.47


def test_filters_keep_what_they_say():
    logits = torch.tensor([[0.1, 3.0, 2.0, 1.0]]).log().repeat(4, 1)
    temperature = torch.tensor([1.0, 1.0, 1.0, 0.0])
    top_k = torch.tensor([2, 0, 0, 0])
    top_p = torch.tensor([1.0, 0.6, 1.0, 1.0])
    kept = filter_logits(logits, temperature, top_k, top_p).exp()
    torch.testing.assert_close(kept[0], torch.tensor([0.0, 0.6, 0.4, 0.0]))
    # 3 / 6.1 = 0.49 does not reach 0.6, so the second most likely token is kept too.
    torch.testing.assert_close(kept[1], torch.tensor([0.0, 0.6, 0.4, 0.0]))
    torch.testing.assert_close(kept[2], torch.tensor([0.1, 3.0, 2.0, 1.0]) / 6.1)
    torch.testing.assert_close(kept[3], torch.tensor([0.0, 1.0, 0.0, 0.0]))


def test_a_greedy_row_takes_the_most_likely_token_beside_a_sampled_one():
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    noise = torch.rand(2, 50) + 0.1
    temperature = torch.tensor([0.0, 1.0])
    chosen = sample(logits, temperature, torch.zeros(2, dtype=torch.int64), torch.ones(2), noise)
    assert chosen[0] == logits[0].argmax()


def test_sampling_without_noise_is_refused():
    with pytest.raises(ValueError, match="noise=None"):
        sample(torch.zeros(1, 3), *settings(1), None)


def test_verify_keeps_the_matching_prefix_and_the_targets_next_token():
    drafted = torch.tensor([[5, 6, 7], [5, 6, 7], [1, 6, 7], [5, 0, 7]])
    chosen = torch.tensor([[5, 6, 7, 8], [5, 6, 9, 4], [2, 6, 7, 8], [5, 6, 7, 8]])
    accepted, bonus = verify(drafted, chosen)
    assert accepted.tolist() == [3, 2, 0, 1]
    assert bonus.tolist() == [8, 9, 2, 6]


def test_verify_of_nothing_drafted_is_plain_decoding():
    accepted, bonus = verify(torch.zeros(2, 0, dtype=torch.int64), torch.tensor([[3], [4]]))
    assert accepted.tolist() == [0, 0]
    assert bonus.tolist() == [3, 4]


def test_verify_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="target_tokens has shape"):
        verify(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64))
