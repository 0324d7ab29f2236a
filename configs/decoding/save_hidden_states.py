"""Decoding that drafts nothing: the target's hidden states are written out."""

from typing import Literal

from pydantic import Field, field_validator

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding.base import DecodingBaseConfig
from draftsmith.configs.decoding.enums import MoeBackend, SpecDecMode
from draftsmith.configs.decoding.layers import (
    FINAL_NORM,
    LayerIds,
    ascending,
    check_layers,
    default_layers,
    refuse_empty,
)


class SaveHiddenStatesDecodingConfig(DecodingBaseConfig):
    """Write the target's hidden states, to train a drafter on.

    - The state after the final norm, id -1, is always captured: `hidden_states`. The other layers
      form `aux_hidden_states`, ascending, with -1 at the end only when it was listed; -1 alone
      gives none.
    - The default layers are 1, L//2-1 and L-4 of an L-layer target (0 when L is 1); where these
      are not three, that is below 7 layers, `eagle3_layers_to_capture` must be given.
    - `max_total_draft_tokens` is always 1.
    - `moe_backend` warns and is ignored: there is no draft model.
    """

    decoding_type: Literal["SaveState"] = "SaveState"
    """The method."""

    max_total_draft_tokens: Literal[1] = 1
    """Internal: always 1."""

    output_directory: str
    """Folder for the captured dataset; created when missing."""

    write_interval: int = Field(default=20, gt=0)
    """Requests between writes; a tail that does not fill an interval is written too."""

    file_prefix: str = "data"
    """First part of the names of the files written."""

    eagle3_layers_to_capture: LayerIds | None = None
    """Layer ids to capture beside the state after the final norm, which is id -1; none: 1, L//2-1
    and L-4 of an L-layer target."""

    moe_backend: MoeBackend | None = None
    """Ignored with a warning: nothing is drafted."""

    @field_validator("file_prefix")
    @classmethod
    def check_file_prefix(cls, prefix: str) -> str:
        if not prefix or "/" in prefix or "\\" in prefix or "\0" in prefix:
            raise ConfigError("accepted: a part of a file name, without a folder")
        return prefix

    def _complete(self) -> None:
        refuse_empty(self.eagle3_layers_to_capture)
        if self.moe_backend is not None:
            self._warn(
                f"moe_backend={self.moe_backend}: ignored; saving hidden states runs no draft model"
            )
            self._settle("moe_backend", None)

    def resolve_layers(self, num_target_layers: int) -> tuple[int, ...]:
        """The columns of `aux_hidden_states` for a target of this depth; empty: there are none.

        Raises ConfigError for an id the target does not have, or for one too shallow for the
        default.
        """
        layer_ids = self.eagle3_layers_to_capture
        if layer_ids is None:
            return default_layers(num_target_layers)
        check_layers(layer_ids, num_target_layers)
        if layer_ids == {FINAL_NORM}:
            return ()
        return tuple(ascending(layer_ids))

    @property
    def num_capture_layers(self) -> int:  # type: ignore[override]  # a property here by design
        """States captured a token, the one after the final norm included."""
        if self.eagle3_layers_to_capture is None:
            return 4
        return len(self.eagle3_layers_to_capture | {FINAL_NORM})

    def supports_backend(self, name: str) -> bool:
        return name != "tensorrt"

    @property
    def needs_separate_draft_weights(self) -> bool:
        return False

    @property
    def spec_dec_mode(self) -> SpecDecMode:
        return SpecDecMode.SAVE_HIDDEN_STATES
