"""What a drafter is fitted to, one model a kind of drafter.

Drafted position k (from 0) of anchor `a` is supervised where the loss mask is 1 on all of tokens
`a … a+1+k`. Losses are sums over supervised positions, divided by their number in the whole global
batch: all processes and all micro-batches of a step.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from draftsmith.configs.base import Config


class Eagle3ObjectiveConfig(Config):
    """Training-time test: the drafter is unrolled on its own features, as in use."""

    type: Literal["eagle3"] = "eagle3"
    """The kind of drafter it fits; left out, the drafter's own."""

    num_steps: int = Field(default=7, ge=1)
    """Unrolled steps; as many tokens as will be drafted, or more."""

    step_decay: float = Field(default=0.8, gt=0, le=1)
    """Step k (from 0) weighs step_decay^k in the loss."""

    ramp_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the budget, from its start, over which the unrolled steps grow from 1 to num_steps.
    Early steps are then cheap, and later positions build on trained earlier ones; 0: all steps at
    once."""

    convention: Literal["draftsmith"] = "draftsmith"
    """Whose divisor, mask and document-border rule the loss follows."""


class DFlashObjectiveConfig(Config):
    """Cross-entropy of each block's drafted tokens, later ones weighing less."""

    type: Literal["dflash"] = "dflash"
    """The kind of drafter it fits; left out, the drafter's own."""

    weights: Literal["decay", "d-pace"] = "decay"
    """How much drafted position k weighs: decay: exp(-k / decay_gamma); d-pace: as D-PACE (arXiv
    2605.18810) has it, by how the drafter does so far."""

    decay_gamma: float | None = Field(default=None, gt=0)
    """Positions over which the weight falls to 1/e; none with decay: 4 for a block of 7 and 7 for
    one of 16, and to be given for others. d-pace takes none."""

    num_anchors: int = Field(default=512, gt=0)
    """Blocks trained on in a sequence, each at an anchor of its own; fewer where it has fewer."""

    convention: Literal["draftsmith"] = "draftsmith"
    """Whose divisor, mask and document-border rule the loss follows."""

    @model_validator(mode="after")
    def check_gamma(self) -> Self:
        if self.weights == "d-pace" and self.decay_gamma is not None:
            raise ValueError(
                f"decay_gamma={self.decay_gamma:g}: unused with weights=d-pace; accepted: none"
            )
        return self


class DSparkObjectiveConfig(Config):
    """Cross-entropy, distance to the target's distribution, and the confidence head's own loss."""

    type: Literal["dspark"] = "dspark"
    """The kind of drafter it fits; left out, the drafter's own."""

    ce_weight: float = Field(default=0.1, ge=0)
    """Weight of the cross-entropy with the text's own token."""

    l1_weight: float = Field(default=0.9, ge=0)
    """Weight of the L1 distance between the target's and the drafter's distribution."""

    confidence_weight: float = Field(default=1.0, ge=0)
    """Weight of the confidence head's binary cross-entropy with the acceptance probability, one
    minus half that distance; unused without the head."""

    decay_gamma: float = Field(default=4.0, gt=0)
    """Drafted position k weighs exp(-k / decay_gamma)."""

    num_anchors: int = Field(default=512, gt=0)
    """Blocks trained on in a sequence, each at an anchor of its own; fewer where it has fewer."""

    convention: Literal["draftsmith"] = "draftsmith"
    """Whose divisor, mask and document-border rule the loss follows."""

    @model_validator(mode="after")
    def check_weights(self) -> Self:
        if self.ce_weight == self.l1_weight == 0:
            raise ValueError("ce_weight=0: nothing to fit with l1_weight=0; accepted: one above 0")
        return self


ObjectiveConfig = Annotated[
    Eagle3ObjectiveConfig | DFlashObjectiveConfig | DSparkObjectiveConfig,
    Field(discriminator="type"),
]
OBJECTIVES = ("eagle3", "dflash", "dspark")
PUBLISHED_GAMMA = {7: 4.0, 16: 7.0}
"""DFlash's decay_gamma by block size; no rule for other sizes was published."""
