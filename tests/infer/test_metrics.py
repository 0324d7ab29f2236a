"""Acceptance figures against tables worked out by hand."""

import json

import pytest

from draftsmith.infer.metrics import AcceptanceCounts, Round, bootstrap_interval


def chain(*shapes: tuple[int, int], start: int = 10) -> list[Round]:
    """Rounds that follow each other, one per (number proposed, number accepted)."""
    rounds = []
    for num_proposed, accepted in shapes:
        rounds.append(Round(start, tuple(range(num_proposed)), accepted, bonus=99))
        start += accepted + 1
    return rounds


def count(max_draft_len: int, rounds: list[Round], num_output_tokens: int) -> dict[str, object]:
    counts = AcceptanceCounts(max_draft_len)
    counts.add(rounds, num_output_tokens)
    return counts.figures()


def test_uncut_rounds_give_the_hand_computed_table():
    # Accepted 2, 0, 3 of three each: 3 + 1 + 4 = 8 emitted, and eight places to fill: each
    # round begins with at least the three it drafts for.
    figures = count(3, chain((3, 2), (3, 0), (3, 3)), num_output_tokens=9)
    assert figures == {
        "acceptance_length": 8 / 3,
        "acceptance_rate": 5 / 9,
        "survival": [2 / 3, 2 / 3, 1 / 3],
        "conditional_acceptance": [2 / 3, 1.0, 1 / 2],
        "accepted_length_histogram": [1, 0, 1, 1],
        "max_draft_len": 3,
        "num_outputs": 1,
        "num_rounds": 3,
        "num_emitted": 8,
        "num_drafted": 9,
        "num_accepted": 5,
        "proposed_at": [3, 3, 3],
        "reached_at": [3, 2, 2],
        "accepted_at": [2, 2, 1],
    }


def test_end_of_sequence_third_of_five_accepted_counts_three():
    figures = count(5, chain((5, 5)), num_output_tokens=1 + 3)
    assert figures["num_emitted"] == 3
    assert figures["acceptance_length"] == 3.0
    assert (figures["num_drafted"], figures["num_accepted"]) == (3, 3)
    assert figures["acceptance_rate"] == 1.0
    assert figures["proposed_at"] == [1, 1, 1, 0, 0]
    assert figures["survival"] == [1.0, 1.0, 1.0, None, None]
    assert figures["conditional_acceptance"] == [1.0, 1.0, 1.0, None, None]
    assert figures["accepted_length_histogram"] == [0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("remaining", "emitted", "drafted", "accepted"),
    [
        (1, 1, 1, 1),  # cut after the first accepted token
        (2, 2, 2, 2),  # cut just before the bonus: the rejected position has no place
        (3, 3, 3, 2),  # ends on the bonus: it took the place of the rejected position 2
    ],
)
def test_cut_round_counts_only_places_that_exist(remaining, emitted, drafted, accepted):
    figures = count(4, chain((4, 2)), num_output_tokens=1 + remaining)
    assert figures["num_emitted"] == emitted
    assert figures["num_drafted"] == drafted
    assert figures["num_accepted"] == accepted
    assert figures["num_rounds"] == 1


def test_rounds_before_the_last_do_not_count_drafts_past_the_end():
    # Five places: round one may fill 0-3 of its four, round two begins with three left and drops
    # its fourth position, round three begins with one left and keeps one position, rejected.
    figures = count(4, chain((4, 1), (4, 1), (4, 0)), num_output_tokens=1 + 5)
    assert figures["proposed_at"] == [3, 2, 2, 1]
    assert figures["reached_at"] == [3, 2, 0, 0]
    assert figures["accepted_at"] == [2, 0, 0, 0]
    assert figures["num_drafted"] == 8
    assert figures["acceptance_rate"] == 2 / 8
    assert figures["acceptance_length"] == 5 / 3


def test_always_wrong_drafter_has_length_exactly_one():
    figures = count(4, chain(*[(4, 0)] * 7), num_output_tokens=8)
    assert figures["acceptance_length"] == 1.0
    assert figures["acceptance_rate"] == 0.0
    assert figures["conditional_acceptance"] == [0.0, None, None, None]
    assert figures["survival"] == [0.0, 0.0, 0.0, 0.0]


def test_perfect_drafter_has_length_k_plus_one():
    figures = count(4, chain(*[(4, 4)] * 3), num_output_tokens=16)
    assert figures["acceptance_length"] == 5.0
    assert figures["acceptance_rate"] == 1.0
    assert figures["survival"] == [1.0] * 4


def test_draft_lengths_may_differ_between_rounds():
    # A round that proposes nothing is plain decoding: one token, no drafted position.
    figures = count(3, chain((3, 3), (0, 0), (1, 1), (2, 1)), num_output_tokens=1 + 9)
    assert figures["proposed_at"] == [3, 2, 1]
    assert figures["reached_at"] == [3, 2, 1]
    assert figures["accepted_at"] == [3, 1, 1]
    assert figures["acceptance_length"] == 9 / 4
    assert figures["acceptance_rate"] == 5 / 6


def test_round_left_with_no_place_still_counts_as_a_round():
    # A stop string found late can end the output before the last round's first token.
    figures = count(2, chain((2, 1), (2, 2)), num_output_tokens=1 + 2)
    assert figures["num_rounds"] == 2
    assert figures["num_emitted"] == 2
    assert figures["proposed_at"] == [1, 1]
    assert figures["accepted_length_histogram"] == [1, 1, 0]


@pytest.mark.parametrize("num_output_tokens", [0, 1])
def test_no_rounds_give_null_and_never_nan(num_output_tokens):
    figures = count(2, [], num_output_tokens)
    assert figures["acceptance_length"] is None
    assert figures["acceptance_rate"] is None
    assert figures["survival"] == [None, None]
    assert figures["conditional_acceptance"] == [None, None]
    json.dumps(figures, allow_nan=False)


def test_counts_keep_their_identities_over_every_cut():
    rounds = chain((3, 2), (3, 0), (3, 3), (2, 1))
    for num_emitted in range(1, 11):
        figures = count(3, rounds, 1 + num_emitted)
        assert figures["num_emitted"] == num_emitted
        assert sum(figures["proposed_at"]) == figures["num_drafted"]
        assert sum(figures["accepted_at"]) == figures["num_accepted"]
        histogram = figures["accepted_length_histogram"]
        assert sum(histogram) == figures["num_rounds"] == 4
        assert sum(n * rounds_ for n, rounds_ in enumerate(histogram)) == figures["num_accepted"]
        for accepted, reached, proposed in zip(
            figures["accepted_at"], figures["reached_at"], figures["proposed_at"], strict=True
        ):
            assert accepted <= reached <= proposed


def test_merging_equals_counting_everything_together():
    together = AcceptanceCounts(3)
    merged = AcceptanceCounts(3)
    for rounds, num_output_tokens in [
        (chain((3, 2), (3, 3)), 7),
        (chain((3, 3), start=40), 3),
        ([], 1),
    ]:
        together.add(rounds, num_output_tokens)
        part = AcceptanceCounts(3)
        part.add(rounds, num_output_tokens)
        merged.merge(part)
    assert merged == together
    assert merged.num_outputs == 3
    # Six and two emitted in three rounds: a ratio of sums, not a mean of 3.0 and 2.0.
    assert merged.acceptance_length == 8 / 3


def test_bad_traces_are_refused_and_leave_the_counts_alone():
    with pytest.raises(ValueError, match=r"accepted=3 .* 0 … 2"):
        Round(0, (1, 2), 3, 9)
    counts = AcceptanceCounts(2)
    with pytest.raises(ValueError, match=r"num_output_tokens=5.*at most 4"):
        counts.add(chain((2, 2)), 5)
    with pytest.raises(ValueError, match=r"start=7 must be 12"):
        counts.add([Round(10, (1, 2), 1, 9), Round(7, (1, 2), 1, 9)], 3)
    with pytest.raises(ValueError, match=r"proposed 3 tokens: max_draft_len=2"):
        counts.add(chain((3, 1)), 2)
    with pytest.raises(ValueError, match=r"max_draft_len=3 cannot be merged"):
        counts.merge(AcceptanceCounts(3))
    assert counts == AcceptanceCounts(2)


def test_bootstrap_interval_is_seeded_and_brackets_the_ratio_of_sums():
    per_prompt = [(30, 10), (20, 10), (25, 10), (40, 10), (10, 10), (0, 0)]
    low, high = bootstrap_interval(per_prompt, seed=3)
    assert (low, high) == bootstrap_interval(per_prompt, seed=3)
    assert 1.0 <= low < 125 / 50 < high <= 4.0
    # Standard error of the mean of 3, 2, 2.5, 4, 1 drawn with replacement is 1.0 / sqrt(5).
    assert high - low == pytest.approx(2 * 1.96 / 5**0.5, rel=0.15)


def test_bootstrap_interval_needs_two_prompts():
    assert bootstrap_interval([], seed=0) is None
    assert bootstrap_interval([(5, 2), (0, 0)], seed=0) is None
    assert bootstrap_interval([(4, 2), (2, 1)], seed=0) == (2.0, 2.0)
