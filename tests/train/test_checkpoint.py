"""Checkpoints: whole or absent, and refused for another run; the output folder's rules."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_target
from torch import nn
from toy_training import capture_toy, counting, toy_config

from draftsmith.configs.base import ConfigError
from draftsmith.configs.loading import write_config
from draftsmith.configs.train import OptimizerConfig
from draftsmith.train import checkpoint as checkpoint_module
from draftsmith.train.batches import Position
from draftsmith.train.checkpoint import Checkpoints, RunState
from draftsmith.train.optimizer import build_optimizer
from draftsmith.train.output import Output
from draftsmith.train.progress import cut_log

RUN = {"optimizer": {"lr": 0.1}, "seed": 0}


def trained(seed: int) -> tuple[nn.Module, torch.optim.AdamW]:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    module.register_buffer("d2t", torch.arange(5) + seed)
    optimizer = build_optimizer(module, OptimizerConfig(), torch.device("cpu"))
    for _ in range(3):
        module(torch.randn(2, 3)).pow(3).sum().backward()
        optimizer.step()
    return module, optimizer


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    module, optimizer = trained(0)
    state = RunState(7, Position(1, 12), 3.5, {"loss": 2.0, "survival": [0.5]})
    checkpoints = Checkpoints(tmp_path, keep=2, run=RUN)
    path = checkpoints.save(state, module, optimizer)
    drawn = torch.rand(3)
    other, other_optimizer = trained(1)
    assert checkpoints.load(path, other, other_optimizer) == state
    assert torch.equal(torch.rand(3), drawn)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        kept, loaded = optimizer.state[one], other_optimizer.state[two]
        assert kept.keys() == loaded.keys()
        assert all(torch.equal(kept[kind], loaded[kind]) for kind in kept)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2, run=RUN)
    for step in (5, 10, 15):
        checkpoints.save(RunState(step), *trained(0))
    assert [path.name for path in checkpoints.complete()] == ["step-000010", "step-000015"]


@pytest.mark.parametrize("cut", ["drafter.safetensors", "optimizer.safetensors", "COMPLETE"])
def test_a_cut_checkpoint_is_ignored_and_removed(tmp_path: Path, cut: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3, run=RUN)
    for step in (5, 10):
        checkpoints.save(RunState(step), *trained(0))
    file = tmp_path / "step-000010" / cut
    file.write_bytes(file.read_bytes()[:-10])
    (tmp_path / ".step-000015.partial").mkdir()
    assert [path.name for path in checkpoints.complete()] == ["step-000005"]
    assert checkpoints.remove_unfinished() == [".step-000015.partial", "step-000010"]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000005"]


def test_a_full_disk_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1, run=RUN)
    checkpoints.save(RunState(5), *trained(0))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "fsync_file", full)
    with pytest.raises(OSError, match="step-000010") as error:
        checkpoints.save(RunState(10), *trained(0))
    assert "free on its disk" in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000005"]
    assert len(checkpoints.complete()) == 1


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, keep=1, run=RUN).save(RunState(5), *trained(0))
    changed = Checkpoints(tmp_path, keep=1, run=RUN | {"optimizer": {"lr": 0.2}})
    with pytest.raises(ConfigError, match=r"optimizer\.lr: 0\.1 then, 0\.2 now") as error:
        changed.load(path, *trained(0))
    assert "seed" not in str(error.value)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    module, optimizer = trained(0)
    checkpoints = Checkpoints(tmp_path, keep=1, run=RUN)
    path = checkpoints.save(RunState(5), module, optimizer)
    wider = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    with pytest.raises(ConfigError, match=r"0\.weight"):
        checkpoints.load(
            path, wider, build_optimizer(wider, OptimizerConfig(), torch.device("cpu"))
        )


def test_an_output_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    config = toy_config("target", tmp_path / "data", tmp_path / "out")
    output = Output(config.output)
    output.check(config)
    (tmp_path / "out").mkdir()
    output.check(config)
    (tmp_path / "out/model.safetensors").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds model\.safetensors, which no training wrote"):
        output.check(config)
    (tmp_path / "out/config.yaml").write_text("prompts: [a]\n")
    with pytest.raises(ConfigError, match="is not a training's"):
        output.check(config)
    assert (tmp_path / "out/model.safetensors").read_text() == "mine"


def test_settings_may_change_only_while_nothing_is_saved(tmp_path: Path) -> None:
    config = toy_config("target", tmp_path / "data", tmp_path / "out")
    other = toy_config("target", tmp_path / "data", tmp_path / "out", seed=3, optimizer={"lr": 2.0})
    output = Output(config.output)
    write_config(config, output.config)
    output.check(other)
    (output.checkpoints / "step-000005").mkdir(parents=True)
    output.check(config)
    with pytest.raises(ConfigError) as error:
        output.check(other)
    for line in ("optimizer.lr: 0.001 then, 2.0 now", "seed: 0 then, 3 now", "another output"):
        assert line in str(error.value)


def test_the_log_keeps_what_the_checkpoint_knows(tmp_path: Path) -> None:
    log = tmp_path / "train_log.jsonl"
    lines = [json.dumps({"event": "step", "step": step}) for step in (1, 2, 3)]
    log.write_text("\n".join([*lines, '{"event": "st']))
    cut_log(log, 2)
    assert log.read_text().splitlines() == lines[:2]
    cut_log(log, 0)
    assert log.read_text() == ""


# Trains as the command line does, but dies in its second checkpoint, before its name is there.
KILLED = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from draftsmith.configs.cli import main
from draftsmith.train import checkpoint
replace, deadly = os.replace, sys.argv.pop(1) == "die"

def rename(source, target):
    if deadly and str(target).endswith("step-000004"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

checkpoint.os.replace = rename
sys.exit(main(["train", "run", "--config", sys.argv[1]]))
"""


def test_killed_in_a_checkpoint_the_same_command_goes_on(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    data = capture_toy(target, tmp_path / "data", [counting(7 * row, 12) for row in range(6)])

    def train(name: str, mode: str) -> subprocess.CompletedProcess[str]:
        config = toy_config(
            target.path, data, tmp_path / name, checkpoint={"every_steps": 2, "keep": 1}
        )
        write_config(config, tmp_path / f"{name}.yaml")
        command = [sys.executable, "-c", KILLED, mode, str(tmp_path / f"{name}.yaml")]
        return subprocess.run(command, capture_output=True, text=True)

    assert train("straight", "live").returncode == 0
    assert train("killed", "die").returncode == -signal.SIGKILL
    left = sorted(path.name for path in (tmp_path / "killed/checkpoints").iterdir())
    assert left == [".step-000004.partial", "step-000002"]
    again = train("killed", "live")
    assert again.returncode == 0, again.stderr
    assert ".step-000004.partial: left by an interrupted save; removed" in again.stderr
    assert "continuing from step-000002" in again.stderr
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "killed"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    done = train("killed", "live")
    assert done.returncode == 0
    assert "this training is done" in done.stderr
