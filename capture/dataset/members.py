"""A sample as the two files of a shard: `<key>.json` and `<key>.safetensors`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from draftsmith.capture.dataset.archive import check_key, check_member_size
from draftsmith.capture.dataset.codec import SCALE_SUFFIX, Codec, get_codec
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.manifest import FINAL_NORM_ID, aux_layer_ids
from draftsmith.capture.dataset.sample import Sample, check_sample
from draftsmith.capture.dataset.tensors import build_header, view_tensors

# Written by us into every json member, so a stream of samples can be read without the manifest.
RESERVED_FIELDS = ("length", "num_supervised", "layer_ids", "codec")
STATES = ("hidden_states", "aux_hidden_states")


def pack_sample(
    sample: Sample, codec: Codec, layer_ids: Sequence[int], hidden_size: int
) -> tuple[bytes, dict[str, Tensor]]:
    """The json member's bytes and the safetensors member's tensors, contiguous on the CPU.

    Raises DatasetError that names the sample and the field.
    """
    aux_ids = aux_layer_ids(layer_ids)
    try:
        check_key(sample.key)
        check_sample(sample, hidden_size, len(aux_ids))
        taken = sorted(set(RESERVED_FIELDS) & sample.meta.keys())
        if taken:
            raise DatasetError(f"meta has {', '.join(taken)}, which the writer fills in itself")
        tensors = {"input_ids": sample.input_ids, "loss_mask": sample.loss_mask}
        tensors |= codec.encode("hidden_states", sample.hidden_states, layer_ids=[FINAL_NORM_ID])
        if sample.aux_hidden_states is not None:
            aux = sample.aux_hidden_states
            tensors |= codec.encode("aux_hidden_states", aux, layer_ids=aux_ids)
        meta = dict(sample.meta)
        meta["length"] = sample.input_ids.numel()
        meta["num_supervised"] = int(sample.loss_mask.sum())
        meta["layer_ids"], meta["codec"] = list(layer_ids), codec.name
        try:
            text = json.dumps(meta, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DatasetError(f"meta is not JSON: {error}") from error
        layout = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        check_member_size(f"{sample.key}.safetensors", build_header(layout)[2])
        check_member_size(f"{sample.key}.json", len(text))
    except DatasetError as error:
        raise DatasetError(f"sample {sample.key}: {error}") from error
    return text.encode(), {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def parse_meta(text: bytes | str | Mapping[str, Any]) -> tuple[dict[str, Any], Codec, list[int]]:
    """The json member's fields, and the codec and layer ids it names."""
    if isinstance(text, Mapping):
        meta: Any = dict(text)
    else:
        try:
            meta = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"its json does not parse: {error}") from error
    if not isinstance(meta, dict) or any(name not in meta for name in RESERVED_FIELDS):
        raise DatasetError(f"its json lacks one of {', '.join(RESERVED_FIELDS)}")
    ids = meta["layer_ids"]
    if not isinstance(ids, list) or not all(type(k) is int for k in ids):
        raise DatasetError(f"its json has layer_ids={ids!r}, accepted: a list of ids")
    aux_layer_ids(ids)
    return meta, get_codec(str(meta["codec"])), ids


def check_stored(
    tensors: Mapping[str, Tensor], codec: Codec, num_tokens: int, hidden_size: int, num_aux: int
) -> None:
    """Refuses stored tensors other than the codec's layout. Raises DatasetError that names one."""
    layout: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "input_ids": (torch.int32, (num_tokens,)),
        "loss_mask": (torch.uint8, (num_tokens,)),
    }
    layout |= codec.layout("hidden_states", num_tokens, hidden_size, 1)
    if num_aux:
        layout |= codec.layout("aux_hidden_states", num_tokens, hidden_size, num_aux)
    for name in sorted(layout.keys() | tensors.keys()):
        found = (tensors[name].dtype, tuple(tensors[name].shape)) if name in tensors else "absent"
        if found != layout.get(name, "absent"):
            raise DatasetError(f"tensor {name} is {found}, accepted: {layout.get(name, 'absent')}")


def decode_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """One sample of a plain stream with its tensors read and decoded.

    Works as `webdataset.WebDataset(urls).map(decode_sample)`, and on the rows of
    `datasets.load_dataset("webdataset", ...)`, where the json member arrives as a dict.
    Returns the sample with `json` as a dict and, instead of `safetensors`: input_ids [T] int32,
    loss_mask [T] uint8, hidden_states [T, H] and, if captured, aux_hidden_states [T, L*H].
    Raises DatasetError that names the sample.
    """
    key = str(sample.get("__key__"))
    try:
        check_key(key)
        for kind in ("json", "safetensors"):
            if sample.get(kind) is None:
                raise DatasetError(f"its .{kind} member is missing")
        meta, codec, layer_ids = parse_meta(sample["json"])
        # One copy: bytes are immutable, and tensors over immutable memory crash when written to.
        buffer = bytearray(sample["safetensors"])
        tensors = view_tensors(buffer, 0, len(buffer))
        hidden = tensors.get("hidden_states")
        hidden_size = hidden.shape[-1] if hidden is not None and hidden.dim() == 2 else 0
        num_aux = len(aux_layer_ids(layer_ids))
        check_stored(tensors, codec, meta["length"], hidden_size, num_aux)
        decoded: dict[str, Any] = {k: v for k, v in sample.items() if k != "safetensors"}
        decoded["json"] = meta
        for name in tensors:
            if name in STATES:
                decoded[name] = codec.decode(name, tensors)
            elif not name.endswith(SCALE_SUFFIX):
                decoded[name] = tensors[name]
    except DatasetError as error:
        raise DatasetError(f"{sample.get('__url__', 'stream')}: sample {key}: {error}") from error
    return decoded
