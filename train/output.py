"""The folder a training writes into: what belongs there, and what is refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftsmith.capture.dataset.durable import lock_file
from draftsmith.configs.base import ConfigError
from draftsmith.configs.loading import load_config, write_config
from draftsmith.configs.train import TrainConfig
from draftsmith.train.checkpoint import check_same_run


class Output:
    """`config.yaml`, `train_log.jsonl`, `checkpoints/` and, when finished, the drafter itself."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.config = self.folder / "config.yaml"
        self.log = self.folder / "train_log.jsonl"
        self.checkpoints = self.folder / "checkpoints"
        self.tracking = self.folder / "tracking"
        # Written last of the drafter's files.
        self.drafter_config = self.folder / "config.json"

    @property
    def finished(self) -> bool:
        return self.drafter_config.exists()

    @contextmanager
    def held(self, is_main_process: bool) -> Iterator[None]:
        """Create the folder and keep other trainings out of it; one process does so for all."""
        if not is_main_process:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        busy = f"output={str(self.folder)!r}: another training is at work there; wait for it"
        with lock_file(self.folder / ".lock", wait=False, busy=busy):
            yield

    def check(self, config: TrainConfig) -> None:
        """Raise ConfigError, changing nothing, unless `config` may begin or go on here."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"output={str(self.folder)!r} is a file; accepted: a folder")
        found = sorted(self.folder.iterdir()) if self.folder.exists() else []
        visible = [path.name for path in found if not path.name.startswith(".")]
        if not visible:
            return
        earlier = self._read_config(visible)
        # A run that saved nothing has nothing to lose, so its settings may still be corrected.
        if self.finished or any(self.checkpoints.glob("step-*")):
            check_same_run(self.config, run_settings(earlier), run_settings(config))

    def check_data(self, data: dict[str, Any]) -> None:
        """Raise ConfigError unless the finished drafter there was trained on `data`."""
        config = json.loads(self.drafter_config.read_text())
        earlier = config.get("draftsmith", {}).get("training", {}).get("data", {})
        check_same_run(self.drafter_config, {"data": earlier}, {"data": data})

    def claim(self, config: TrainConfig) -> None:
        """Write down what is run here, before anything else is written."""
        write_config(config, self.config)

    def _read_config(self, visible: list[str]) -> TrainConfig:
        listed = ", ".join(visible[:5]) + (" and more" if len(visible) > 5 else "")
        accepted = "accepted: a new or empty folder, or that of a training to continue"
        if not self.config.exists():
            raise ConfigError(
                f"output={str(self.folder)!r} holds {listed}, which no training wrote; {accepted}"
            )
        try:
            return load_config(TrainConfig, self.config)
        except ConfigError as error:
            raise ConfigError(
                f"output={str(self.folder)!r} holds {listed}; its config.yaml is not a training's "
                f"({error}); {accepted}"
            ) from None


def run_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that make a run what it is: all but the place it is written to."""
    return config.model_dump(mode="json", exclude={"output"})
