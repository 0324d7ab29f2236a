"""A drafter's first weights: random, or with the target's own head to start from."""

from typing import Any

import torch
from torch import nn

from draftsmith.configs.base import ConfigError
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.target import Target

INITIALIZER_RANGE = 0.02
# The layer's two outputs and `fc` begin smaller, so that the residual grows from little and the
# first drafts are near the head's average instead of confidently wrong.
RESIDUAL_SCALE = 0.3
FEATURE_SCALE = 0.5
# The target's norm is made for states that already predict; scaled down, the first logits are flat.
NORM_SCALE = 0.3


@torch.no_grad()
def random_weights(drafter: Eagle3Drafter) -> None:
    """Normal matrices and unit norms, in place, from torch's global seed."""
    for module in drafter.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(std=INITIALIZER_RANGE)
    layer = drafter.midlayer
    layer.self_attn.o_proj.weight.mul_(RESIDUAL_SCALE)
    layer.mlp.down_proj.weight.mul_(RESIDUAL_SCALE)
    drafter.fc.weight.mul_(FEATURE_SCALE)


@torch.no_grad()
def warm_start(drafter: Eagle3Drafter, target: Target) -> None:
    """Copy the target's head rows of the draft vocabulary and its final norm, in place.

    The head knows how tokens relate, rare ones included, which a small dataset cannot teach.
    The target's blocks are not copied: they refine a prediction of the next token, while the
    drafter must predict the one after.
    """
    if drafter.settings.hidden_size != target.hidden_size:
        raise ConfigError(
            f"drafter.warm_start needs the target's hidden size {target.hidden_size}; "
            f"the drafter has {drafter.settings.hidden_size}"
        )
    final_norm: Any = target.final_norm
    drafter.norm.weight.copy_(final_norm.weight * NORM_SCALE)
    drafter.lm_head.weight.copy_(target.head_weight[drafter.draft_to_target])
