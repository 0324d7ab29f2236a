"""The state of an unfinished training on disk: whole or absent, and enough to go on exactly."""

import base64
import json
import os
import platform
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from draftsmith.capture.dataset.durable import explain_write_failure, fsync_directory
from draftsmith.configs.base import ConfigError
from draftsmith.train.batches import Position

FORMAT_VERSION = 1
WEIGHTS, OPTIMIZER, STATE, COMPLETE = (
    "drafter.safetensors",
    "optimizer.safetensors",
    "state.json",
    "COMPLETE",
)


@dataclass(frozen=True)
class RunState:
    """How far a training is.

    step: optimizer steps done. position: where the next one reads. elapsed: seconds of training.
    heldout: figures of the last measurement on the held-out samples.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    elapsed: float = 0.0
    heldout: dict[str, Any] | None = None


class Checkpoints:
    """The folder `checkpoints/` of one run: `step-000200/` and so on, the newest `keep` of them.

    run: the settings and data that make the run; stored in each checkpoint, compared on resuming.
    """

    def __init__(self, folder: Path, *, keep: int, run: dict[str, Any]) -> None:
        self.folder, self.keep, self.run = folder, keep, run

    def save(self, state: RunState, drafter: nn.Module, optimizer: torch.optim.AdamW) -> Path:
        """Write a checkpoint, then remove the oldest beyond `keep`; returns its folder.

        It is written under a hidden name and renamed when every byte is on the disk. On a failure
        nothing of it stays and the earlier ones are untouched.
        """
        path = self.folder / f"step-{state.step:06d}"
        if is_complete(path):
            return path
        partial = self.folder / f".{path.name}.partial"
        self.folder.mkdir(parents=True, exist_ok=True)
        remove(partial)
        try:
            partial.mkdir()
            weights = {name: tensor.contiguous() for name, tensor in drafter.state_dict().items()}
            save_file(weights, partial / WEIGHTS)
            save_file(optimizer_tensors(drafter, optimizer), partial / OPTIMIZER)
            content = {
                "format_version": FORMAT_VERSION,
                **asdict(state),
                "run": self.run,
                "random": random_state(),
                "versions": {
                    "draftsmith": version("draftsmith"),
                    "torch": torch.__version__,
                    "python": platform.python_version(),
                },
            }
            (partial / STATE).write_text(json.dumps(content, indent=2) + "\n")
            sizes = {}
            for name in (WEIGHTS, OPTIMIZER, STATE):
                fsync_file(partial / name)
                sizes[name] = (partial / name).stat().st_size
            # Last of all, so that a folder without it, or with other sizes, is known to be cut.
            (partial / COMPLETE).write_text(json.dumps(sizes) + "\n")
            fsync_file(partial / COMPLETE)
            fsync_directory(partial)
            remove(path)
            os.replace(partial, path)
            fsync_directory(self.folder)
        except BaseException as error:
            with suppress(OSError):
                remove(partial)
            if isinstance(error, OSError):
                raise explain_write_failure(error, path) from error
            raise
        for old in self.complete()[: -self.keep]:
            remove(old)
        return path

    def complete(self) -> list[Path]:
        """Finished checkpoints, oldest first."""
        found = [path for path in self.folder.glob("step-*") if is_complete(path)]
        return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))

    def remove_unfinished(self) -> list[str]:
        """Remove what an interrupted save left; returns the names."""
        unfinished = sorted(self.folder.glob(".step-*.partial"))
        unfinished += [path for path in sorted(self.folder.glob("step-*")) if not is_complete(path)]
        for path in unfinished:
            remove(path)
        return [path.name for path in unfinished]

    def load(self, path: Path, drafter: nn.Module, optimizer: torch.optim.AdamW) -> RunState:
        """Put the state of `path` into the drafter, the optimizer and torch's random state.

        Raises ConfigError when the checkpoint is of another run, format or shape.
        """
        stored = json.loads((path / STATE).read_text())
        if stored["format_version"] != FORMAT_VERSION:
            raise ConfigError(
                f"{path / STATE}: format_version={stored['format_version']!r}; "
                f"accepted: {FORMAT_VERSION}"
            )
        check_same_run(path, stored["run"], self.run)
        try:
            drafter.load_state_dict(load_file(path / WEIGHTS))
            load_optimizer(drafter, optimizer, load_file(path / OPTIMIZER))
        except (RuntimeError, KeyError) as error:
            raise ConfigError(f"{path} does not fit this drafter: {error}") from error
        restore_random_state(stored["random"])
        return RunState(
            step=stored["step"],
            position=Position(**stored["position"]),
            elapsed=stored["elapsed"],
            heldout=stored["heldout"],
        )


def is_complete(path: Path) -> bool:
    """Every file is there, as long as it was when the checkpoint was finished."""
    try:
        sizes = json.loads((path / COMPLETE).read_text())
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def check_same_run(path: Path, stored: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse to go on with other settings or data. Raises ConfigError listing what differs."""
    before, now = flatten(stored), flatten(current)
    differing = [
        f"  {key}: {before.get(key)!r} then, {now.get(key)!r} now"
        for key in [*now, *(key for key in before if key not in now)]
        if before.get(key) != now.get(key)
    ]
    if differing:
        raise ConfigError(
            "\n".join(
                [
                    f"{path} was made by another run:",
                    *differing,
                    "name another output, remove this one, or go back to those settings",
                ]
            )
        )


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def optimizer_tensors(drafter: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """AdamW's state as `<weight>.<exp_avg, exp_avg_sq or step>`; empty before the first step."""
    return {
        f"{name}.{kind}": tensor.contiguous()
        for name, parameter in drafter.named_parameters()
        for kind, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(
    drafter: nn.Module, optimizer: torch.optim.AdamW, tensors: dict[str, Tensor]
) -> None:
    """Raises KeyError naming a tensor that is missing or belongs to no weight."""
    remaining = dict(tensors)
    for name, parameter in drafter.named_parameters():
        if not tensors or not parameter.requires_grad:
            continue
        optimizer.state[parameter] = {
            # torch keeps the step count of a fused AdamW beside the weight it counts for.
            kind: remaining.pop(f"{name}.{kind}").to(parameter.device, copy=True)
            for kind in ("step", "exp_avg", "exp_avg_sq")
        }
    if remaining:
        raise KeyError(f"unexpected {sorted(remaining)}")


def random_state() -> dict[str, Any]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {
        name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()
    }


def restore_random_state(stored: dict[str, str]) -> None:
    states = {
        name: torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        for name, text in stored.items()
    }
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def fsync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a checkpoint's folder; cut short, what is left does not pass for a checkpoint."""
    if path.is_dir():
        (path / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(path)
