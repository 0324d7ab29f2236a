"""Initial weights copied from the target, so that training starts near its own computation."""

from typing import Any

import torch

from draftsmith.configs.base import ConfigError
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.infer.target import Target


@torch.no_grad()
def warm_start(drafter: Eagle3Drafter, target: Target) -> None:
    """Copy the target's last block, final norm and head rows into `drafter`, in place.

    `fc` begins as the identity on the deepest captured layer. The feature half of q, k and v is the
    last block's own; the embedding half begins at zero and is learned.
    """
    settings, layer = drafter.settings, drafter.midlayer
    block: Any = target.layers[-1]
    first: Any = target.layers[0]
    final_norm: Any = target.final_norm
    hidden = settings.hidden_size
    if hidden != target.hidden_size or settings.target_hidden_size != target.hidden_size:
        raise ConfigError(
            f"drafter.warm_start needs the target's hidden size {target.hidden_size}; "
            f"the drafter has {hidden}"
        )
    drafter.fc.weight.zero_()
    deepest = settings.target_layer_ids.index(max(settings.target_layer_ids))
    drafter.fc.weight[:, deepest * hidden : (deepest + 1) * hidden] = torch.eye(hidden)
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(layer.self_attn, name).weight
        weight[:, :hidden].zero_()
        weight[:, hidden:] = getattr(block.self_attn, name).weight
    layer.self_attn.o_proj.weight.copy_(block.self_attn.o_proj.weight)
    for name in ("gate_proj", "up_proj", "down_proj"):
        getattr(layer.mlp, name).weight.copy_(getattr(block.mlp, name).weight)
    layer.hidden_norm.weight.copy_(block.input_layernorm.weight)
    layer.post_attention_layernorm.weight.copy_(block.post_attention_layernorm.weight)
    layer.input_layernorm.weight.copy_(first.input_layernorm.weight)
    drafter.norm.weight.copy_(final_norm.weight)
    drafter.lm_head.weight.copy_(target.head_weight[drafter.draft_to_target])
