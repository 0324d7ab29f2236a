"""linear_distill against its definition: values and gradients."""

import pytest
import torch

from draftsmith.kernels.linear_distill import linear_distill, teacher_statistics
from draftsmith.kernels.linear_distill.reference import linear_distill_reference


def make(rows: int, draft_vocab: int, vocab: int = 37, seed: int = 0):
    torch.manual_seed(seed)
    draft_to_target = torch.randperm(vocab)[:draft_vocab].sort().values
    return {
        "draft_hidden": torch.randn(rows, 12),
        "draft_weight": torch.randn(draft_vocab, 12),
        "teacher_hidden": torch.randn(rows, 16),
        "head": torch.randn(vocab, 16),
        "row_weights": torch.rand(rows),
        "draft_to_target": draft_to_target,
    }


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 33])
@pytest.mark.parametrize("draft_vocab", [11, 37])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_values_and_gradients_match_the_definition(rows, draft_vocab, softcap):
    case = make(rows, draft_vocab)
    leaves = [case[name].requires_grad_() for name in ("draft_hidden", "draft_weight")]
    expected = linear_distill_reference(
        *leaves,
        case["teacher_hidden"],
        case["head"],
        case["row_weights"],
        case["draft_to_target"],
        softcap,
    )
    wanted = torch.autograd.grad(expected[0] * 3, leaves)
    teacher = teacher_statistics(
        case["teacher_hidden"], case["head"], softcap=softcap, chunk_rows=8
    )
    output = linear_distill(
        *leaves,
        case["teacher_hidden"],
        case["head"][case["draft_to_target"]],
        teacher,
        case["row_weights"],
        draft_to_target=case["draft_to_target"],
        softcap=softcap,
        chunk_rows=8,
    )
    got = torch.autograd.grad(output.loss * 3, leaves)
    torch.testing.assert_close(output.loss, expected[0])
    torch.testing.assert_close(output.cross_entropy, expected[1])
    torch.testing.assert_close(output.accept_rate, expected[2])
    assert torch.equal(output.top1_match, expected[3])
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_target_token_outside_the_draft_vocabulary_is_never_a_match():
    case = make(64, 5)
    teacher = teacher_statistics(case["teacher_hidden"], case["head"])
    output = linear_distill(
        case["draft_hidden"],
        case["draft_weight"],
        case["teacher_hidden"],
        case["head"][case["draft_to_target"]],
        teacher,
        case["row_weights"],
        draft_to_target=case["draft_to_target"],
    )
    outside = ~torch.isin(teacher.top1, case["draft_to_target"])
    assert outside.any()
    assert not output.top1_match[outside].any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"row_weights": torch.ones(2)}, "row_weights has 2 rows"),
        ({"teacher_hidden": torch.ones(3, 16)}, "teacher_hidden has 3 rows"),
        ({"draft_weight": torch.ones(4, 12)}, "draft_weight has 4 rows"),
        ({"backend": "triton"}, "backend='triton' is not available"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change, words):
    case = make(9, 11)
    arguments = {
        "draft_hidden": case["draft_hidden"],
        "draft_weight": case["draft_weight"],
        "teacher_hidden": case["teacher_hidden"],
        "teacher_weight": case["head"][case["draft_to_target"]],
        "teacher": teacher_statistics(case["teacher_hidden"], case["head"]),
        "row_weights": case["row_weights"],
    }
    with pytest.raises(ValueError, match=words):
        linear_distill(**{**arguments, **change})
