"""Whether a checkpoint is a target that carries its own draft, told from its files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PREFIX = "mtp."
# Families whose checkpoints carry such modules; asked only where no weight names can be read.
MODEL_TYPES = ("deepseek_v3", "deepseek_v32", "deepseek_v4")
MAX_HEADER_BYTES = 100 << 20


def carries_draft(folder: Path) -> bool:
    """Whether tensors named `mtp.*` are in the folder, or its `model_type` implies them.

    A folder that is not there, such as a Hub id not yet fetched, carries none.
    """
    names = weight_names(folder)
    if names is not None:
        return any(name.startswith((PREFIX, f"model.{PREFIX}")) for name in names)
    config = read_object(folder / "config.json")
    return config is not None and config.get("model_type") in MODEL_TYPES


def weight_names(folder: Path) -> Iterable[str] | None:
    """Tensor names by the weight index or the header of a single file; None: neither is there."""
    index = read_object(folder / "model.safetensors.index.json")
    if index is not None and isinstance(index.get("weight_map"), dict):
        return list(index["weight_map"])
    try:
        with (folder / "model.safetensors").open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= MAX_HEADER_BYTES else None
    except (OSError, ValueError):
        return None
    return list(header) if isinstance(header, dict) else None


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON file's object; None when it is missing, unreadable or something else.

    Reading the weights reports broken files; this only decides which ones are read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
