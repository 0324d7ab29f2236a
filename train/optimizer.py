"""AdamW over a drafter's weights, and the learning rate of every step."""

import math

import torch
from torch import nn

from draftsmith.configs.train import OptimizerConfig

# While the number of steps is being measured, the rate rises as if the warm-up took this many.
MEASUREMENT_WARMUP_STEPS = 25


def build_optimizer(
    drafter: nn.Module, config: OptimizerConfig, device: torch.device
) -> torch.optim.AdamW:
    """Matrices decay, norm weights do not; one fused kernel where torch has one."""
    parameters = [p for p in drafter.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=fused)


def learning_rate(config: OptimizerConfig, step: int, total_steps: int | None) -> float:
    """The rate of step `step` (from 0), whatever the number of processes.

    It rises over `warmup_ratio` of the steps, then falls towards `min_lr_ratio`, which it would
    reach one step after the last: no step is spent at a rate of zero. total_steps: None while it is
    being measured.
    """
    if total_steps is None:
        return config.lr * min(1.0, (step + 1) / MEASUREMENT_WARMUP_STEPS)
    warmup = math.ceil(config.warmup_ratio * total_steps)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    share = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
    }[config.schedule]
    if config.schedule == "constant":
        return config.lr
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * share)
