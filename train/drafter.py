"""A drafter as it begins: sized after its target, with its vocabulary and first weights."""

import sys
from collections.abc import Sequence

from draftsmith.configs.base import ConfigError
from draftsmith.configs.train import Eagle3Config
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter, Eagle3Settings
from draftsmith.infer.target import Target
from draftsmith.train.initial_weights import random_weights, warm_start
from draftsmith.train.samples import SampleSet
from draftsmith.train.vocabulary import build_draft_vocabulary


def build_drafter(
    config: Eagle3Config, target: Target, samples: SampleSet, layer_ids: Sequence[int]
) -> Eagle3Drafter:
    """An fp32 drafter on the CPU; random weights follow torch's seed.

    samples: the training data, which decides a reduced vocabulary. layer_ids: the features' layers.
    """
    if config.num_layers != 1:
        raise ConfigError(f"drafter.num_layers={config.num_layers}; accepted: 1")
    size = config.draft_vocab_size or target.vocab_size
    if size > target.vocab_size:
        print(
            f"drafter.draft_vocab_size={size}: the target has {target.vocab_size} tokens; all used",
            file=sys.stderr,
        )
        size = target.vocab_size
    settings = eagle3_settings(config, target, size, layer_ids)
    drafter = Eagle3Drafter(settings)
    if settings.reduced_vocabulary:
        drafter.set_vocabulary(build_draft_vocabulary(samples, size, target.vocab_size))
    random_weights(drafter)
    if config.warm_start:
        warm_start(drafter, target)
    return drafter


def eagle3_settings(
    config: Eagle3Config, target: Target, draft_vocab_size: int, layer_ids: Sequence[int]
) -> Eagle3Settings:
    """The target's own sizes, rotary settings included, so that its block's weights fit."""
    shape = target.config
    heads = shape.num_attention_heads
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // heads
    rope = shape.rope_parameters
    if "rope_theta" not in rope:
        raise ConfigError(
            f"target.path={target.path!r}: rope_parameters={rope!r}; accepted: one rope_theta and "
            "its scaling for all layers"
        )
    return Eagle3Settings(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=getattr(shape, "num_key_value_heads", None) or heads,
        head_dim=head_dim,
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab_size,
        target_hidden_size=shape.hidden_size,
        target_layer_ids=tuple(layer_ids),
        rope_parameters=dict(rope),
        max_position_embeddings=shape.max_position_embeddings,
        rms_norm_eps=shape.rms_norm_eps,
        hidden_act=shape.hidden_act,
        norm_before_residual=config.norm_before_residual,
    )
