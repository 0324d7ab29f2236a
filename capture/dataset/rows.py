"""Where each sample of a shard lies: a parquet file beside the shard, or the shard read again."""

import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftsmith.capture.dataset.archive import walk_members
from draftsmith.capture.dataset.durable import write_atomically
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.index import ShardEntry, read_index

_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Row:
    """One sample of a shard: its tokens, and its members' place in bytes from the file's start."""

    key: str
    length: int
    num_supervised: int
    json_offset: int
    json_size: int
    safetensors_offset: int
    safetensors_size: int
    crc32: int
    """Of the json member, continued over the safetensors member: tells which sample is damaged."""


ROW_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("length", pa.int32()),
        ("num_supervised", pa.int32()),
        ("json_offset", pa.int64()),
        ("json_size", pa.int64()),
        ("safetensors_offset", pa.int64()),
        ("safetensors_size", pa.int64()),
        ("crc32", pa.uint32()),
    ]
)


def rows_path(shard: Path) -> Path:
    """Where the rows of `shard` are listed."""
    return shard.with_name(shard.name.removesuffix(".tar") + ".index.parquet")


def write_rows(shard: Path, rows: Iterable[Row]) -> None:
    """Writes the rows of `shard` beside it, whole or not at all."""
    write_atomically(rows_path(shard), rows_to_bytes(rows))


def rows_to_bytes(rows: Iterable[Row]) -> bytes:
    """The parquet file of `rows`, uncompressed and without statistics: its size can be foretold."""
    columns = list(rows)
    table = pa.table(
        {f.name: [getattr(row, f.name) for row in columns] for f in fields(Row)}, schema=ROW_SCHEMA
    )
    buffer = io.BytesIO()
    pq.write_table(
        table,
        buffer,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    return buffer.getvalue()


def read_rows(directory: Path, entry: ShardEntry) -> list[Row]:
    """The rows of a listed shard, checked against it.

    Raises DatasetError that names the file when it is missing, has other columns, or puts a sample
    outside its shard.
    """
    path = rows_path(directory / entry.url)
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes())).cast(ROW_SCHEMA)
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such file, but index.json lists {entry.url}") from error
    except (pa.ArrowException, ValueError) as error:
        raise DatasetError(
            f"{path}: not an index of samples with columns {', '.join(ROW_SCHEMA.names)}: {error}"
        ) from error
    rows = [Row(**values) for values in table.to_pylist()]
    if len(rows) != entry.nsamples:
        raise DatasetError(f"{path}: lists {len(rows)} samples, index.json {entry.nsamples}")
    if (rows[0].key, rows[-1].key) != (entry.first_key, entry.last_key):
        raise DatasetError(
            f"{path}: runs from sample {rows[0].key} to {rows[-1].key}, index.json says "
            f"{entry.first_key} to {entry.last_key}"
        )
    for row in rows:
        for kind, offset, size in (
            ("json", row.json_offset, row.json_size),
            ("safetensors", row.safetensors_offset, row.safetensors_size),
        ):
            if offset < 512 or size < 0 or offset + size > entry.filesize:
                raise DatasetError(
                    f"{path}: sample {row.key}: puts its {kind} at byte {offset}, size {size}, "
                    f"outside {entry.url} ({entry.filesize} bytes)"
                )
    return rows


def index_shard(shard: Path) -> list[Row]:
    """The rows of a shard found again from its bytes alone.

    Raises DatasetError that names file and sample for anything a writer of ours cannot have made.
    """
    members = list(walk_members(shard))
    rows: list[Row] = []
    with shard.open("rb") as file:

        def read_crc(offset: int, size: int, crc: int) -> int:
            file.seek(offset)
            while size:
                chunk = file.read(min(size, _CHUNK_BYTES))
                crc, size = zlib.crc32(chunk, crc), size - len(chunk)
            return crc

        for meta, states in zip(members[::2], members[1::2], strict=False):
            if (meta.key, meta.kind, states.kind) != (states.key, "json", "safetensors"):
                raise DatasetError(
                    f"{shard}: sample {meta.key}: its members are {meta.key}.{meta.kind}, "
                    f"{states.key}.{states.kind}, accepted: one .json, then one .safetensors"
                )
            file.seek(meta.offset)
            length, num_supervised = _read_lengths(shard, meta.key, file.read(meta.size))
            crc = read_crc(states.offset, states.size, read_crc(meta.offset, meta.size, 0))
            place = (meta.offset, meta.size, states.offset, states.size)
            rows.append(Row(meta.key, length, num_supervised, *place, crc))
    if len(members) % 2 or not rows:
        raise DatasetError(f"{shard}: holds {len(members)} members, accepted: pairs, at least one")
    return rows


def _read_lengths(shard: Path, key: str, text: bytes) -> tuple[int, int]:
    try:
        meta: Any = json.loads(text)
        return int(meta["length"]), int(meta["num_supervised"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{shard}: sample {key}: its json does not give length and num_supervised"
        ) from error


def check_shard_size(directory: Path, entry: ShardEntry) -> None:
    """Refuses a listed shard that is missing or cut, by a DatasetError naming file and sample."""
    path = directory / entry.url
    if not path.exists():
        raise DatasetError(
            f"{path}: no such file, but index.json lists it with samples {entry.first_key} to "
            f"{entry.last_key}"
        )
    size = path.stat().st_size
    if size == entry.filesize:
        return
    cut = [
        row.key
        for row in read_rows(directory, entry)
        if row.safetensors_offset + row.safetensors_size > size
    ]
    harm = (
        f"the first sample not whole is {cut[0]}"
        if cut
        else f"damage begins after {entry.last_key}"
    )
    raise DatasetError(f"{path}: has {size} bytes, index.json lists {entry.filesize}: {harm}")


def count_samples(directory: str | Path) -> tuple[int, int, int]:
    """Samples, tokens and supervised tokens of all finished shards of all ranks, from the disk."""
    index = read_index(Path(directory))
    rows = [
        row
        for entry in (index.shardlist if index else [])
        for row in read_rows(Path(directory), entry)
    ]
    return len(rows), sum(row.length for row in rows), sum(row.num_supervised for row in rows)
