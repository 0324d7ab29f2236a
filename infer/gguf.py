"""Targets that come as one GGUF file: unpack the blocks into a plain dense model.

`python -m draftsmith.infer.gguf SOURCE FOLDER` writes the unpacked model as a Hugging Face folder,
which then loads in a fraction of the time.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from draftsmith.configs.base import ConfigError


def find_gguf(path: Path) -> Path | None:
    """The GGUF file that `path` is or holds; None when it is a folder with a config of its own."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise ConfigError(
                f"target.path={str(path)!r} is a file; accepted: a Hugging Face id, "
                "a model folder, a .gguf file or a folder that holds one"
            )
        return path
    if (path / "config.json").exists():
        return None
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise ConfigError(
            f"target.path={str(path)!r} has no config.json and not exactly one .gguf file "
            f"(found: {found}); accepted: a model folder, or a folder with one .gguf file"
        )
    return files[0]


def load_gguf(file: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return `(model, tokenizer)` with every weight unpacked to `dtype`."""
    options: dict[str, Any] = {"gguf_file": file.name, "dtype": dtype}
    # Newer transformers keep the blocks packed and multiply by them unless told otherwise; the
    # states would then depend on that kernel and not on the weights alone.
    packed = getattr(transformers, "GgufConfig", None)
    if packed is not None:
        options["quantization_config"] = packed(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **options)
    model.config.quantization_config = None
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    return model, tokenizer


def unpack(source: Path, folder: Path) -> None:
    """Write the model in `source` to `folder`, which appears only when it is whole."""
    file = find_gguf(source)
    if file is None:
        raise ConfigError(f"{source} holds a model that is not packed as GGUF")
    if folder.exists():
        raise ConfigError(f"{folder} exists; remove it, or name another folder")
    model, tokenizer = load_gguf(file, torch.bfloat16)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    del model.config.quantization_config
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    os.rename(partial, folder)
    print(f"unpacked {file.name} into {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m draftsmith.infer.gguf SOURCE FOLDER")
    try:
        unpack(Path(sys.argv[1]), Path(sys.argv[2]))
    except (ConfigError, OSError) as error:
        sys.exit(f"error: {error}")
