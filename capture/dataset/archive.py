"""The tar layout of a shard: ustar without clocks or users: equal samples give equal bytes."""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from draftsmith.capture.dataset.errors import DatasetError

BLOCK_BYTES = 512
END_MARK = bytes(2 * BLOCK_BYTES)
# What the size field of a ustar header can express.
MAX_MEMBER_BYTES = 8**11 - 1
# WebDataset ends a key at the first dot, and a ustar name holds 100 bytes.
_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_MEMBER = re.compile(r"([A-Za-z0-9_-]{1,80})\.(json|safetensors)")


@dataclass(frozen=True)
class Member:
    """Where one file lies inside a shard: `offset` of its first byte and `size`, in bytes."""

    key: str
    kind: str
    offset: int
    size: int


def check_key(key: str) -> None:
    """Refuses a key that cannot name a member."""
    if not _KEY.fullmatch(key):
        raise DatasetError(f"key {key!r} is not 1 to 80 letters, digits, '_' or '-'")


def padding_bytes(size: int) -> int:
    """How many zero bytes follow a member of `size` bytes."""
    return -size % BLOCK_BYTES


def check_member_size(name: str, size: int) -> None:
    """Refuses a member whose size a ustar header cannot express."""
    if size > MAX_MEMBER_BYTES:
        raise DatasetError(
            f"member {name!r} takes {size} bytes, accepted: up to {MAX_MEMBER_BYTES}; "
            "lower max_length, capture fewer layers or choose a smaller codec"
        )


def build_member_header(name: str, size: int) -> bytes:
    """The 512 bytes before a member whose size was checked."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, 0, 0o644
    return info.tobuf(tarfile.USTAR_FORMAT)


def parse_member_header(block: bytes) -> tuple[str, str, int]:
    """Key, kind (`json` or `safetensors`) and size of the member that `block` announces.

    Raises DatasetError, with the member's name, for links, folders, devices and any other name.
    """
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise DatasetError(f"its tar header is damaged ({error})") from error
    match = _MEMBER.fullmatch(info.name)
    if not match or info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise DatasetError(
            f"member {info.name!r} (tar type {info.type.decode('latin-1')!r}) is refused, "
            "accepted: regular files named <key>.json or <key>.safetensors"
        )
    if info.size < 0:
        raise DatasetError(f"member {info.name!r} claims {info.size} bytes")
    return match[1], match[2], info.size


def walk_members(path: Path) -> Iterator[Member]:
    """Every member of the shard at `path`, in order, from its headers alone.

    Raises DatasetError that names the file and the last whole sample when the shard is cut, or
    holds anything a shard may not hold.
    """
    file_bytes = path.stat().st_size
    position, last_key = 0, None
    with path.open("rb") as file:
        while True:
            block = _read_block(file, position)
            if block == bytes(BLOCK_BYTES):
                break
            where = f"{path}: after sample {last_key}" if last_key else f"{path}: at its start"
            if len(block) < BLOCK_BYTES:
                raise DatasetError(
                    f"{where}: the file ends at byte {file_bytes} without an end mark"
                )
            try:
                key, kind, size = parse_member_header(block)
            except DatasetError as error:
                raise DatasetError(f"{where}: {error}") from error
            offset = position + BLOCK_BYTES
            if offset + size + padding_bytes(size) > file_bytes:
                raise DatasetError(
                    f"{path}: sample {key}: member {key}.{kind} claims {size} bytes "
                    f"from byte {offset}, but the file has {file_bytes}"
                )
            yield Member(key, kind, offset, size)
            position, last_key = offset + size + padding_bytes(size), key


def _read_block(file: BinaryIO, position: int) -> bytes:
    file.seek(position)
    return file.read(BLOCK_BYTES)
