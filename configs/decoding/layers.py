"""Ids of captured layers: how a config stores them, and which ones a target has.

Id k is the residual stream after decoder block k; -1 is the state after the final norm.
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import PlainSerializer

from draftsmith.configs.base import ConfigError

FINAL_NORM = -1
FIELD = "eagle3_layers_to_capture"


def ascending(layer_ids: Iterable[int]) -> list[int]:
    """Ids in ascending order with -1, the deepest state, last."""
    return sorted(layer_ids, key=lambda layer_id: (layer_id == FINAL_NORM, layer_id))


LayerIds = Annotated[
    set[int], PlainSerializer(sorted, return_type=list[int], when_used="json-unless-none")
]


def default_layers(num_target_layers: int) -> tuple[int, ...]:
    """The layers EAGLE-3 reads by default: an early, a middle and a late one."""
    if num_target_layers == 1:
        return (0,)
    layer_ids = {1, num_target_layers // 2 - 1, num_target_layers - 4}
    if len(layer_ids) < 3 or num_target_layers < 7:
        raise ConfigError(
            f"{FIELD}=null: the default 1, L/2-1, L-4 needs a target of at least 7 layers, and "
            f"this one has {num_target_layers}; accepted: ids from 0 to {num_target_layers - 1}, "
            "or -1 for the state after the final norm"
        )
    return tuple(ascending(layer_ids))


def check_layers(layer_ids: Iterable[int], num_target_layers: int) -> None:
    """Refuse ids the target does not have."""
    for layer_id in ascending(layer_ids):
        if not FINAL_NORM <= layer_id < num_target_layers:
            raise ConfigError(
                f"{FIELD} holds {layer_id}, but the target has {num_target_layers} layers; "
                f"accepted: 0 to {num_target_layers - 1}, or -1 for the state after the final norm"
            )


def refuse_empty(layer_ids: set[int] | None) -> None:
    """Refuse a set without ids: it would capture nothing."""
    if layer_ids is not None and not layer_ids:
        raise ConfigError(f"{FIELD}=[]: names no layer; accepted: at least one id, or null")
