"""The drafters a training can fit, one model a kind: their shape, and where they start from.

All of them read features of captured target layers (rows below the anchor) and the target's own
embeddings. An anchor `a` is a known token; a drafter drafts tokens `a+1` and on.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from draftsmith.configs.base import Config


class Eagle3Config(Config):
    """An EAGLE-3 drafter: one decoder layer over the target's features and embeddings."""

    type: Literal["eagle3"] = "eagle3"
    """The kind of drafter."""

    draft_vocab_size: int | None = Field(default=None, gt=0)
    """Tokens the drafter can propose: the most frequent in the data; none: the full vocabulary."""

    num_layers: int = Field(default=1, ge=1)
    """Decoder layers of the drafter."""

    norm_before_residual: bool = False
    """Take the residual after the feature's norm instead of before it."""

    warm_start: bool = True
    """Start from the target's own head and final norm; false: random weights."""


class DFlashConfig(Config):
    """A DFlash drafter: a block of mask tokens after the anchor, filled in one pass by layers that
    see the whole block and the target's features before it. Embedding and head are the target's."""

    type: Literal["dflash"] = "dflash"
    """The kind of drafter."""

    block_size: int = Field(default=16, ge=1)
    """Slots of a block, the anchor's own included."""

    layout: Literal["shifted", "anchor_first"]
    """What slot k predicts: shifted: token a+1+k, so a block of B drafts B; anchor_first: slot 0
    repeats the anchor and slot k predicts token a+k, so a block of B drafts B-1."""

    num_layers: int = Field(default=5, ge=1)
    """Decoder layers of the drafter."""

    mask_token_id: int | None = Field(default=None, ge=0)
    """Token that fills the slots to be drafted, one that no text contains; none: the mask token of
    the target's tokenizer, which few have."""

    target_layer_ids: list[int] | None = None
    """Captured layers the drafter reads, in its own order; none: every captured decoder block,
    ascending."""

    sliding_window: int | None = Field(default=None, gt=0)
    """Rows of context a slot attends to; none: all of them."""

    @field_validator("target_layer_ids")
    @classmethod
    def check_layers(cls, layer_ids: list[int] | None) -> list[int] | None:
        return check_layer_ids(layer_ids)

    @model_validator(mode="after")
    def check_block(self) -> Self:
        if self.layout == "anchor_first" and self.block_size < 2:
            raise ValueError(
                f"block_size={self.block_size}: drafts nothing with layout=anchor_first; "
                "accepted: integer >= 2"
            )
        return self


class DSparkConfig(Config):
    """A DSpark drafter: DFlash's block in the shifted layout, then a sequential (Markov) head that
    biases each slot by the token before it, and a head that foretells acceptance."""

    type: Literal["dspark"] = "dspark"
    """The kind of drafter."""

    block_size: int = Field(default=7, ge=1)
    """Slots of a block; slot k predicts token a+1+k, so a block of B drafts B."""

    num_layers: int = Field(default=5, ge=1)
    """Decoder layers of the drafter."""

    markov_rank: int = Field(default=256, ge=0)
    """Rank of the sequential head; 0: no such head."""

    markov_head_type: Literal["vanilla", "gated", "rnn"] = "vanilla"
    """Sequential head: a low-rank bias by the token before; gated by the slot's state; or carried
    by a recurrent state. Unused when markov_rank is 0."""

    confidence_head: bool = True
    """Also learn each slot's probability of being accepted."""

    confidence_head_with_markov: bool = True
    """The confidence head also reads the Markov embedding of the token before; left out, it does
    where there are both heads."""

    mask_token_id: int | None = Field(default=None, ge=0)
    """Token that fills the slots to be drafted, one that no text contains; none: the mask token of
    the target's tokenizer, which few have."""

    target_layer_ids: list[int] | None = None
    """Captured layers the drafter reads, in its own order; none: every captured decoder block,
    ascending."""

    @field_validator("target_layer_ids")
    @classmethod
    def check_layers(cls, layer_ids: list[int] | None) -> list[int] | None:
        return check_layer_ids(layer_ids)

    @model_validator(mode="before")
    @classmethod
    def default_confidence(cls, data: Any) -> Any:
        """The confidence head reads the Markov embedding where there is one to read."""
        if not isinstance(data, dict) or "confidence_head_with_markov" in data:
            return data
        both = data.get("confidence_head") is not False and data.get("markov_rank") != 0
        return {**data, "confidence_head_with_markov": both}

    @model_validator(mode="after")
    def check_confidence(self) -> Self:
        if self.confidence_head_with_markov:
            for name in ("confidence_head", "markov_rank"):
                if not getattr(self, name):
                    value = str(getattr(self, name)).lower()
                    raise ValueError(
                        f"confidence_head_with_markov=true: there is none with {name}={value}; "
                        "accepted: false"
                    )
        return self


def check_layer_ids(layer_ids: list[int] | None) -> list[int] | None:
    """Refuse a list that names no layer, or one that no target has."""
    if layer_ids is not None and (not layer_ids or min(layer_ids) < -1):
        raise ValueError(
            "accepted: one or more ids of decoder blocks from 0, or -1 for the state after the "
            "final norm; or none"
        )
    return layer_ids


DrafterConfig = Annotated[Eagle3Config | DFlashConfig | DSparkConfig, Field(discriminator="type")]
