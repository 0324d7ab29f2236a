"""index.json: the list of finished shards."""

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from draftsmith.capture.dataset.durable import lock_file, temporary_path, write_atomically
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.capture.dataset.manifest import describe_validation, read_json_object
from draftsmith.configs.base import Config

INDEX_NAME = "index.json"
INDEX_LOCK_NAME = ".index.lock"
_SHARD_NAME = re.compile(r"(?P<prefix>[A-Za-z0-9_-]+)-r(?P<rank>\d{3,})-(?P<iteration>\d{6,})\.tar")


class ShardEntry(Config):
    """One finished shard."""

    url: str
    """File name inside the dataset's folder."""
    nsamples: int = Field(ge=1)
    """Samples in it."""
    filesize: int = Field(ge=1)
    """Bytes."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the whole file."""
    first_key: str
    """Key of its first sample."""
    last_key: str
    """Key of its last sample."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        # An index is input like any other: it must not send a reader to another folder or machine.
        if not _SHARD_NAME.fullmatch(url):
            raise ValueError("accepted: a file name <prefix>-r<rank>-<iteration>.tar")
        return url


class Index(Config):
    """The shard list, in the form the `wids` package opens."""

    wids_version: Literal[1] = 1
    """Version of the form."""
    name: str
    """Name of the dataset; its shards' prefix."""
    shardlist: list[ShardEntry] = Field(default_factory=list)
    """Finished shards by prefix, rank and iteration."""


def shard_name(prefix: str, rank: int, iteration: int) -> str:
    """File name of the shard that ends with this rank's `iteration`-th sample."""
    return f"{prefix}-r{rank:03d}-{iteration:06d}.tar"


def parse_shard_name(name: str) -> tuple[str, int, int] | None:
    """Prefix, rank and iteration; None when `name` is not a shard's. Sorts shards as numbers."""
    match = _SHARD_NAME.fullmatch(name)
    return (match["prefix"], int(match["rank"]), int(match["iteration"])) if match else None


def read_index(directory: Path) -> Index | None:
    """Reads index.json; None when there is none. Raises DatasetError that names file and field."""
    path = directory / INDEX_NAME
    if not path.exists():
        return None
    raw = read_json_object(path)
    try:
        return Index.model_validate(raw)
    except ValidationError as error:
        raise DatasetError(f"{path}: {describe_validation(error)}") from error


def add_shard(directory: Path, entry: ShardEntry, name: str) -> None:
    """Adds a finished shard to index.json; safe while other ranks do the same."""
    with lock_file(directory / INDEX_LOCK_NAME, wait=True):
        index = read_index(directory) or Index(name=name)
        kept = [other for other in index.shardlist if other.url != entry.url]
        shards = sorted([*kept, entry], key=lambda shard: parse_shard_name(shard.url) or ("", 0, 0))
        updated = index.model_copy(update={"shardlist": shards})
        text = json.dumps(updated.model_dump(mode="json"), indent=1) + "\n"
        write_atomically(directory / INDEX_NAME, text.encode())


def discard_half_written_index(directory: Path) -> None:
    """Removes what a crash in the middle of `add_shard` left; the index itself was not touched."""
    temporary = temporary_path(directory / INDEX_NAME)
    if temporary.exists():
        with lock_file(directory / INDEX_LOCK_NAME, wait=True):
            temporary.unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
