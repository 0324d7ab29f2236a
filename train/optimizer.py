"""AdamW over a drafter's weights, and the learning rate of every step."""

import math

import torch
from torch import nn

from draftsmith.configs.train import OptimizerConfig


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


def learning_rate(config: OptimizerConfig, progress: float) -> float:
    """The rate when `progress` (0 to 1) of the budget is used, whatever the number of processes.

    It rises linearly over the first `warmup_ratio`, then falls towards `min_lr_ratio` at the end.
    """
    if progress < config.warmup_ratio:
        return config.lr * progress / config.warmup_ratio
    if config.schedule == "constant":
        return config.lr
    fallen = (progress - config.warmup_ratio) / (1.0 - config.warmup_ratio)
    share = {
        "linear": 1.0 - fallen,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * fallen)),
    }[config.schedule]
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * share)
