"""The training job: which drafter is fitted, on what data, towards what, and for how long."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from draftsmith.configs.base import Config
from draftsmith.configs.drafter import DFlashConfig, DrafterConfig, DSparkConfig, Eagle3Config
from draftsmith.configs.objective import (
    OBJECTIVES,
    PUBLISHED_GAMMA,
    DFlashObjectiveConfig,
    DSparkObjectiveConfig,
    Eagle3ObjectiveConfig,
    ObjectiveConfig,
)
from draftsmith.configs.target import TargetConfig

__all__ = [
    "BatchConfig",
    "BudgetConfig",
    "CheckpointConfig",
    "DFlashConfig",
    "DFlashObjectiveConfig",
    "DSparkConfig",
    "DSparkObjectiveConfig",
    "Eagle3Config",
    "Eagle3ObjectiveConfig",
    "OptimizerConfig",
    "TrackingConfig",
    "TrainConfig",
]

RUN_ALIASES = {
    "target": "target.path",
    "dtype": "target.dtype",
    "data": "data",
    "output": "output",
    "lr": "optimizer.lr",
    "draft-vocab-size": "drafter.draft_vocab_size",
    "num-steps": "objective.num_steps",
    "epochs": "budget.num_epochs",
    "max-steps": "budget.max_steps",
    "max-minutes": "budget.max_minutes",
    "seed": "seed",
}


class OptimizerConfig(Config):
    """AdamW, and how its learning rate moves."""

    lr: float = Field(default=1e-4, gt=0)
    """Peak learning rate."""

    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the running mean and of the running square of gradients, each in [0, 1)."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""

    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradients are scaled down to this norm; 0: off."""

    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Shape of the decay after the warm-up."""

    warmup_ratio: float = Field(default=0.04, ge=0, lt=1)
    """Share of all steps in which the rate rises from 0 to lr."""

    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of lr left at the last step."""

    @field_validator("betas")
    @classmethod
    def check_betas(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("accepted: 2 comma-separated numbers in [0, 1)")
        return betas


class BudgetConfig(Config):
    """When training ends: at the first limit reached. At least one must be given."""

    num_epochs: float | None = Field(default=None, gt=0)
    """Passes over the data; fractions are allowed."""

    max_steps: int | None = Field(default=None, gt=0)
    """Optimizer steps."""

    max_minutes: float | None = Field(default=None, gt=0)
    """Minutes of training. Schedules follow the share of the budget that is used, so the learning
    rate ends its fall in time whatever the speed of the machine."""

    @model_validator(mode="after")
    def check_any(self) -> Self:
        if self.num_epochs is None and self.max_steps is None and self.max_minutes is None:
            raise ValueError("give at least one of num_epochs, max_steps and max_minutes")
        return self


class BatchConfig(Config):
    """What one optimizer step sees."""

    tokens: int = Field(default=2048, gt=0)
    """Tokens of one micro-batch, padding included."""

    accumulation: int = Field(default=1, ge=1)
    """Micro-batches whose gradients are summed into one step."""

    max_length: int | None = Field(default=None, gt=1)
    """Samples are cut to their first max_length tokens; none: no cut but at `tokens`."""


class CheckpointConfig(Config):
    """When the state of training is saved, and how much of it stays on disk."""

    every_steps: int | None = Field(default=None, gt=0)
    """Steps between checkpoints; none: only at the end."""

    keep: int = Field(default=2, ge=1)
    """Checkpoints kept; older ones are removed."""


class TrackingConfig(Config):
    """Where metrics go besides the log file beside the output."""

    tracker: Literal["none", "wandb", "tensorboard"] = "none"
    """Service that receives the metrics; none: only the log file."""

    project: str = "draftsmith"
    """Project name at the tracker."""

    log_every: int = Field(default=10, gt=0)
    """Steps between log lines."""


class TrainConfig(Config):
    """Fit a drafter on a captured dataset."""

    target: TargetConfig
    """The model the dataset was captured from; its embeddings and head are used."""

    data: str
    """Folder of the captured dataset."""

    output: str
    """Folder for the drafter, its checkpoints and its log."""

    drafter: DrafterConfig = Eagle3Config()
    """The kind and shape of the drafter."""

    # A factory: the default follows the drafter's type, so loading must fill in none of its own.
    objective: ObjectiveConfig = Field(default_factory=Eagle3ObjectiveConfig)
    """What the drafter is fitted to."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW, and how its learning rate moves."""

    budget: BudgetConfig
    """When training ends: at the first limit reached; at least one must be given."""

    batch: BatchConfig = BatchConfig()
    """What one optimizer step sees."""

    checkpoint: CheckpointConfig = CheckpointConfig()
    """When the state of training is saved, and how much of it stays on disk."""

    tracking: TrackingConfig = TrackingConfig()
    """Where metrics go besides the log file beside the output."""

    mixed_precision: Literal["no", "bf16", "auto"] = "no"
    """Precision of the drafter's arithmetic, its weights staying in float32; auto: bf16
    unless this machine is measured to multiply float32 faster."""

    heldout_fraction: float = Field(default=0.05, gt=0, lt=1)
    """Share of samples kept out of training to measure on."""

    seed: int = Field(default=0, ge=0)
    """Seed of the initial weights and of the order of samples."""

    num_workers: int = Field(default=0, ge=0)
    """Processes that read data; 0: the training process reads."""

    @model_validator(mode="before")
    @classmethod
    def default_objective(cls, data: Any) -> Any:
        """An objective that names no type has the drafter's."""
        if not isinstance(data, dict):
            return data
        drafter, objective = data.get("drafter", {}), data.get("objective", {})
        if not isinstance(objective, dict) or "type" in objective:
            return data
        kind = (
            drafter.get("type", "eagle3")
            if isinstance(drafter, dict)
            else getattr(drafter, "type", None)
        )
        if kind not in OBJECTIVES:
            # The drafter's own error says all there is to say.
            return {key: value for key, value in data.items() if key != "objective"}
        return {**data, "objective": {"type": kind, **objective}}

    @model_validator(mode="after")
    def check_objective(self) -> Self:
        drafter, objective = self.drafter, self.objective
        if objective.type != drafter.type:
            raise ValueError(
                f"objective.type={objective.type}: does not go with drafter.type={drafter.type}; "
                f"accepted: {drafter.type}, or leave it out"
            )
        if (
            isinstance(drafter, DFlashConfig)
            and isinstance(objective, DFlashObjectiveConfig)
            and objective.weights == "decay"
            and objective.decay_gamma is None
        ):
            gamma = PUBLISHED_GAMMA.get(drafter.block_size)
            if gamma is None:
                raise ValueError(
                    "objective.decay_gamma=none: there is no published value for "
                    f"drafter.block_size={drafter.block_size}; accepted: number > 0"
                )
            settled = objective.model_copy(update={"decay_gamma": gamma})
            object.__setattr__(self, "objective", settled)
        return self
