"""What a report says: the schema of report.json, version 1.

Numbers are finite or null: a figure that nothing was measured for is null, never NaN.
"""

import statistics
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, FiniteFloat, JsonValue, NonNegativeInt, PositiveFloat, model_validator

from draftsmith.configs.base import Config
from draftsmith.infer.report.definitions import DEFINITIONS

Figure = FiniteFloat | None


class TokensPerSecond(Config):
    """Output tokens per second of wall clock, median over the repeats."""

    plain: Figure = None
    """The same engine with no drafter."""
    speculative: Figure = None


class Summary(Config):
    """The headline."""

    acceptance_length: Figure
    acceptance_length_interval: tuple[FiniteFloat, FiniteFloat] | None = None
    """95 % interval over which prompts were drawn, by bootstrap."""
    acceptance_rate: Figure
    speedup: Figure = None
    """Median over the repeats of speculative ÷ plain tokens per second."""
    tokens_per_second: TokensPerSecond = TokensPerSecond()
    lossless: bool | None = None
    """Whether speculative output equals plain output token for token in float32; null: not run."""
    dtype: str
    """Number format the target ran in for acceptance and speed."""
    max_draft_len: NonNegativeInt
    num_prompts: NonNegativeInt


class AcceptanceFigures(Config):
    """`AcceptanceCounts.figures()`: rates with the raw counts behind them; lists by position."""

    acceptance_length: Figure
    acceptance_rate: Figure
    survival: tuple[Figure, ...]
    conditional_acceptance: tuple[Figure, ...]
    accepted_length_histogram: tuple[NonNegativeInt, ...]
    """Entry n: rounds that accepted n drafted tokens, 0 … max_draft_len."""
    max_draft_len: NonNegativeInt
    num_outputs: NonNegativeInt
    num_rounds: NonNegativeInt
    num_emitted: NonNegativeInt
    num_drafted: NonNegativeInt
    num_accepted: NonNegativeInt
    proposed_at: tuple[NonNegativeInt, ...]
    reached_at: tuple[NonNegativeInt, ...]
    accepted_at: tuple[NonNegativeInt, ...]

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        for name in (
            "survival",
            "conditional_acceptance",
            "proposed_at",
            "reached_at",
            "accepted_at",
        ):
            _check_length(name, len(getattr(self, name)), self.max_draft_len)
        num_bars = len(self.accepted_length_histogram)
        _check_length("accepted_length_histogram", num_bars, self.max_draft_len + 1)
        return self


class SpeedRepeat(Config):
    """One timed pass over the prompts in each mode."""

    first: Literal["plain", "speculative"]
    """Which ran first; the order alternates, so warming up and slowing down favour neither."""
    plain_seconds: PositiveFloat
    plain_tokens: NonNegativeInt
    speculative_seconds: PositiveFloat
    speculative_tokens: NonNegativeInt

    @property
    def plain_rate(self) -> float:
        """Tokens per second without the drafter."""
        return self.plain_tokens / self.plain_seconds

    @property
    def speculative_rate(self) -> float:
        """Tokens per second with the drafter."""
        return self.speculative_tokens / self.speculative_seconds

    @property
    def ratio(self) -> float | None:
        """Speculative ÷ plain tokens per second; None if plain decoding gave no token."""
        return self.speculative_rate / self.plain_rate if self.plain_tokens else None


class Speed(Config):
    """Wall-clock comparison with the same engine without a drafter."""

    num_prompts: NonNegativeInt
    """Prompts timed, which may be fewer than acceptance was measured on."""
    batch_size: NonNegativeInt
    """Requests decoded at a time while timing."""
    repeats: tuple[SpeedRepeat, ...]
    ratios: tuple[Figure, ...]
    """Speed-up of each repeat."""
    median_ratio: Figure
    tokens_per_second: TokensPerSecond

    @classmethod
    def from_repeats(
        cls, repeats: Sequence[SpeedRepeat], *, num_prompts: int, batch_size: int
    ) -> Self:
        """Work out ratios and medians; each is null when there is nothing to take it over."""
        ratios = [repeat.ratio for repeat in repeats]
        known = [ratio for ratio in ratios if ratio is not None]
        return cls(
            num_prompts=num_prompts,
            batch_size=batch_size,
            repeats=tuple(repeats),
            ratios=tuple(ratios),
            median_ratio=statistics.median(known) if known else None,
            tokens_per_second=TokensPerSecond(
                plain=statistics.median(r.plain_rate for r in repeats) if repeats else None,
                speculative=statistics.median(r.speculative_rate for r in repeats)
                if repeats
                else None,
            ),
        )

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        _check_length("ratios", len(self.ratios), len(self.repeats))
        return self


class Parity(Config):
    """Greedy speculative output against plain greedy output, token for token."""

    num_prompts: NonNegativeInt
    num_equal: NonNegativeInt
    dtype: str
    """Number format of the comparison; rounding in short formats can flip near-ties."""

    @property
    def lossless(self) -> bool | None:
        """Whether every output was equal; None if none was compared."""
        return self.num_equal == self.num_prompts if self.num_prompts else None

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        if self.num_equal > self.num_prompts:
            raise ValueError(
                f"parity.num_equal={self.num_equal} is more than num_prompts={self.num_prompts}"
            )
        return self


class CategoryFigures(Config):
    """Acceptance over the prompts of one category."""

    acceptance_length: Figure
    acceptance_rate: Figure
    num_prompts: NonNegativeInt


class PromptSet(Config):
    """Where the prompts came from."""

    path: str
    split: str | None = None
    num_prompts: NonNegativeInt


class Versions(Config):
    """What ran; null for a library that is not installed."""

    draftsmith: str | None
    torch: str | None
    transformers: str | None
    python: str
    platform: str


class Machine(Config):
    """Where it ran."""

    cpu: str
    num_cores: NonNegativeInt
    """Cores this process may use."""
    num_threads: NonNegativeInt
    """Threads torch computes with."""
    memory_gib: Figure
    """Installed memory in GiB, null where the system does not tell."""
    device: str


class Report(Config):
    """One evaluation of one drafter with one target."""

    schema_version: Literal[1] = 1
    target: str | None = None
    """The target's name, for the title."""
    draft: str | None = None
    """The drafter's name, for the title."""
    summary: Summary
    acceptance: AcceptanceFigures
    speed: Speed | None = None
    parity: Parity | None = None
    by_category: dict[str, CategoryFigures] = Field(default_factory=dict)
    prompts: PromptSet
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """The resolved config of the run."""
    versions: Versions
    machine: Machine
    definitions: dict[str, str] = Field(default_factory=lambda: dict(DEFINITIONS))
    """What each measure means, in words."""
    warnings: list[str] = Field(default_factory=list)
    """What a reader must know before trusting the numbers."""


def _check_length(name: str, length: int, expected: int) -> None:
    if length != expected:
        raise ValueError(f"{name} has {length} entries: must have {expected}")
