"""Files that are either whole or absent: temporary name, fsync, rename, fsync of the folder."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from draftsmith.capture.dataset.errors import DatasetError


def temporary_path(path: Path) -> Path:
    """The hidden name under which `path` is written before it is renamed."""
    return path.with_name(f".{path.name}.tmp")


def fsync_directory(directory: Path) -> None:
    """Makes renames inside `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces `path` by `data`; a reader sees the old file or the new one, never a part."""
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise explain_write_failure(error, path) from error
    fsync_directory(path.parent)


def explain_write_failure(error: OSError, path: Path) -> OSError:
    """The same error, with the file that could not be written and the space that is left."""
    if error.filename == str(path):
        return error
    try:
        free = f"{shutil.disk_usage(path.parent).free / 1e6:.1f} MB"
    except OSError:
        free = "an unknown amount of space"
    reason = error.strerror or str(error)
    return OSError(
        error.errno,
        f"cannot write: {reason}; {free} free on its disk. What was finished before is intact; "
        "free some space (or raise the quota) and run the same command again",
        str(path),
    )


@contextmanager
def lock_file(path: Path, *, wait: bool, busy: str = "") -> Iterator[None]:
    """Holds an exclusive lock on `path`; without `wait`, a held lock is an error saying `busy`.

    The lock belongs to the open file: the kernel drops it when the process dies, however it dies.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise DatasetError(busy) from error
        yield
    finally:
        os.close(descriptor)
