"""manifest.json: what a dataset holds, and by which conventions it must be read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from draftsmith.capture.dataset.codec import get_codec
from draftsmith.capture.dataset.durable import write_atomically
from draftsmith.capture.dataset.errors import DatasetError
from draftsmith.configs.base import Config

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1
FINAL_NORM_ID = -1

# Stored in every dataset and compared on reading: a dataset made by another convention trains a
# drafter that looks healthy and is never accepted.
CONVENTIONS = {
    "layer_ids": "k >= 0: residual stream after decoder block k, counted from 0; -1: final hidden "
    "state after the final norm",
    "hidden_states": "layer -1: lm_head(hidden_states) == logits",
    "aux_hidden_states": "the layers of layer_ids, in that order, concatenated on the last axis; "
    "absent when layer_ids is [-1]",
    "rows": "row t of every per-token tensor belongs to input_ids[t]",
    "loss_mask": "1 iff the assistant wrote the token, end-of-turn token included",
}


def aux_layer_ids(layer_ids: Sequence[int]) -> list[int]:
    """The ids whose states form `aux_hidden_states`, in column order; none for `[-1]` alone.

    Raises DatasetError unless the ids ascend, with `-1` (if listed) at the end.
    """
    ids = list(layer_ids)
    blocks = ids[:-1] if ids and ids[-1] == FINAL_NORM_ID else ids
    if not ids or any(k < 0 for k in blocks) or blocks != sorted(set(blocks)):
        raise DatasetError(
            f"layer_ids={ids} is refused, accepted: ids >= 0, ascending, each once; -1 only last"
        )
    return [] if ids == [FINAL_NORM_ID] else ids


class TargetRecord(Config):
    """The model the states come from."""

    path: str
    """Where the target was loaded from: Hub id, folder or file."""
    fingerprint: str
    """Hash of its weights."""
    num_layers: int = Field(ge=1)
    """Decoder blocks."""
    hidden_size: int = Field(ge=1)
    """H."""
    vocab_size: int = Field(ge=1)
    """V, rows of its output head."""


class Counts(Config):
    """How much the dataset holds, and how much of the input it does not."""

    samples: int = Field(default=0, ge=0)
    """Samples in all shards."""
    tokens: int = Field(default=0, ge=0)
    """Rows in all samples."""
    supervised_tokens: int = Field(default=0, ge=0)
    """Rows whose loss mask is 1."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """Input rows left out, by reason."""


class Manifest(Config):
    """The head of a dataset; a reader trusts nothing that it does not say."""

    schema_version: Literal[1] = 1
    """Version of this file and of the shards' layout."""
    conventions: dict[str, str] = Field(default_factory=lambda: dict(CONVENTIONS))
    """The meaning of ids, rows and masks, in words."""
    target: TargetRecord
    """The model the states come from."""
    tokenizer_fingerprint: str | None
    """Hash of the tokenizer that made `input_ids`; None when ids came as they are."""
    chat_template_fingerprint: str | None
    """Hash of the chat template that rendered the conversations; None when there was none."""
    layer_ids: list[int]
    """Captured layers in column order; `[-1]` when there is no `aux_hidden_states`."""
    hidden_size: int = Field(ge=1)
    """H."""
    dtype: str
    """Dtype in which the target computed the states, before the codec."""
    codec: str
    """How states are stored."""
    counts: Counts = Field(default_factory=Counts)
    """Totals; final once `complete`."""
    proof: dict[str, Any] | None = None
    """Measured on the first batch: captured states and recomputed logits against the model's."""
    generation: dict[str, Any] | None = None
    """Settings with which answers were written anew; None when the input's own were kept."""
    complete: bool = False
    """False while a capture is under way or was interrupted."""

    @model_validator(mode="after")
    def _check(self) -> "Manifest":
        get_codec(self.codec)
        aux_layer_ids(self.layer_ids)
        if max(self.layer_ids) >= self.target.num_layers:
            raise ValueError(
                f"layer_ids={self.layer_ids}: the target has {self.target.num_layers} layers, "
                f"accepted: -1 to {self.target.num_layers - 1}"
            )
        if self.hidden_size != self.target.hidden_size:
            raise ValueError(
                f"hidden_size={self.hidden_size} differs from target.hidden_size="
                f"{self.target.hidden_size}"
            )
        for name in sorted(CONVENTIONS.keys() | self.conventions.keys()):
            if self.conventions.get(name) != CONVENTIONS.get(name):
                raise ValueError(
                    f"conventions.{name}={self.conventions.get(name)!r}, "
                    f"accepted: {CONVENTIONS.get(name)!r}"
                )
        return self

    @property
    def aux_layer_ids(self) -> list[int]:
        """The ids whose states form `aux_hidden_states`."""
        return aux_layer_ids(self.layer_ids)

    def write(self, directory: str | Path) -> None:
        """Writes manifest.json into `directory`, whole or not at all."""
        text = json.dumps(self.model_dump(mode="json"), indent=2) + "\n"
        write_atomically(Path(directory) / MANIFEST_NAME, text.encode())

    @classmethod
    def read(cls, directory: str | Path) -> "Manifest":
        """Reads manifest.json. Raises DatasetError that names the file and the field."""
        path = Path(directory) / MANIFEST_NAME
        raw = read_json_object(path)
        version = raw.get("schema_version")
        if version != SCHEMA_VERSION:
            raise DatasetError(f"{path}: schema_version={version!r}, accepted: {SCHEMA_VERSION}")
        # Defaults are for writing: a file without its conventions says nothing about its rows.
        if not isinstance(raw.get("conventions"), dict):
            raise DatasetError(
                f"{path}: conventions={raw.get('conventions')!r}, accepted: an object with "
                f"{', '.join(CONVENTIONS)}"
            )
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise DatasetError(f"{path}: {describe_validation(error)}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises DatasetError that names the file."""
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DatasetError(
            f"{path}: no such file; is this the folder of a captured dataset?"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise DatasetError(f"{path}: holds {type(raw).__name__}, accepted: a JSON object")
    return raw


def describe_validation(error: ValidationError) -> str:
    """Pydantic's findings in one line: field, value, complaint."""
    findings = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        # Of a missing field or a finding about the whole file, the input is that whole file.
        value = "" if isinstance(item["input"], dict) else f"={item['input']!r}"
        findings.append(f"{field}{value}: {message}".removeprefix(": "))
    return "; ".join(findings)
