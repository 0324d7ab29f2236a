"""How many bytes a capture will take, known before it starts."""

import json
from collections import Counter
from collections.abc import Iterable

import torch

from draftsmith.capture.dataset.archive import BLOCK_BYTES, END_MARK, padding_bytes
from draftsmith.capture.dataset.codec import get_codec
from draftsmith.capture.dataset.rows import Row, rows_to_bytes
from draftsmith.capture.dataset.tensors import Layout, build_header


def sample_bytes(
    num_tokens: int, hidden_size: int, num_layers: int, codec: str, meta_bytes: int = 400
) -> int:
    """Bytes of one sample inside a shard: both members, their headers and their padding.

    num_layers: layers of aux_hidden_states (hidden_states comes on top); 0 when there is none
    meta_bytes: expected size of the json member
    """
    chosen = get_codec(codec)
    layout: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "input_ids": (torch.int32, (num_tokens,)),
        "loss_mask": (torch.uint8, (num_tokens,)),
    }
    layout |= chosen.layout("hidden_states", num_tokens, hidden_size, 1)
    if num_layers:
        layout |= chosen.layout("aux_hidden_states", num_tokens, hidden_size, num_layers)
    return 2 * BLOCK_BYTES + sum(
        size + padding_bytes(size) for size in (meta_bytes, _member_bytes(layout))
    )


def estimate_bytes(
    lengths: Iterable[int],
    hidden_size: int,
    num_layers: int,
    codec: str = "bf16",
    write_interval: int = 20,
    meta_bytes: int = 400,
) -> int:
    """Bytes on disk of a dataset of samples with these `lengths`: shards and their indexes.

    num_layers: layers of aux_hidden_states (hidden_states comes on top); 0 when there is none
    meta_bytes: expected size of a json member; the only thing here that is not exact
    """
    counts = Counter(lengths)
    samples = sum(
        count * sample_bytes(length, hidden_size, num_layers, codec, meta_bytes)
        for length, count in counts.items()
    )
    full_shards, tail = divmod(counts.total(), write_interval)
    total = samples + full_shards * _shard_overhead(write_interval)
    return total + (_shard_overhead(tail) if tail else 0)


def _member_bytes(layout: Layout) -> int:
    return build_header(layout)[2]


def _shard_overhead(num_samples: int) -> int:
    """End mark, rows file, and the entry in index.json."""
    row = Row("0" * 32, 1, 1, 0, 0, 0, 0, 0)
    entry = json.dumps({"url": "data-r000-000020.tar", "sha256": "0" * 64, "keys": "0" * 64})
    return len(END_MARK) + len(rows_to_bytes([row] * num_samples)) + len(entry) + 120
