"""Decoding with an EAGLE-3 drafter: along a chain, a fixed tree or a tree grown at run time."""

import ast
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding.base import DecodingBaseConfig
from draftsmith.configs.decoding.enums import SpecDecMode
from draftsmith.configs.decoding.layers import (
    FIELD,
    FINAL_NORM,
    LayerIds,
    ascending,
    check_layers,
    default_layers,
    refuse_empty,
)

DEFAULT_POSTERIOR_THRESHOLD = 0.09


class EagleDecodingConfig(DecodingBaseConfig):
    """Draft with EAGLE-3: a layer that reads the target's features and its own last output.

    - `speculative_model` must be given, and `max_draft_len` be above 0 (a static tree implies it).
    - Chain, unless a tree is asked for: `max_total_draft_tokens` is `max_draft_len`.
    - Static tree (`eagle_choices`): excludes `use_dynamic_tree`. Paths are stored without
      repeats, by length and then by rank; every path's prefix must be a path too.
      `max_draft_len` becomes the tree's depth, with a warning when another was given, and
      `max_total_draft_tokens` is the number of paths. The list may be text: `"[[0], [0, 1]]"`.
    - Dynamic tree (`use_dynamic_tree`): needs `dynamic_tree_max_topK` above 0;
      `max_total_draft_tokens` lies between `max_draft_len` and `dynamic_tree_max_topK` x
      `max_draft_len`, which is its default. Without the tree, `dynamic_tree_max_topK` warns and
      is ignored.
    - Typical acceptance (`greedy_sampling: false`) excludes `use_rejection_sampling`, and
      `posterior_threshold` left out is then 0.09.
    - `num_eagle_layers` is always `max_draft_len`; giving it warns, and it is not written out.
    - `eagle3_one_model: false` warns and becomes true.
    - `eagle3_model_arch: mistral_large3` with no layers given reads the final state alone: -1.
    """

    decoding_type: Literal["Eagle"] = "Eagle"
    """The method."""

    eagle_choices: list[list[int]] | None = None
    """Static tree: each entry a path of child ranks from the root, 0 the likeliest child."""

    greedy_sampling: bool | None = True
    """Accept what the target would choose; false: typical acceptance, sampled."""

    posterior_threshold: float | None = Field(default=None, allow_inf_nan=False)
    """Epsilon of typical acceptance: x passes if p(x) > min(eps, sqrt(eps) exp(-H(p)))."""

    use_dynamic_tree: bool | None = False
    """Grow the tree at run time along its likeliest paths, as EAGLE-2 does."""

    dynamic_tree_max_topK: int | None = None
    """Children of each expanded node of a dynamic tree, and nodes kept a layer."""

    num_eagle_layers: int | None = Field(default=None, exclude=True)
    """Deprecated: always max_draft_len."""

    max_non_leaves_per_layer: int | None = None
    """How many nodes of one layer of the tree may be expanded; none: no limit."""

    eagle3_one_model: bool | None = True
    """Run target and drafter as one; there is no other way here."""

    eagle3_layers_to_capture: LayerIds | None = None
    """Target layers the drafter reads; none: those of its checkpoint."""

    eagle3_model_arch: Literal["llama3", "mistral_large3"] = "llama3"
    """Architecture of the drafter."""

    @field_validator("eagle_choices", mode="before")
    @classmethod
    def parse_choices(cls, choices: Any) -> Any:
        """A list in text, as other tools' configs and command lines write it."""
        if not isinstance(choices, str):
            return choices
        try:
            return ast.literal_eval(choices.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise ConfigError(
                "not readable; accepted: a list of paths such as [[0], [0, 1]]"
            ) from None

    @field_validator("eagle_choices")
    @classmethod
    def sort_choices(cls, choices: list[list[int]] | None) -> list[list[int]] | None:
        if choices is None:
            return None
        paths = {tuple(path) for path in choices}
        return [list(path) for path in sorted(paths, key=lambda path: (len(path), path))]

    def _complete(self) -> None:
        refuse_empty(self.eagle3_layers_to_capture)
        if self.speculative_model is None or self.speculative_model == "":
            raise ConfigError("speculative_model: required; accepted: a Hub id or a local folder")
        if self.eagle_choices is not None:
            given = self.max_draft_len
            self._complete_static_tree(self.eagle_choices)
            if given not in (None, self.max_draft_len):
                self._warn(f"max_draft_len={given}: becomes {self.max_draft_len}, the tree's depth")
        if not self.max_draft_len:
            shown = "none" if self.max_draft_len is None else self.max_draft_len
            raise ConfigError(f"max_draft_len={shown}: accepted: integer > 0")
        if self.use_dynamic_tree:
            self._complete_dynamic_tree(self.max_draft_len)
        elif self.eagle_choices is None:
            self._require_total(self.max_draft_len, "a chain drafts max_draft_len tokens")
        if self.dynamic_tree_max_topK is not None and not self.use_dynamic_tree:
            self._warn(
                f"dynamic_tree_max_topK={self.dynamic_tree_max_topK}: ignored; "
                "it has a meaning only with use_dynamic_tree=true"
            )
            self._settle("dynamic_tree_max_topK", None)
        if self.num_eagle_layers is not None:
            self._warn(
                f"num_eagle_layers={self.num_eagle_layers}: deprecated, becomes max_draft_len="
                f"{self.max_draft_len}; give max_draft_len instead",
                FutureWarning,
            )
        self._settle("num_eagle_layers", self.max_draft_len)
        if self.eagle3_one_model is False:
            self._warn("eagle3_one_model=false: becomes true; there is no two-model mode")
        self._settle("eagle3_one_model", True)
        if self.eagle3_model_arch == "mistral_large3" and self.eagle3_layers_to_capture is None:
            self._settle(FIELD, {FINAL_NORM})
        if self.greedy_sampling is False and self.posterior_threshold is None:
            self._settle("posterior_threshold", DEFAULT_POSTERIOR_THRESHOLD)

    def _complete_static_tree(self, choices: list[list[int]]) -> None:
        if self.use_dynamic_tree:
            raise ConfigError(
                f"eagle_choices={choices} and use_dynamic_tree=true exclude each other; "
                "accepted: one of them"
            )
        self.check_eagle_choices()
        self._settle("max_draft_len", len(choices[-1]))
        self._require_total(len(choices), f"eagle_choices holds {len(choices)} paths")

    def _complete_dynamic_tree(self, depth: int) -> None:
        width = self.dynamic_tree_max_topK
        if width is None or width < 1:
            shown = "none" if width is None else width
            raise ConfigError(
                f"dynamic_tree_max_topK={shown}: accepted: integer > 0 with use_dynamic_tree=true"
            )
        if self.max_total_draft_tokens is None:
            self._settle("max_total_draft_tokens", width * depth)
        elif not depth <= self.max_total_draft_tokens <= width * depth:
            raise ConfigError(
                f"max_total_draft_tokens={self.max_total_draft_tokens}: accepted: {depth} "
                f"(max_draft_len) to {width * depth} (dynamic_tree_max_topK x max_draft_len)"
            )

    def check_eagle_choices(self) -> None:
        """Raise ConfigError unless `eagle_choices` is a tree; without choices there is none."""
        if self.eagle_choices is None:
            return
        if not self.eagle_choices:
            raise ConfigError("eagle_choices=[]: empty; accepted: at least one path, or null")
        known = {tuple(path) for path in self.eagle_choices}
        for path in self.eagle_choices:
            if not path or min(path) < 0:
                raise ConfigError(
                    f"eagle_choices holds the path {path}; "
                    "accepted: paths of one or more child ranks, each >= 0"
                )
            if len(path) > 1 and tuple(path[:-1]) not in known:
                raise ConfigError(
                    f"eagle_choices holds the path {path} but not its prefix {path[:-1]}; "
                    "accepted: trees that hold every path's prefix"
                )

    def resolve_layers(
        self, num_target_layers: int, checkpoint_ids: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """Layers the drafter reads, in the order in which its first projection expects them.

        checkpoint_ids: what the drafter's checkpoint says, order and repeats included; None: it
        says nothing. Raises ConfigError when the target has no such layer, or when
        `eagle3_layers_to_capture` names other layers than the checkpoint.
        """
        asked = self.eagle3_layers_to_capture
        if checkpoint_ids is None:
            if asked is None:
                return default_layers(num_target_layers)
            check_layers(asked, num_target_layers)
            return tuple(ascending(asked))
        if asked is not None and asked != set(checkpoint_ids):
            raise ConfigError(
                f"{FIELD}={ascending(asked)}: the drafter in speculative_model="
                f"{self.speculative_model} was trained on layers {list(checkpoint_ids)}; "
                "accepted: these, or leave it out"
            )
        check_layers(checkpoint_ids, num_target_layers)
        return tuple(checkpoint_ids)

    @property
    def is_linear_tree(self) -> bool:
        return self.eagle_choices is None and self.use_dynamic_tree is False

    @property
    def num_capture_layers(self) -> int:  # type: ignore[override]  # a property here by design
        """Target layers the drafter reads."""
        layer_ids = self.eagle3_layers_to_capture
        return 3 if layer_ids is None else len(layer_ids)

    def _rejection_sampling_obstacle(self) -> str | None:
        return "greedy_sampling=false" if self.greedy_sampling is False else None

    @property
    def spec_dec_mode(self) -> SpecDecMode:
        return SpecDecMode.EAGLE3
