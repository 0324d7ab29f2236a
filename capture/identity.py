"""What a capture is made of, so that a run is only ever continued with the same."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from draftsmith.capture.conversations import Rejected
from draftsmith.capture.dataset.durable import write_atomically
from draftsmith.capture.rows import Row
from draftsmith.configs.base import ConfigError
from draftsmith.infer.target import Target, fingerprint_template, fingerprint_tokenizer

IDENTITY_NAME = "identity.json"


def identify(rows: Iterable[Row | Rejected], target: Target) -> dict[str, Any]:
    """The content behind the config's paths: rows, weights, tokenizer, template, precision."""
    digest = hashlib.sha256()
    for row in rows:
        content = (
            [row.source, row.number, row.reason]
            if isinstance(row, Rejected)
            else [row.source, row.number, row.id, row.messages, row.text, row.input_ids,
                  row.loss_mask]
        )  # fmt: skip
        digest.update(json.dumps(content).encode() + b"\n")
    return {
        "rows": digest.hexdigest(),
        "target": target.fingerprint,
        "tokenizer": fingerprint_tokenizer(target.tokenizer),
        "chat_template": fingerprint_template(target.tokenizer),
        "dtype": str(target.dtype).removeprefix("torch."),
    }


def read_identity(folder: Path) -> dict[str, Any] | None:
    """What the capture in `folder` was begun with; None when nothing was begun there."""
    path = folder / IDENTITY_NAME
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(
            f"{path} is not JSON ({error}); remove the folder to start over"
        ) from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a JSON object; remove the folder to start over")
    return content


def write_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Write down what the capture in `folder` is begun with."""
    write_atomically(folder / IDENTITY_NAME, (json.dumps(identity, indent=2) + "\n").encode())


def check_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Raise ConfigError naming what has changed since the capture in `folder` was begun, if one
    was: samples of both would be mixed otherwise."""
    there = read_identity(folder)
    if there is None:
        return
    changed = sorted(key for key in identity if identity[key] != there.get(key))
    if changed:
        told = "; ".join(f"{key} was {there.get(key)}, is {identity[key]}" for key in changed)
        raise ConfigError(
            f"output_directory={str(folder)!r} was begun with other content behind the same paths "
            f"({told}); remove it or name another folder"
        )
