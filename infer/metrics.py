"""Acceptance figures: what a drafter's rounds are worth, defined once for every report.

A round is one target verification. It starts from one known token, proposes drafted tokens for the
next places, keeps the accepted ones and appends one token of the target's own, the bonus.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class Round:
    """One target verification as it ran, uncut by the end of the output."""

    start: int
    """Absolute index of the round's known token; position `k` drafts token `start + 1 + k`."""
    proposed: tuple[int, ...]
    """Drafted token ids, position 0 first."""
    accepted: int
    """How many drafted tokens the target kept: positions `0 … accepted - 1`."""
    bonus: int
    """The target's own token, appended after the accepted ones."""

    def __post_init__(self) -> None:
        if not 0 <= self.accepted <= len(self.proposed):
            raise ValueError(
                f"Round.accepted={self.accepted} at start={self.start}: "
                f"must lie in 0 … {len(self.proposed)}, the number of proposed tokens"
            )

    @property
    def num_tokens(self) -> int:
        """Tokens the round adds when the output does not end inside it."""
        return self.accepted + 1


@dataclass
class AcceptanceCounts:
    """Raw counts over the rounds of many outputs, and the figures they give.

    Every count is cut at the end of the kept output, although the last round proposes in full and
    may verify past it. The rule, for a round that begins with `remaining` places left to fill:

    - emitted: `min(accepted + 1, remaining)` tokens, so the output's length less the first token;
    - proposed: position `k` iff `k < remaining`. A place past the end does not exist, so what was
      drafted for it is neither proposed nor rejected. This holds for every round, not only the one
      that is cut: counting such a draft where an earlier position failed, and dropping it where
      none did, would count only failures;
    - accepted: `min(accepted, remaining)` drafted tokens, so a round cut inside its accepted tokens
      has accepted all it proposed;
    - the round itself always counts, since the target ran.

    Example: five drafted, all accepted, the third is the end-of-sequence token: three emitted,
    three proposed, three accepted, one round.
    """

    max_draft_len: int
    """Longest draft; every per-position list has this length."""
    num_outputs: int = 0
    """Outputs added, also those that needed no round."""
    num_rounds: int = 0
    num_emitted: int = 0
    """Tokens the rounds added to the outputs: bonus included, first token excluded."""
    num_drafted: int = 0
    num_accepted: int = 0
    proposed_at: list[int] = field(default_factory=list)
    """Rounds that proposed position `k`."""
    reached_at: list[int] = field(default_factory=list)
    """Rounds that proposed position `k` and accepted every position before it."""
    accepted_at: list[int] = field(default_factory=list)
    """Rounds that accepted position `k`."""
    accepted_length_histogram: list[int] = field(default_factory=list)
    """Entry `n`: rounds that accepted `n` drafted tokens, 0 … max_draft_len."""

    def __post_init__(self) -> None:
        if self.max_draft_len < 0:
            raise ValueError(f"max_draft_len={self.max_draft_len} must be 0 or more")
        for name in ("proposed_at", "reached_at", "accepted_at"):
            if not getattr(self, name):
                setattr(self, name, [0] * self.max_draft_len)
        if not self.accepted_length_histogram:
            self.accepted_length_histogram = [0] * (self.max_draft_len + 1)

    def add(self, rounds: Sequence[Round], num_output_tokens: int) -> None:
        """Count one output's rounds.

        `num_output_tokens` is the length of the kept output, its first token (the one the prefill
        gave) included: the rounds emitted one fewer. Raises ValueError, and counts nothing, if the
        rounds do not follow each other or hold fewer tokens than the output.
        """
        remaining = max(num_output_tokens - 1, 0)
        self._check(rounds, remaining)
        self.num_outputs += 1
        for round_ in rounds:
            emitted = min(round_.num_tokens, remaining)
            proposed = min(len(round_.proposed), remaining)
            accepted = min(round_.accepted, remaining)
            self.num_rounds += 1
            self.num_emitted += emitted
            self.num_drafted += proposed
            self.num_accepted += accepted
            self.accepted_length_histogram[accepted] += 1
            for k in range(proposed):
                self.proposed_at[k] += 1
                self.reached_at[k] += k <= accepted
                self.accepted_at[k] += k < accepted
            remaining -= emitted

    def _check(self, rounds: Sequence[Round], num_emitted: int) -> None:
        for previous, round_ in pairwise(rounds):
            expected = previous.start + previous.num_tokens
            if round_.start != expected:
                raise ValueError(
                    f"Round.start={round_.start} must be {expected}: the round before it started "
                    f"at {previous.start} and added {previous.num_tokens} tokens"
                )
        for round_ in rounds:
            if len(round_.proposed) > self.max_draft_len:
                raise ValueError(
                    f"the round at start={round_.start} proposed {len(round_.proposed)} tokens: "
                    f"max_draft_len={self.max_draft_len} is the most these counts hold"
                )
        available = sum(round_.num_tokens for round_ in rounds)
        if num_emitted > available:
            raise ValueError(
                f"num_output_tokens={num_emitted + 1}: the {len(rounds)} rounds added {available} "
                f"tokens to the first, so at most {available + 1} fit"
            )

    def merge(self, other: "AcceptanceCounts") -> None:
        """Add another set's counts to this one; both must have the same `max_draft_len`."""
        if other.max_draft_len != self.max_draft_len:
            raise ValueError(
                f"max_draft_len={other.max_draft_len} cannot be merged into counts of "
                f"max_draft_len={self.max_draft_len}: the two must be equal"
            )
        for name in ("num_outputs", "num_rounds", "num_emitted", "num_drafted", "num_accepted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("proposed_at", "reached_at", "accepted_at", "accepted_length_histogram"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, [a + b for a, b in zip(mine, theirs, strict=True)])

    @property
    def acceptance_length(self) -> float | None:
        """Tokens emitted per round; 1.0 when nothing is ever accepted, None without rounds."""
        return _ratio(self.num_emitted, self.num_rounds)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted drafted tokens per drafted token, None if nothing was drafted."""
        return _ratio(self.num_accepted, self.num_drafted)

    @property
    def conditional_acceptance(self) -> list[float | None]:
        """Entry `k`: accepted at `k` per round that proposed `k` and accepted all before it."""
        return [_ratio(a, r) for a, r in zip(self.accepted_at, self.reached_at, strict=True)]

    @property
    def survival(self) -> list[float | None]:
        """Entry `k`: rounds that accepted `k` per round that proposed `k`."""
        return [_ratio(a, p) for a, p in zip(self.accepted_at, self.proposed_at, strict=True)]

    def figures(self) -> dict[str, Any]:
        """Every figure with the raw counts behind it, ready for JSON: None where undefined."""
        return {
            "acceptance_length": self.acceptance_length,
            "acceptance_rate": self.acceptance_rate,
            "survival": self.survival,
            "conditional_acceptance": self.conditional_acceptance,
            "accepted_length_histogram": list(self.accepted_length_histogram),
            "max_draft_len": self.max_draft_len,
            "num_outputs": self.num_outputs,
            "num_rounds": self.num_rounds,
            "num_emitted": self.num_emitted,
            "num_drafted": self.num_drafted,
            "num_accepted": self.num_accepted,
            "proposed_at": list(self.proposed_at),
            "reached_at": list(self.reached_at),
            "accepted_at": list(self.accepted_at),
        }


def bootstrap_interval(
    per_prompt: Sequence[tuple[int, int]], seed: int, num_resamples: int = 2000
) -> tuple[float, float] | None:
    """95 % interval of the acceptance length, over which prompts were drawn.

    `per_prompt` holds `(tokens emitted, rounds)`. Prompts are resampled whole, since the rounds of
    one prompt resemble each other, and each resample gives a ratio of sums. None when fewer than
    two prompts had a round: one prompt says nothing of how prompts differ.
    """
    counted = [(emitted, rounds) for emitted, rounds in per_prompt if rounds > 0]
    if len(counted) < 2:
        return None
    generator = random.Random(seed)
    lengths = []
    for _ in range(num_resamples):
        drawn = generator.choices(counted, k=len(counted))
        lengths.append(sum(emitted for emitted, _ in drawn) / sum(rounds for _, rounds in drawn))
    # 40 quantiles are 2.5 % apart: the outermost two bound the middle 95 %.
    quantiles = statistics.quantiles(lengths, n=40, method="inclusive")
    return quantiles[0], quantiles[-1]


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None
