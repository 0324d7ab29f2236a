"""What the engine does with every field of every decoding config, in one table; and which
drafters the trainer fits.

`python -m draftsmith.configs.support` prints it as the page docs/decoding-configs.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding import (
    DecodingBaseConfig,
    DFlashDecodingConfig,
    DSparkDecodingConfig,
    EagleDecodingConfig,
    SaveHiddenStatesDecodingConfig,
)
from draftsmith.configs.loading import plain
from draftsmith.configs.problems import show
from draftsmith.configs.train import TrainConfig

Status = Literal["alive", "refused", "informational"]


@dataclass(frozen=True)
class Behaviour:
    """What becomes of one field.

    status: "alive": does what it says; "refused": any value but its default is an error when an
    engine is built; "informational": changes nothing, for the reason in `what`.
    takes: for an alive field, the values that the engine can do, where these are not all that the
    config accepts; for a refused one, values that mean the same as its default.
    """

    field: str
    status: Status
    what: str
    takes: tuple[object, ...] | None = None


def alive(field: str, what: str, takes: tuple[object, ...] | None = None) -> Behaviour:
    return Behaviour(field, "alive", what, takes)


def refused(field: str, what: str, takes: tuple[object, ...] | None = None) -> Behaviour:
    return Behaviour(field, "refused", what, takes)


def informational(field: str, what: str) -> Behaviour:
    return Behaviour(field, "informational", what)


def refused_all(what: str, *fields: str) -> tuple[Behaviour, ...]:
    return tuple(refused(field, what) for field in fields)


NO_EFFECT = "deprecated, has no effect: true warns and becomes false"
COMMON_FIELDS = (
    "max_draft_len",
    "speculative_model",
    "max_concurrency",
    "draft_len_schedule",
    "load_format",
    "acceptance_rate_window_size",
    "acceptance_rate_threshold",
    "use_rejection_sampling",
    "advanced_sampling_mode",
    "enable_penalty",
)

WHOLE: Mapping[type[DecodingBaseConfig], str] = {
    DecodingBaseConfig: "names no decoding method",
    DFlashDecodingConfig: "DFlash drafters are not decoded yet",
    DSparkDecodingConfig: "DSpark drafters are not decoded yet",
}
"""Configs that no engine takes, whatever their fields hold."""

SUPPORT: Mapping[type[DecodingBaseConfig], Sequence[Behaviour]] = {
    DecodingBaseConfig: (
        *refused_all(WHOLE[DecodingBaseConfig], *COMMON_FIELDS, "max_total_draft_tokens"),
        informational("allow_advanced_sampling", NO_EFFECT),
    ),
    SaveHiddenStatesDecodingConfig: (
        *refused_all("saving hidden states drafts nothing", *COMMON_FIELDS),
        informational("max_total_draft_tokens", "always 1: the config accepts no other value"),
        informational("allow_advanced_sampling", NO_EFFECT),
        alive("decoding_type", "names the method"),
        alive("output_directory", "the dataset's folder, created when missing"),
        alive("write_interval", "requests between writes; the tail is written too"),
        alive("file_prefix", "first part of the names of the files written"),
        alive("eagle3_layers_to_capture", "captured beside the state after the final norm"),
        informational("moe_backend", "there is no draft model: a value warns and becomes none"),
    ),
    EagleDecodingConfig: (
        alive("max_draft_len", "tokens drafted a round"),
        alive("max_total_draft_tokens", "equals max_draft_len: drafts are chains"),
        alive("speculative_model", "the EAGLE-3 drafter that is loaded"),
        alive("max_concurrency", "larger batches are decoded without speculation"),
        alive("draft_len_schedule", "tokens drafted a round, by the number of active requests"),
        alive(
            "load_format", "weights are read from safetensors files", (None, "auto", "safetensors")
        ),
        refused("acceptance_rate_window_size", "speculation is not gated yet", (0,)),
        refused("acceptance_rate_threshold", "speculation is not gated yet"),
        refused("use_rejection_sampling", "drafts must equal the target's own token so far"),
        informational("allow_advanced_sampling", NO_EFFECT),
        refused("advanced_sampling_mode", "no filter can be skipped yet"),
        refused("enable_penalty", "penalties are not applied yet"),
        alive("decoding_type", "names the method"),
        refused("eagle_choices", "only chains are drafted yet"),
        alive("greedy_sampling", "drafts are accepted by exact match", (True, None)),
        refused("posterior_threshold", "there is no typical acceptance yet"),
        refused("use_dynamic_tree", "only chains are drafted yet"),
        refused("dynamic_tree_max_topK", "only chains are drafted yet"),
        informational("num_eagle_layers", "deprecated: giving it warns; always max_draft_len"),
        refused("max_non_leaves_per_layer", "only chains are drafted yet"),
        alive("eagle3_one_model", "always true: false warns and becomes true"),
        alive("eagle3_layers_to_capture", "must hold the layers of the drafter's checkpoint"),
        refused("eagle3_model_arch", "only Llama-like drafters are loaded yet"),
    ),
    DFlashDecodingConfig: (
        *refused_all(
            WHOLE[DFlashDecodingConfig],
            *COMMON_FIELDS,
            "max_total_draft_tokens",
            "decoding_type",
            "mask_token_id",
            "target_layer_ids",
            "attention_backend",
        ),
        informational("allow_advanced_sampling", NO_EFFECT),
    ),
    DSparkDecodingConfig: (
        *refused_all(
            WHOLE[DSparkDecodingConfig],
            *COMMON_FIELDS,
            "max_total_draft_tokens",
            "decoding_type",
            "mask_token_id",
            "target_layer_ids",
            "block_size",
            "markov_rank",
            "markov_head_type",
            "attention_backend",
            "moe_backend",
        ),
        informational("allow_advanced_sampling", NO_EFFECT),
    ),
}


def refuse_unsupported(config: DecodingBaseConfig) -> None:
    """Raise ConfigError, one line a problem, for what this config asks and the engine cannot do."""
    kind = type(config)
    if kind not in SUPPORT:
        raise ConfigError(f"{kind.__name__}: unknown to the engine; accepted: {engine_takes()}")
    if kind in WHOLE:
        raise ConfigError(f"{kind.__name__}: {WHOLE[kind]}; accepted: {engine_takes()}")
    problems = []
    for row in SUPPORT[kind]:
        accepted = taken(kind, row)
        value = getattr(config, row.field)
        if accepted is not None and value not in accepted:
            words = " | ".join(show(plain(one)) for one in accepted)
            problems.append(
                f"{kind.__name__}.{row.field}={show(plain(value))}: {row.what}; accepted: {words}"
            )
    if problems:
        raise ConfigError("\n".join(problems))


def taken(kind: type[DecodingBaseConfig], row: Behaviour) -> tuple[object, ...] | None:
    """The values of a field that the engine takes; None: every value the config accepts."""
    if row.status == "refused":
        return (kind.model_fields[row.field].default, *(row.takes or ()))
    return row.takes


def engine_takes() -> str:
    return " | ".join(kind.__name__ for kind in SUPPORT if kind not in WHOLE)


TRAINED = ("eagle3",)
"""Types of drafter that `draftsmith train run` fits; the config describes more."""


def refuse_untrained(config: TrainConfig) -> None:
    """Raise ConfigError for a type of drafter that the trainer does not fit yet."""
    if config.drafter.type not in TRAINED:
        kinds = " and ".join(TRAINED)
        raise ConfigError(
            f"drafter.type={config.drafter.type}: the trainer fits {kinds} drafters; "
            f"accepted: {' | '.join(TRAINED)}"
        )


if __name__ == "__main__":
    from draftsmith.configs.support_page import render_page

    print(render_page(), end="")
