"""Writing a dataset shard by shard, so that whatever is interrupted can be continued."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from draftsmith.capture.dataset.codec import get_codec
from draftsmith.capture.dataset.durable import lock_file
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.index import (
    ShardEntry,
    add_shard,
    discard_half_written_index,
    hash_file,
    parse_shard_name,
    read_index,
    shard_name,
)
from draftsmith.capture.dataset.manifest import MANIFEST_NAME, Manifest, aux_layer_ids
from draftsmith.capture.dataset.members import pack_sample
from draftsmith.capture.dataset.rows import check_shard_size, index_shard, read_rows, write_rows
from draftsmith.capture.dataset.sample import Sample
from draftsmith.capture.dataset.shard import OpenShard


class ShardWriter:
    """Streams one rank's samples into `<file_prefix>-r<rank>-<iteration>.tar` files in `directory`.

    A shard holds `write_interval` samples; `<iteration>` counts this rank's samples to its end.
    Opened on a folder with shards in it, the writer continues after them: `written_keys` says which
    samples need not come again. What it removes there are its own unfinished files, nothing else.
    As a context manager it writes the tail at the end, and on an exception drops the unfinished
    shard and keeps the finished ones, so a second run writes the same bytes as an undisturbed one.
    """

    def __init__(
        self,
        directory: str | Path,
        rank: int = 0,
        file_prefix: str = "data",
        write_interval: int = 20,
        codec: str = "bf16",
        *,
        layer_ids: Sequence[int],
        hidden_size: int,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", file_prefix):
            raise DatasetError(
                f"file_prefix={file_prefix!r} is refused, "
                "accepted: up to 64 letters, digits, '_' or '-', not '-' or '_' first"
            )
        least_values = {
            "rank": (rank, 0),
            "write_interval": (write_interval, 1),
            "hidden_size": (hidden_size, 1),
        }
        for name, (value, least) in least_values.items():
            if value < least:
                raise DatasetError(f"{name}={value} is refused, accepted: {least} or more")
        self.directory = Path(directory)
        self.rank, self.file_prefix, self.write_interval = rank, file_prefix, write_interval
        self.codec, self.layer_ids, self.hidden_size = (
            get_codec(codec),
            list(layer_ids),
            hidden_size,
        )
        aux_layer_ids(layer_ids)
        self.written_keys: set[str] = set()
        self._pending_keys: set[str] = set()
        self._iteration = 0
        self._shard: OpenShard | None = None
        self._closed = False
        self._stem = f"{file_prefix}-r{rank:03d}"
        self._lock_path = self.directory / f".{self._stem}.lock"
        self._resources = ExitStack()
        self.directory.mkdir(parents=True, exist_ok=True)
        busy = f"{self.directory}: another writer of {self._stem} is at work there; wait for it"
        self._resources.enter_context(lock_file(self._lock_path, wait=False, busy=busy))
        try:
            self._resume()
        except BaseException:
            self._release()
            raise

    def write(self, sample: Sample) -> None:
        """Appends one sample; every `write_interval`-th finishes a shard.

        A sample refused for what it holds (DatasetError) leaves the writer as it was. After any
        other error the unfinished shard is gone and the writer is closed.
        """
        if self._closed:
            raise DatasetError(f"{self.directory}: the writer of {self._stem} is closed")
        if sample.key in self.written_keys or sample.key in self._pending_keys:
            raise DatasetError(f"sample {sample.key} is written already; keys must be unique")
        meta, tensors = pack_sample(sample, self.codec, self.layer_ids, self.hidden_size)
        try:
            if self._shard is None:
                self._shard = OpenShard(self.directory / f".{self._stem}.tar.tmp")
            length, num_supervised = sample.input_ids.numel(), int(sample.loss_mask.sum())
            self._shard.append(sample.key, meta, tensors, length, num_supervised)
            self._pending_keys.add(sample.key)
            if len(self._shard.rows) == self.write_interval:
                self._finish_shard()
        except BaseException:
            # Half a sample may be in the file: not even an interrupt may let the tail be kept.
            self.abort()
            raise

    def close(self) -> None:
        """Writes the samples that do not fill a shard, and lets the folder go. Twice is once."""
        if self._closed:
            return
        try:
            if self._shard is not None and self._shard.rows:
                self._finish_shard()
        finally:
            self.abort()

    def abort(self) -> None:
        """Drops the unfinished shard and lets the folder go; finished shards stay."""
        if self._closed:
            return
        if self._shard is not None:
            self._shard.discard()
            self._shard = None
        self._pending_keys.clear()
        self._closed = True
        self._release()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _finish_shard(self) -> None:
        """Shard first, its rows next, the list last: what the list names is complete."""
        assert self._shard is not None
        shard = self._shard
        self._iteration += len(shard.rows)
        path = self.directory / shard_name(self.file_prefix, self.rank, self._iteration)
        sha256, filesize = shard.publish(path)
        self._shard = None
        write_rows(path, shard.rows)
        keys = [row.key for row in shard.rows]
        entry = ShardEntry(
            url=path.name, nsamples=len(keys), filesize=filesize, sha256=sha256,
            first_key=keys[0], last_key=keys[-1],
        )  # fmt: skip
        add_shard(self.directory, entry, self.file_prefix)
        self.written_keys.update(keys)
        self._pending_keys.clear()

    def _resume(self) -> None:
        """Takes stock of the folder as it lies on the disk."""
        self._refuse_other_settings()
        leftover = re.compile(rf"\.{re.escape(self._stem)}(\.tar|-\d{{6,}}\.index\.parquet)\.tmp")
        for path in self.directory.iterdir():
            if leftover.fullmatch(path.name):
                path.unlink()
        discard_half_written_index(self.directory)
        self._adopt_unlisted()
        index = read_index(self.directory)
        for entry in index.shardlist if index else []:
            check_shard_size(self.directory, entry)
            self.written_keys.update(row.key for row in read_rows(self.directory, entry))
            prefix, rank, iteration = parse_shard_name(entry.url) or ("", 0, 0)
            if (prefix, rank) == (self.file_prefix, self.rank):
                self._iteration = max(self._iteration, iteration)

    def _adopt_unlisted(self) -> None:
        """Lists shards that a crash left between their renaming and their listing."""
        index = read_index(self.directory)
        listed = {entry.url for entry in index.shardlist} if index else set()
        for path in sorted(self.directory.glob(f"{self._stem}-*.tar")):
            name = parse_shard_name(path.name)
            if path.name in listed or not name or name[:2] != (self.file_prefix, self.rank):
                continue
            rows = index_shard(path)
            write_rows(path, rows)
            entry = ShardEntry(
                url=path.name, nsamples=len(rows), filesize=path.stat().st_size,
                sha256=hash_file(path), first_key=rows[0].key, last_key=rows[-1].key,
            )  # fmt: skip
            add_shard(self.directory, entry, self.file_prefix)

    def _refuse_other_settings(self) -> None:
        if not (self.directory / MANIFEST_NAME).exists():
            return
        manifest = Manifest.read(self.directory)
        for name, there, here in (
            ("codec", manifest.codec, self.codec.name),
            ("layer_ids", manifest.layer_ids, self.layer_ids),
            ("hidden_size", manifest.hidden_size, self.hidden_size),
        ):
            if there != here:
                raise DatasetError(
                    f"{self.directory / MANIFEST_NAME}: was begun with {name}={there}, "
                    f"now {name}={here}; continue with the former or choose another folder"
                )

    def _release(self) -> None:
        # Removed while the lock is held, so the file cannot be another writer's.
        self._lock_path.unlink(missing_ok=True)
        self._resources.close()
