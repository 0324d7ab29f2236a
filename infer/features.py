"""Read the residual stream after chosen decoder blocks while the target runs."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from draftsmith.configs.base import ConfigError
from draftsmith.infer.target import Target


class FeatureTap:
    """Inside `with tap:`, keeps the latest output of each asked block, and only of those.

    Layer id k is the output of block k; -1 is the state after the final norm.
    """

    def __init__(self, target: Target, layer_ids: Sequence[int]) -> None:
        for layer_id in layer_ids:
            if not -1 <= layer_id < target.num_layers:
                raise ConfigError(
                    f"layer id {layer_id} does not exist in {target.path!r}; "
                    f"accepted: -1 (after the final norm) to {target.num_layers - 1}"
                )
        self._target = target
        self._layer_ids = sorted(set(layer_ids))
        self._latest: dict[int, Tensor] = {}
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> "FeatureTap":
        for layer_id in self._layer_ids:
            module = self._target.final_norm if layer_id == -1 else self._target.layers[layer_id]
            self._handles.append(module.register_forward_hook(self._keep(layer_id)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._latest.clear()

    def _keep(self, layer_id: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            # Some families' blocks return a tuple whose first entry is the stream.
            self._latest[layer_id] = output[0] if isinstance(output, tuple) else output

        return hook

    def features(self, layer_ids: Sequence[int]) -> Tensor:
        """[B, T, len(layer_ids) · H] of the latest forward, columns in the order asked."""
        return torch.cat([self._latest[layer_id] for layer_id in layer_ids], dim=-1)
