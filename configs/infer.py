"""The inference jobs: generating with a target and a drafter, and measuring the pair."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from draftsmith.configs.base import Config
from draftsmith.configs.target import TargetConfig

GENERATE_ALIASES = {
    "target": "target.path",
    "drafter": "drafter",
    "input": "input",
    "output": "output",
    "max-new-tokens": "sampling.max_new_tokens",
    "max-draft-len": "max_draft_len",
    "temperature": "sampling.temperature",
    "dtype": "target.dtype",
    "batch-size": "batch_size",
    "trace": "trace",
}
EVAL_ALIASES = {
    "target": "target.path",
    "drafter": "drafter",
    "prompts": "prompts.path",
    "output": "output",
    "max-new-tokens": "sampling.max_new_tokens",
    "max-draft-len": "max_draft_len",
    "temperature": "sampling.temperature",
    "dtype": "target.dtype",
    "batch-size": "batch_size",
    "limit": "prompts.limit",
}


class SamplingConfig(Config):
    """How tokens are chosen, and when an answer ends."""

    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy."""

    top_k: int = Field(default=0, ge=0)
    """Sample among this many likeliest tokens; 0 is off."""

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample among the likeliest tokens that hold this much probability; 1 is off."""

    seed: int = Field(default=0, ge=0)
    """Seed of the sampling; each prompt draws from its own stream."""

    max_new_tokens: int = Field(default=128, gt=0)
    """Longest answer in tokens."""

    ignore_eos: bool = False
    """Go on after an end-of-sequence token, up to max_new_tokens: for timing."""


class GenerateConfig(Config):
    """Answer prompts, with or without a drafter."""

    target: TargetConfig
    """The model that answers."""

    drafter: str | None = None
    """Folder of a drafter; none: plain decoding."""

    input: str
    """File of prompts: JSON Lines, each line with turns, messages, prompt or input_ids."""

    output: str
    """File for the answers, as JSON Lines in the order of the prompts."""

    sampling: SamplingConfig = SamplingConfig()
    """How tokens are chosen, and when an answer ends."""

    max_draft_len: int = Field(default=4, ge=0)
    """Tokens drafted a round; becomes 0 when there is no drafter."""

    batch_size: int = Field(default=1, gt=0)
    """Requests decoded at a time."""

    trace: bool = False
    """Also write each round: what was drafted and what was accepted."""

    @model_validator(mode="before")
    @classmethod
    def default_draft_len(cls, data: Any) -> Any:
        """Plain decoding drafts nothing, so the default follows `drafter`."""
        if isinstance(data, dict) and data.get("drafter") is None and "max_draft_len" not in data:
            return {**data, "max_draft_len": 0}
        return data

    @model_validator(mode="after")
    def check_draft_len(self) -> Self:
        if self.drafter is None and self.max_draft_len > 0:
            raise ValueError(
                f"max_draft_len={self.max_draft_len} needs a drafter; without one it can only be 0"
            )
        return self


class PromptSetConfig(Config):
    """The prompts a drafter is measured on."""

    path: str
    """File of prompts: JSON Lines, each line with turns, messages, prompt or input_ids."""

    split: Literal["all", "train", "heldout"] = "all"
    """Which part of the rows to take; the same rows as capture's split of that name."""

    heldout_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of rows that belong to the heldout part; must equal capture's."""

    limit: int | None = Field(default=None, gt=0)
    """Take at most this many prompts, from the top; none: all."""


class SpeedConfig(Config):
    """How plain and speculative decoding are timed against each other."""

    num_prompts: int = Field(default=8, ge=1)
    """Prompts timed, from the top of the set."""

    repeats: int = Field(default=3, ge=1)
    """Times each is run; the report takes medians."""

    batch_size: int = Field(default=1, gt=0)
    """Requests decoded at a time while timing; the acceptance pass has its own batch_size."""


class EvalConfig(Config):
    """Measure what a drafter is worth: acceptance, exactness and speed."""

    target: TargetConfig
    """The model that verifies."""

    drafter: str
    """Folder of the drafter."""

    prompts: PromptSetConfig
    """The prompts the drafter is measured on."""

    output: str
    """Folder for report.json, report.md and report.html."""

    sampling: SamplingConfig = SamplingConfig()
    """How tokens are chosen, and when an answer ends."""

    max_draft_len: int = Field(default=4, ge=1)
    """Tokens drafted a round."""

    batch_size: int = Field(default=1, gt=0)
    """Requests decoded at a time."""

    speed: SpeedConfig = SpeedConfig()
    """How plain and speculative decoding are timed against each other."""

    parity_prompts: int = Field(default=4, ge=0)
    """Prompts decoded in float32 with and without the drafter and compared token for token;
    0: no comparison."""
