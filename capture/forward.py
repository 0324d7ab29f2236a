"""Run token sequences through the target and keep the asked states, proven on the first batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftsmith.configs.base import ConfigError
from draftsmith.infer.features import FeatureTap
from draftsmith.infer.target import Target

# Rows whose vocabulary logits the proof computes; the forward itself computes none.
PROOF_ROWS = 64


@dataclass(frozen=True)
class States:
    """States of one sequence on the CPU: `hidden_states` [T, H], `aux_hidden_states` [T, L·H]."""

    hidden_states: Tensor
    aux_hidden_states: Tensor | None


class StateForward:
    """Forward of the decoder below the head; inside `with`, hooks keep the asked layers only.

    aux_layer_ids: ascending; -1 may come last, as the post-norm state once more.
    """

    def __init__(self, target: Target, aux_layer_ids: Sequence[int]) -> None:
        self.target = target
        self.aux_layer_ids = tuple(aux_layer_ids)
        self._tap = FeatureTap(target, self.aux_layer_ids)

    def __enter__(self) -> "StateForward":
        self._tap.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._tap.__exit__(None, None, None)

    @torch.inference_mode()
    def __call__(self, sequences: Sequence[Sequence[int]]) -> list[States]:
        """States of each sequence, as if it had been run alone.

        Sequences are padded on the right: causal attention never looks there, and no padded row is
        returned.
        """
        lengths = [len(ids) for ids in sequences]
        width = max(lengths)
        padded = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in sequences])
        output = self.target.decoder(input_ids=padded.to(self.target.device), use_cache=False)
        hidden = output.last_hidden_state.cpu()
        aux = None
        if self.aux_layer_ids:
            aux = self._tap.features(self.aux_layer_ids).cpu()
        return [
            States(hidden[row, :length].clone(), None if aux is None else aux[row, :length].clone())
            for row, length in enumerate(lengths)
        ]

    @torch.inference_mode()
    def prove(self, input_ids: Sequence[int], captured: States) -> dict[str, float | int]:
        """Check what the states are against the model's own account of one sequence.

        On the first rows of `input_ids`: the hooks give what the model reports as its hidden
        states, the head turns the post-norm state into the model's logits, and the captured rows
        are those same states. Returns the measured differences, for the manifest.

        Raises ConfigError when one does not hold: the family then needs support it does not have.
        """
        rows = min(PROOF_ROWS, len(input_ids))
        ids = torch.tensor([list(input_ids[:rows])], device=self.target.device)
        output = self.target.model(ids, output_hidden_states=True, use_cache=False)
        reported = output.hidden_states
        layers = [layer_id for layer_id in self.aux_layer_ids if layer_id >= 0]
        layer_difference = 0.0
        for layer_id in layers:
            state = self._tap.features([layer_id])
            if layer_id == self.target.num_layers - 1:
                # Here the model reports the stream after the final norm.
                state = self.target.final_norm(state)
            layer_difference = max(layer_difference, _difference(state, reported[layer_id + 1]))
        logit_difference = _difference(self.target.logits(reported[-1]), output.logits)
        row_difference = _difference(captured.hidden_states[:rows], reported[-1][0].cpu())
        proof: dict[str, float | int] = {
            "rows": rows,
            "layer_difference": layer_difference,
            "logit_difference": logit_difference,
            "row_difference": row_difference,
        }
        # Both sides of the first two come from one forward; the captured rows come from another
        # batch shape, whose sums round differently.
        exact = 1e-5 if self.target.dtype == torch.float32 else 2e-2
        batched = 1e-4 if self.target.dtype == torch.float32 else 1e-1
        for name, limit in (
            ("layer_difference", exact),
            ("logit_difference", exact),
            ("row_difference", batched),
        ):
            if not proof[name] <= limit:
                raise ConfigError(
                    f"target.path={self.target.path!r}: the proof of the first batch failed, "
                    f"{name}={proof[name]:.3g} (relative); accepted: at most {limit}. The states "
                    "of this family would not be what the dataset says they are"
                )
        return proof


def _difference(ours: Tensor, reported: Tensor) -> float:
    """Largest absolute difference over the largest absolute value."""
    scale = reported.float().abs().max().clamp(min=1e-12)
    return float((ours.float() - reported.float()).abs().max() / scale)
