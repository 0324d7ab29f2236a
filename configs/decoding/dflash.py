"""Decoding with a DFlash drafter: a block of tokens in one pass."""

from collections.abc import Mapping
from typing import Any, Literal

from draftsmith.configs.decoding.base import DecodingBaseConfig
from draftsmith.configs.decoding.draft_config import find_draft_setting
from draftsmith.configs.decoding.enums import SpecDecMode


class DFlashDecodingConfig(DecodingBaseConfig):
    """Draft with DFlash: all tokens of a block at once.

    - `max_total_draft_tokens` is `max_draft_len`; a step verifies `max_draft_len` + 1 tokens.
    - `attention_backend: TRTLLM` needs FlashInfer and an SM100 or SM103 GPU.
    """

    decoding_type: Literal["DFlash"] = "DFlash"
    """The method."""

    mask_token_id: int | None = None
    """Token that fills the slots to be drafted; none: read from the drafter's config."""

    target_layer_ids: list[int] | None = None
    """Target layers the drafter reads, in its order; none: read from the drafter's config."""

    attention_backend: Literal["VANILLA", "TRTLLM"] = "VANILLA"
    """What computes the drafter's attention."""

    def _complete(self) -> None:
        self._require_total(self.max_draft_len, "a block drafts max_draft_len tokens")

    def resolve_mask_token_id(self, draft_config: Mapping[str, Any]) -> int | None:
        """This config's id, else the one in the drafter's config; None: neither has one."""
        stored: int | None = find_draft_setting(draft_config, "mask_token_id")
        return stored if self.mask_token_id is None else self.mask_token_id

    def resolve_target_layer_ids(self, draft_config: Mapping[str, Any]) -> list[int] | None:
        """This config's layers, else those in the drafter's config; None: neither has any."""
        stored: list[int] | None = find_draft_setting(draft_config, "target_layer_ids")
        return stored if self.target_layer_ids is None else self.target_layer_ids

    def supports_backend(self, name: str) -> bool:
        return name != "tensorrt"

    @property
    def spec_dec_mode(self) -> SpecDecMode:
        return SpecDecMode.DFLASH
