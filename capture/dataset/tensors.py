"""The safetensors layout: written byte for byte the same each time, parsed without trust or copies.

The library's own writer orders metadata at random and joins all tensors in memory first; ours gives
a fixed order and hands out the pieces, so a shard can be hashed while it is written.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from draftsmith.capture.dataset.errors import DatasetError

DTYPES = {
    "I32": torch.int32,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Ours take less than 1 kB; a larger header is a hostile or a broken file.
MAX_HEADER_BYTES = 1 << 20

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def build_header(layout: Layout) -> tuple[bytes, list[str], int]:
    """A member's length prefix and JSON header, its tensors' order and its total size in bytes.

    Widest dtype first, so that every tensor starts at a multiple of its own width.
    """
    order = sorted(layout, key=lambda name: (-layout[name][0].itemsize, name))
    entries: dict[str, Any] = {}
    position = 0
    for name in order:
        dtype, shape = layout[name]
        end = position + math.prod(shape) * dtype.itemsize
        entries[name] = {
            "dtype": DTYPE_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order, 8 + len(text) + position


def member_pieces(tensors: Mapping[str, Tensor]) -> tuple[int, Iterator[memoryview]]:
    """A member's size and its bytes piece by piece; the tensors' own memory, not a copy of it.

    tensors: contiguous, on the CPU
    """
    layout = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    header, order, size = build_header(layout)

    def pieces() -> Iterator[memoryview]:
        yield memoryview(header)
        for name in order:
            yield tensors[name].reshape(-1).view(torch.uint8).numpy().data

    return size, pieces()


def view_tensors(buffer: Any, offset: int, size: int) -> dict[str, Tensor]:
    """The tensors of the member at `buffer[offset : offset + size]`, sharing the buffer's memory.

    buffer: a writable buffer of bytes (bytearray, or a private mapping)
    Raises DatasetError for a header that is oversized, unparsable, or does not describe exactly the
    bytes there are.
    """
    header_bytes = int.from_bytes(bytes(buffer[offset : offset + 8]), "little") if size >= 8 else 0
    limit = min(size - 8, MAX_HEADER_BYTES)
    if size < 8 or not 0 < header_bytes <= limit:
        raise DatasetError(
            f"its safetensors header claims {header_bytes} bytes, accepted: 1 to {max(limit, 0)}"
        )
    data = offset + 8 + header_bytes
    try:
        header = json.loads(bytes(buffer[offset + 8 : data]))
        if not isinstance(header, dict):
            raise ValueError("not a JSON object")
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"its safetensors header does not parse: {error}") from error
    header.pop("__metadata__", None)
    tensors: dict[str, Tensor] = {}
    expected_start = 0
    for name, entry in sorted(header.items(), key=_start_of):
        dtype, shape, start, end = _check_entry(name, entry)
        if start != expected_start or end > size - 8 - header_bytes:
            raise DatasetError(
                f"its safetensors header puts {name!r} at bytes {start} to {end}, accepted: "
                f"{expected_start} to at most {size - 8 - header_bytes}, without gaps"
            )
        expected_start = end
        if (data + start) % dtype.itemsize:
            raise DatasetError(f"tensor {name!r} does not start at a multiple of its width")
        count = math.prod(shape)
        flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=data + start)
        tensors[name] = flat.view(shape)
    if expected_start != size - 8 - header_bytes:
        raise DatasetError(
            f"its tensors take {expected_start} bytes, but {size - 8 - header_bytes} are there"
        )
    return tensors


def _start_of(item: tuple[str, Any]) -> tuple[int, int]:
    try:
        start, end = item[1]["data_offsets"]
    except (TypeError, KeyError, ValueError):
        start, end = None, None
    if type(start) is not int or type(end) is not int:
        raise DatasetError(f"its safetensors header has no data_offsets for {item[0]!r}")
    return start, end


def _check_entry(name: str, entry: Any) -> tuple[torch.dtype, list[int], int, int]:
    dtype, shape = DTYPES.get(str(entry.get("dtype"))), entry.get("shape")
    if dtype is None:
        raise DatasetError(
            f"tensor {name!r} has dtype {entry.get('dtype')!r}, accepted: {', '.join(DTYPES)}"
        )
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        raise DatasetError(f"tensor {name!r} has shape {shape!r}, accepted: a list of counts")
    start, end = entry["data_offsets"]
    if (
        type(start) is not int
        or type(end) is not int
        or end - start != (math.prod(shape) * dtype.itemsize)
    ):
        raise DatasetError(
            f"tensor {name!r} of shape {shape} lies at bytes {start} to {end}: not its size"
        )
    return dtype, shape, start, end
