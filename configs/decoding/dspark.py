"""Decoding with a DSpark drafter: DFlash's block, a sequential head and a confidence head."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding.base import DecodingBaseConfig
from draftsmith.configs.decoding.draft_config import find_draft_setting, require_same
from draftsmith.configs.decoding.embedded import carries_draft
from draftsmith.configs.decoding.enums import MoeBackend, SpecDecMode


class DSparkDecodingConfig(DecodingBaseConfig):
    """Draft with DSpark: a block at once, then each token's bias from the one before it.

    - `max_draft_len` must be above 0, and `max_total_draft_tokens` is the same.
    - `block_size` left out is `max_draft_len`, and another value is refused; it must also be the
      checkpoint's. Shorter drafts come from the schedule, the confidence rule or a run-time cap.
    - Settings left out are read from the drafter's config: in `dspark_config`, in
      `dflash_config`, as a top-level `dspark_*` key, or as the plain key. Others must agree with
      it, except that `markov_rank: 0` turns the sequential head off.
    - `attention_backend`: AUTO is right unless a kernel must be pinned; TRTLLM needs FlashInfer
      and an SM100 or SM103 GPU; CUTEDSL is not available anywhere.
    """

    decoding_type: Literal["DSpark"] = "DSpark"
    """The method."""

    mask_token_id: int | None = None
    """Token that fills the slots to be drafted; none: read from the drafter's config."""

    target_layer_ids: list[int] | None = None
    """Target layers the drafter reads, in its order; none: read from the drafter's config."""

    block_size: int | None = Field(default=None, gt=0)
    """Tokens of a block; always max_draft_len."""

    markov_rank: int | None = Field(default=None, ge=0)
    """Rank of the sequential head; 0: off; none: read from the drafter's config."""

    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = None
    """Kind of sequential head; none: read from the drafter's config."""

    attention_backend: Literal["AUTO", "VANILLA", "TRTLLM", "CUTEDSL"] = "AUTO"
    """What computes the drafter's attention."""

    moe_backend: MoeBackend | None = None
    """What computes the drafter's expert layers; AUTO, like none, is VANILLA."""

    def _complete(self) -> None:
        if not self.max_draft_len:
            shown = "none" if self.max_draft_len is None else self.max_draft_len
            raise ConfigError(f"max_draft_len={shown}: accepted: integer > 0")
        if self.block_size not in (None, self.max_draft_len):
            raise ConfigError(
                f"block_size={self.block_size}: accepted: max_draft_len={self.max_draft_len}, or "
                "leave it out; shorter drafts come from draft_len_schedule"
            )
        self._settle("block_size", self.max_draft_len)
        self._require_total(self.max_draft_len, "a block drafts max_draft_len tokens")

    def check_draft_config(self, draft_config: Mapping[str, Any]) -> None:
        """Refuse settings that contradict the drafter's config.json."""
        for field in ("mask_token_id", "target_layer_ids", "block_size", "markov_head_type"):
            require_same(field, getattr(self, field), find_draft_setting(draft_config, field))
        if self.markov_rank != 0:
            stored = find_draft_setting(draft_config, "markov_rank")
            require_same("markov_rank", self.markov_rank, stored)

    def resolve(self, draft_config: Mapping[str, Any], field: str) -> Any:
        """A setting's value: this config's, else that in the drafter's config, else None."""
        own = getattr(self, field)
        return find_draft_setting(draft_config, field) if own is None else own

    @cached_property
    def draft_is_embedded_in_target(self) -> bool:
        """Whether the draft is the `mtp.*` part of the target's checkpoint, so that
        `speculative_model` names the target or nothing; found out once, by reading its files."""
        if self.speculative_model is None:
            return True
        return carries_draft(Path(self.speculative_model))

    def supports_backend(self, name: str) -> bool:
        return name != "tensorrt"

    @property
    def needs_separate_draft_weights(self) -> bool:
        return not self.draft_is_embedded_in_target

    @property
    def spec_dec_mode(self) -> SpecDecMode:
        return SpecDecMode.DSPARK
