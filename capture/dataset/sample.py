"""One captured conversation: token ids, supervision and the target's hidden states."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from draftsmith.capture.dataset.errors import DatasetError


@dataclass(frozen=True, eq=False)
class Sample:
    """What the target saw and thought of one token sequence.

    Row `t` of every tensor belongs to `input_ids[t]`.

    input_ids: [T] int32
    loss_mask: [T] uint8, 1 iff the assistant wrote the token
    hidden_states: [T, H] float, after the final norm
    aux_hidden_states: [T, L*H] float, captured layers side by side in the manifest's order
    meta: JSON values (id, source, generation settings), the same fields in every sample
    """

    key: str
    input_ids: Tensor
    loss_mask: Tensor
    hidden_states: Tensor
    aux_hidden_states: Tensor | None = None
    meta: dict[str, Any] = field(default_factory=dict)


def sample_key(source: str, row: int, input_ids: Sequence[int] | Tensor) -> str:
    """A stable name for a sample: 32 hex digits of source, row number and ids.

    A rerun over the same input gives the same keys, which is what lets it skip finished work.
    """
    ids = torch.as_tensor(input_ids, dtype=torch.int32, device="cpu").numpy().astype("<i4")
    digest = hashlib.blake2b(json.dumps([source, row]).encode() + b"\0", digest_size=16)
    digest.update(ids.tobytes())
    return digest.hexdigest()


def check_sample(sample: Sample, hidden_size: int, num_aux_layers: int) -> None:
    """Refuses a sample whose tensors do not line up row by row.

    Raises DatasetError that names the field, its shape or dtype, and what is accepted.
    """
    if sample.input_ids.dim() != 1 or sample.input_ids.numel() == 0:
        raise DatasetError(
            f"input_ids has shape {list(sample.input_ids.shape)}, accepted: [T], T >= 1"
        )
    length = sample.input_ids.numel()
    expected = {
        "input_ids": (sample.input_ids, [length], torch.int32),
        "loss_mask": (sample.loss_mask, [length], torch.uint8),
        "hidden_states": (sample.hidden_states, [length, hidden_size], None),
    }
    if sample.aux_hidden_states is not None:
        width = num_aux_layers * hidden_size
        expected["aux_hidden_states"] = (sample.aux_hidden_states, [length, width], None)
    if (sample.aux_hidden_states is None) != (num_aux_layers == 0):
        given = "absent" if sample.aux_hidden_states is None else "given"
        raise DatasetError(
            f"aux_hidden_states is {given}, but layer_ids lists {num_aux_layers} auxiliary layers"
        )
    for name, (tensor, shape, dtype) in expected.items():
        if list(tensor.shape) != shape:
            raise DatasetError(f"{name} has shape {list(tensor.shape)}, accepted: {shape}")
        if dtype is None and not tensor.is_floating_point():
            raise DatasetError(f"{name} has dtype {tensor.dtype}, accepted: a floating-point dtype")
        if dtype is not None and tensor.dtype != dtype:
            raise DatasetError(f"{name} has dtype {tensor.dtype}, accepted: {dtype}")
    if int(sample.loss_mask.max()) > 1:
        raise DatasetError(f"loss_mask holds {int(sample.loss_mask.max())}, accepted: 0 and 1")
    if int(sample.input_ids.min()) < 0:
        raise DatasetError(f"input_ids holds {int(sample.input_ids.min())}, accepted: ids from 0")
