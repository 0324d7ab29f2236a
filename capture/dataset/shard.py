"""A shard under construction: a hidden file that becomes a shard by being renamed."""

import hashlib
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from draftsmith.capture.dataset.archive import END_MARK, build_member_header, padding_bytes
from draftsmith.capture.dataset.durable import explain_write_failure, fsync_directory
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.rows import Row
from draftsmith.capture.dataset.tensors import member_pieces


class OpenShard:
    """Appends samples to the file `temporary`, hashing on the way. Owns the file until published.

    After an error in the middle of a sample its bytes are of no use: the owner must `discard` it.
    """

    def __init__(self, temporary: Path) -> None:
        self.path = temporary
        self.rows: list[Row] = []
        self._hash = hashlib.sha256()
        self._size = 0
        try:
            self._file = temporary.open("wb", buffering=1 << 20)
        except OSError as error:
            raise explain_write_failure(error, temporary) from error

    def append(
        self, key: str, meta: bytes, tensors: Mapping[str, Tensor], length: int, num_supervised: int
    ) -> None:
        """Writes one sample's two members; tensors contiguous on the CPU."""
        size, pieces = member_pieces(tensors)
        meta_header = build_member_header(f"{key}.json", len(meta))
        states_header = build_member_header(f"{key}.safetensors", size)
        try:
            self._write(meta_header)
            json_offset = self._size
            self._write(meta)
            crc = zlib.crc32(meta)
            self._write(bytes(padding_bytes(len(meta))))
            self._write(states_header)
            safetensors_offset = self._size
            for piece in pieces:
                self._write(piece)
                crc = zlib.crc32(piece, crc)
            self._write(bytes(padding_bytes(size)))
        except OSError as error:
            raise explain_write_failure(error, self.path) from error
        place = (json_offset, len(meta), safetensors_offset, size)
        self.rows.append(Row(key, length, num_supervised, *place, crc))

    def publish(self, path: Path) -> tuple[str, int]:
        """Renames the finished file to `path`. Returns its sha256 and its size in bytes."""
        if path.exists():
            raise DatasetError(
                f"{path}: exists already and is not listed in index.json; move it away"
            )
        try:
            self._write(END_MARK)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.path.rename(path)
            fsync_directory(path.parent)
        except OSError as error:
            raise explain_write_failure(error, path) from error
        return self._hash.hexdigest(), self._size

    def discard(self) -> None:
        """Closes and removes the unfinished file."""
        # Closing flushes, which fails again on a full disk; the descriptor is released anyway.
        with suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)
