"""What all decoding configs share: draft lengths, the drafter, the schedule and sampling."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import (
    AliasChoices,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from draftsmith.configs.base import Config, ConfigError
from draftsmith.configs.decoding.enums import AdvancedSamplingMode, SpecDecMode

LOAD_FORMATS = ("auto", "safetensors", "dummy")


class DecodingBaseConfig(Config):
    """Fields common to all decoding methods. On its own it names none, so no engine takes it.

    - `speculative_model` may be written `speculative_model_dir`; both together are refused.
    - `max_total_draft_tokens` left out is `max_draft_len`: a chain.
    - `draft_len_schedule` holds batch sizes >= 1 and draft lengths >= 0 and is not empty. With
      `max_draft_len` set, the smallest batch size has exactly that length, and none has more.
      A batch of size b drafts the length at the first key >= b, and nothing above the last key.
    - `max_concurrency` alone acts as the schedule `{max_concurrency: max_draft_len}`; it and
      `draft_len_schedule` exclude each other.
    - A value that is ignored warns and is stored as its default, so that a config always shows
      what is done.
    """

    max_draft_len: int | None = Field(default=None, ge=0)
    """Tokens drafted along one path."""

    max_total_draft_tokens: int | None = None
    """Tokens drafted in the whole tree; equals max_draft_len for a chain."""

    speculative_model: str | Path | None = Field(
        default=None, validation_alias=AliasChoices("speculative_model", "speculative_model_dir")
    )
    """The drafter: Hub id or local folder."""

    max_concurrency: int | None = Field(default=None, gt=0)
    """Largest batch that is still speculated for; none: every batch."""

    draft_len_schedule: dict[int, int] | None = None
    """Draft length by batch size: each key is the largest batch that drafts its value."""

    load_format: str | None = None
    """How drafter weights load: auto (or none), safetensors, or dummy: random, for timing."""

    acceptance_rate_window_size: int | None = Field(default=None, ge=0)
    """Iterations over which the acceptance gate averages; none or 0: no gate."""

    acceptance_rate_threshold: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """Mean acceptance rate below which the gate turns speculation off for good."""

    use_rejection_sampling: bool = False
    """Lossless acceptance for sampled rows; false: a draft must equal the token sampled."""

    allow_advanced_sampling: bool = False
    """Deprecated: has no effect."""

    advanced_sampling_mode: AdvancedSamplingMode = AdvancedSamplingMode.FULL
    """Which of top-k and top-p the sampler applies; min-p only with full."""

    enable_penalty: bool = False
    """Allow repetition, presence and frequency penalties; false: requests that ask for one are
    rejected."""

    @model_validator(mode="before")
    @classmethod
    def refuse_both_names(cls, data: Any) -> Any:
        """Two names of one field with two values: neither can be chosen silently."""
        names = ("speculative_model", "speculative_model_dir")
        if isinstance(data, Mapping) and all(name in data for name in names):
            given = " and ".join(f"{name}={data[name]}" for name in names)
            raise ConfigError(f"{given}: two names of the same setting; accepted: one of them")
        return data

    @field_validator("load_format")
    @classmethod
    def check_load_format(cls, load_format: str | None) -> str | None:
        if load_format is not None and load_format not in LOAD_FORMATS:
            raise ConfigError(f"accepted: {', '.join(LOAD_FORMATS)}, or none")
        return load_format

    @field_validator("draft_len_schedule", mode="wrap")
    @classmethod
    def sort_schedule(
        cls, schedule: Any, check: ValidatorFunctionWrapHandler
    ) -> dict[int, int] | None:
        """Store it by batch size; a mistake in it is shown with the whole of it."""
        try:
            checked: dict[int, int] | None = check(schedule)
        except ValidationError:
            raise ConfigError(
                f"draft_len_schedule={schedule}: accepted: a mapping of batch sizes >= 1 to draft "
                "lengths >= 0, or none"
            ) from None
        return None if checked is None else dict(sorted(checked.items()))

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Fill in what follows from other fields, then check what binds several."""
        self._drop_deprecated()
        self._complete()
        if self.max_total_draft_tokens is None:
            self._settle("max_total_draft_tokens", self.max_draft_len)
        self._check_schedule()
        self._check_rejection_sampling()
        return self

    def _complete(self) -> None:
        """A method's own rules; the common checks come after it and see final draft lengths."""

    def _drop_deprecated(self) -> None:
        if self.allow_advanced_sampling:
            self._warn("allow_advanced_sampling=true: deprecated, has no effect", FutureWarning)
            self._settle("allow_advanced_sampling", False)

    def _settle(self, field: str, value: object) -> None:
        """Set a derived field. Configs are frozen, so only their own construction may do this;
        a validator before it would have to work on values whose types nobody has checked."""
        self.__dict__[field] = value

    def _warn(self, message: str, category: type[Warning] = UserWarning) -> None:
        # Past this method, its caller, `complete` and pydantic's constructor, to the user's line.
        warnings.warn(message, category, stacklevel=5)

    def _require_total(self, total: int | None, reason: str) -> None:
        """Fix max_total_draft_tokens to the value that the method implies."""
        if self.max_total_draft_tokens not in (None, total):
            raise ConfigError(
                f"max_total_draft_tokens={self.max_total_draft_tokens}: {reason}; "
                f"accepted: {'none' if total is None else total}, or leave it out"
            )
        self._settle("max_total_draft_tokens", total)

    def _check_schedule(self) -> None:
        schedule = self.draft_len_schedule
        if schedule is None:
            return
        shown = f"draft_len_schedule={schedule}"
        if self.max_concurrency is not None:
            raise ConfigError(
                f"max_concurrency={self.max_concurrency} and {shown} exclude each other; accepted: "
                "one of them (a schedule drafts nothing above its largest batch size)"
            )
        if not schedule:
            raise ConfigError(f"{shown}: empty; accepted: at least one batch size: draft length")
        if min(schedule) < 1 or min(schedule.values()) < 0:
            raise ConfigError(f"{shown}: accepted: batch sizes >= 1, draft lengths >= 0")
        if self.max_draft_len is None:
            return
        smallest = min(schedule)
        if schedule[smallest] != self.max_draft_len or max(schedule.values()) > self.max_draft_len:
            raise ConfigError(
                f"{shown}: accepted: max_draft_len={self.max_draft_len} at the smallest batch size "
                f"({smallest}), and no more than that at any other"
            )

    def _rejection_sampling_obstacle(self) -> str | None:
        """The setting that rules rejection sampling out, as `field=value`; None: nothing does."""
        return None

    def _check_rejection_sampling(self) -> None:
        obstacle = self._rejection_sampling_obstacle()
        if not self.use_rejection_sampling or obstacle is None:
            return
        # What a class merely defaults to gives way; what the user asked for must not.
        if "use_rejection_sampling" in self.model_fields_set:
            raise ConfigError(
                f"use_rejection_sampling=true and {obstacle} exclude each other; "
                "accepted: one of them"
            )
        self._settle("use_rejection_sampling", False)

    def draft_len_for(self, batch_size: int) -> int:
        """Tokens to draft along one path for a batch of this many requests; 0: no speculation."""
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}; accepted: at least 1")
        longest = self.max_draft_len or 0
        if self.draft_len_schedule is not None:
            fitting = (size for size in self.draft_len_schedule if size >= batch_size)
            return self.draft_len_schedule.get(min(fitting, default=0), 0)
        if self.max_concurrency is not None and batch_size > self.max_concurrency:
            return 0
        return longest

    @property
    def tokens_per_gen_step(self) -> int:
        """Most tokens of one request in a verification: the drafted ones and the known one."""
        return 1 + (self.max_total_draft_tokens or 0)

    def get_runtime_tokens_per_gen_step(self, runtime_draft_len: int) -> int:
        """The same for a step that drafts `runtime_draft_len` tokens."""
        return 1 + runtime_draft_len

    @property
    def is_linear_tree(self) -> bool:
        """Whether drafts are chains."""
        return self.max_draft_len == self.max_total_draft_tokens

    def supports_backend(self, name: str) -> bool:
        """Whether the method can run on the engine backend of this name."""
        return True

    def num_capture_layers(self) -> int:
        """How many states the target hands to the method."""
        return 0

    @property
    def needs_separate_draft_weights(self) -> bool:
        """Whether draft weights must be loaded from `speculative_model`."""
        return True

    @property
    def uses_external_draft_model(self) -> bool:
        """Whether `speculative_model` holds an external draft model."""
        return self.needs_separate_draft_weights and self.speculative_model is not None

    @property
    def uses_replacement_heads(self) -> bool:
        """Whether `speculative_model` holds heads that replace the target's own."""
        return False

    @property
    def spec_dec_mode(self) -> SpecDecMode:
        """The method."""
        return SpecDecMode.NONE
