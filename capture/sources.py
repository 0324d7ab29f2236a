"""Raw rows of an input, before anything is made of what they hold.

A source is a .jsonl, .json or .parquet file, a folder of such files, a folder written by
`save_to_disk`, or a dataset on the Hugging Face hub. Files are read as a stream, in the order of
their names. A row that cannot be read is handed on with its fault, and reading goes on after it.
"""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from draftsmith.configs.base import ConfigError

ACCEPTED = (
    "a .jsonl, .json or .parquet file, a folder of such files, a folder written by save_to_disk, "
    "or a Hugging Face dataset as owner/name, owner/name:split or owner/name/subset:split"
)
SUFFIXES = (".jsonl", ".json", ".parquet")
HUB_DATASET = re.compile(
    r"(?P<id>\w[\w.-]*/\w[\w.-]*)(?:/(?P<subset>[\w.-]+))?(?::(?P<split>\w+))?"
)
NOTES = (".md", ".gitattributes")
PARQUET_ROWS = 256  # rows decoded at a time


@dataclass(frozen=True, slots=True)
class Record:
    """One row as it was read: its value, or the fault (slug, explanation) in place of it."""

    source: str
    """Name of the file inside the input, or of the dataset: the same on every machine."""
    number: int
    """Line of a .jsonl file, else row, from 1."""
    place: str
    """The same for people: `path:number`."""
    value: Any = None
    fault: tuple[str, str] | None = None


def read_records(path: str) -> Iterator[Record]:
    """Every row under `path` (a setting: `input.path`), in a fixed order.

    Raises ConfigError when there is nothing there, or a file of a kind that is not accepted.
    """
    location = Path(path).expanduser()
    if location.is_file():
        return _read_file(location, location.name)
    if location.is_dir():
        return _read_folder(location)
    hub = HUB_DATASET.fullmatch(path)
    if hub is not None and not path.endswith(SUFFIXES):
        return _read_hub(path, hub["id"], hub["subset"], hub["split"])
    raise ConfigError(f"input.path={path!r}: there is no such file or folder; accepted: {ACCEPTED}")


def _read_file(path: Path, source: str) -> Iterator[Record]:
    match path.suffix.lower():
        case ".jsonl":
            return _read_jsonl(path, source)
        case ".json":
            return _read_json(path, source)
        case ".parquet":
            return _read_parquet(path, source)
    raise ConfigError(
        f"input.path: {str(path)!r} is a file of an unknown kind "
        f"({path.suffix or 'no extension'}); accepted: {ACCEPTED}"
    )


def _read_folder(folder: Path) -> Iterator[Record]:
    if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
        return _read_saved(folder)
    names = sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        and file.suffix.lower() not in NOTES
    )
    unknown = [name for name in names if Path(name).suffix.lower() not in SUFFIXES]
    if unknown or not names:
        what = f"holds {unknown[0]!r}, which is of an unknown kind" if unknown else "holds no rows"
        raise ConfigError(f"input.path: the folder {str(folder)!r} {what}; accepted: {ACCEPTED}")
    return (record for name in names for record in _read_file(folder / name, name))


def _read_jsonl(path: Path, source: str) -> Iterator[Record]:
    # Binary: only "\n" ends a line. Text mode would also cut at a lone "\r" and shift every number.
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            line = line.strip()
            if line:
                yield _parse_line(line, Record(source, number, f"{path}:{number}"))


def _parse_line(line: bytes, at: Record) -> Record:
    try:
        return Record(at.source, at.number, at.place, json.loads(line.decode("utf-8")))
    except UnicodeDecodeError as error:
        fault = "not_utf8", f"{at.place}: not UTF-8 text ({error.reason} at byte {error.start})"
    except (ValueError, RecursionError) as error:
        fault = "not_json", f"{at.place}: not JSON ({error}): {line[:40]!r}"
    return Record(at.source, at.number, at.place, fault=fault)


def _read_json(path: Path, source: str) -> Iterator[Record]:
    try:
        rows = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"input.path: {str(path)!r} is not one JSON document ({error}); accepted: a list of "
            "rows, or one row a line in a file named .jsonl"
        ) from error
    if not isinstance(rows, list):
        raise ConfigError(
            f"input.path: {str(path)!r} holds {type(rows).__name__}; accepted: a list of rows"
        )
    return _number(rows, source, str(path))


def _read_parquet(path: Path, source: str) -> Iterator[Record]:
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                for index in range(batch.num_rows):
                    number += 1
                    place = f"{path}:{number}"
                    try:
                        yield Record(source, number, place, batch.slice(index, 1).to_pylist()[0])
                    except UnicodeDecodeError as error:
                        fault = "not_utf8", f"{place}: not UTF-8 text ({error.reason})"
                        yield Record(source, number, place, fault=fault)
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(
            f"input.path: {str(path)!r} is not a readable Parquet file after row {number} ({error})"
        ) from error


def _read_saved(folder: Path) -> Iterator[Record]:
    import datasets  # heavy, and most inputs are plain files

    saved = datasets.load_from_disk(str(folder))
    if isinstance(saved, datasets.DatasetDict):
        raise ConfigError(
            f"input.path={str(folder)!r} holds several splits; accepted: the folder of one of "
            + ", ".join(str(folder / name) for name in saved)
        )
    return _number(saved, folder.name, str(folder))


def _read_hub(path: str, name: str, subset: str | None, split: str | None) -> Iterator[Record]:
    import datasets

    try:
        found = datasets.load_dataset(name, subset, split=split, streaming=True)
    except (ValueError, OSError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"input.path={path!r}: no such file or folder here, and as a Hugging Face dataset it "
            f"cannot be read ({error}); accepted: {ACCEPTED}"
        ) from error
    if split is None:
        if len(found) > 1:
            raise ConfigError(
                f"input.path={path!r} has several splits; accepted: one of "
                + ", ".join(f"{path}:{name}" for name in found)
            )
        found = next(iter(found.values()))
    return _number(found, path, path)


def _number(rows: Any, source: str, place: str) -> Iterator[Record]:
    for number, row in enumerate(rows, start=1):
        yield Record(source, number, f"{place}:{number}", row)
