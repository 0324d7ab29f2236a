"""The training loop: what it learns, how it counts, and that stopping changes nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from tiny import fit_counter, tiny_target
from toy_training import LAYER_IDS, capture_toy, counting, toy_config

from draftsmith.capture.dataset import CapturedDataset
from draftsmith.configs.base import ConfigError
from draftsmith.configs.loading import load_config, write_config
from draftsmith.configs.target import TargetConfig
from draftsmith.configs.train import Eagle3Config, Eagle3ObjectiveConfig, TrainConfig
from draftsmith.infer.drafters.checkpoint import load_drafter
from draftsmith.infer.target import Target, load_target
from draftsmith.train.batches import Batches, Position, plan_epoch
from draftsmith.train.checkpoint import Checkpoints
from draftsmith.train.drafter import build_drafter
from draftsmith.train.job import run
from draftsmith.train.objectives.eagle3 import Eagle3Objective
from draftsmith.train.samples import split_samples
from draftsmith.train.trainer import Trainer, TrainingDiverged


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return tiny_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def data(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 samples of unequal lengths."""
    sequences = [counting(4 * row, 8 + (5 * row) % 17) for row in range(23)]
    return capture_toy(target, tmp_path_factory.mktemp("data"), sequences)


@pytest.fixture(autouse=True)
def fresh_accelerator() -> Iterator[None]:
    """Its settings are the process's; and models this small only wait for a second thread."""
    AcceleratorState._reset_state(reset_partial_state=True)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def read_log(folder: Path, event: str = "step") -> list[dict]:
    lines = [json.loads(line) for line in (folder / "train_log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def results(folder: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    return [line["loss"] for line in read_log(folder)], load_file(folder / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    (losses, weights), (other_losses, other_weights) = results(one), results(other)
    assert losses == other_losses
    assert weights.keys() == other_weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, other_weights[name]), name


def test_overfits_eight_sequences(tmp_path: Path) -> None:
    """Of a target that counts, so that its most likely token stands out and can be learned."""
    target = tiny_target(tmp_path / "target")
    fit_counter(target)
    target.model.save_pretrained(tmp_path / "counter")
    target = load_target(
        TargetConfig(path=str(tmp_path / "counter"), dtype="float32", device="cpu")
    )
    sequences = [counting(11 * row, 16) for row in range(8)]
    folder = capture_toy(target, tmp_path / "data", sequences)
    config = toy_config(
        target.path,
        folder,
        tmp_path / "out",
        budget={"max_steps": 150},
        optimizer={"lr": 1e-2},
        batch={"tokens": 128},
    )
    run(config)
    log = read_log(tmp_path / "out")
    assert log[-1]["top1_match"] > 0.97
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    assert log[-1]["acceptance_length"] > 3.8
    drafter = load_drafter(tmp_path / "out", target)
    assert torch.isfinite(drafter.fc.weight).all()
    run(config)  # finished: nothing is done again
    assert read_log(tmp_path / "out") == log


def test_resuming_equals_the_straight_run(
    target: Target, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """23 samples, accumulation 2, 3 epochs; stopped after step 4 by SIGTERM and in epoch 2 by an
    error between two checkpoints."""

    def config(name: str, **changes):
        values = {
            "budget": {"num_epochs": 3},
            "batch": {"tokens": 40, "accumulation": 2},
            "checkpoint": {"every_steps": 3, "keep": 2},
            "heldout_fraction": 0.15,
            "drafter": {"type": "eagle3", "draft_vocab_size": 50},
        }
        return toy_config(target.path, data, tmp_path / name, **(values | changes))

    run(config("straight"))
    num_steps = len(read_log(tmp_path / "straight"))
    assert num_steps > 10

    original = Trainer._step

    def interrupted(at: int, act):
        def step(self, *arguments):
            if self.state.step + 1 == at:
                act()
            return original(self, *arguments)

        return step

    def fail() -> None:
        raise RuntimeError("power cut")

    stopped = config("stopped", num_workers=0)
    terminate = interrupted(4, lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(Trainer, "_step", terminate)
    with pytest.raises(SystemExit) as ended:
        run(stopped)
    assert ended.value.code == 0
    assert (tmp_path / "stopped/checkpoints/step-000004").is_dir()
    assert len(read_log(tmp_path / "stopped")) == 4
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setattr(Trainer, "_step", interrupted(num_steps - 1, fail))
    with pytest.raises(RuntimeError, match="power cut"):
        run(stopped)
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setattr(Trainer, "_step", original)
    run(stopped)
    assert_same(tmp_path / "straight", tmp_path / "stopped")
    heldout = [read_log(tmp_path / name, "heldout")[-1] for name in ("straight", "stopped")]
    assert heldout[0] == heldout[1]
    before_last = (num_steps - 1) // 3 * 3
    kept = [f"step-{step:06d}" for step in (before_last, num_steps)]
    assert sorted(p.name for p in (tmp_path / "stopped/checkpoints").iterdir()) == kept


def test_worker_processes_change_nothing(target: Target, data: Path, tmp_path: Path) -> None:
    run(toy_config(target.path, data, tmp_path / "none"))
    AcceleratorState._reset_state(reset_partial_state=True)
    run(toy_config(target.path, data, tmp_path / "two", num_workers=2))
    assert_same(tmp_path / "none", tmp_path / "two")


def make_trainer(target: Target, data: Path, tmp_path: Path, tokens: int, accumulation: int):
    dataset = CapturedDataset(data)
    split = split_samples(dataset, 1e-9, 64)
    torch.manual_seed(0)
    drafter = build_drafter(Eagle3Config(), target, split.train, LAYER_IDS)
    objective = Eagle3Objective(drafter, target, Eagle3ObjectiveConfig(num_steps=3))
    batches = Batches(split.train, LAYER_IDS, tokens=tokens, accumulation=accumulation, seed=0)
    config = toy_config(target.path, data, tmp_path)
    checkpoints = Checkpoints(tmp_path, keep=1, run={})
    return Trainer(Accelerator(cpu=True), objective, batches, split.heldout, checkpoints, config)


def test_however_a_step_is_split_its_gradient_is_the_same(target: Target, tmp_path: Path) -> None:
    sequences = [counting(20 * row, 16) for row in range(4)]
    masks = [[0] * (16 - n) + [1] * n for n in (2, 5, 9, 16)]
    data = capture_toy(target, tmp_path / "data", sequences, masks)
    gradients = []
    for per_batch in (4, 2, 1):
        AcceleratorState._reset_state(reset_partial_state=True)
        trainer = make_trainer(target, data, tmp_path, 16 * per_batch, 4 // per_batch)
        step = next(trainer.batches.steps(Position()))
        assert len(step.micro_batches) == 4 // per_batch
        trainer._prepared.zero_grad = lambda: None  # the gradient is read after the step
        figures = trainer._step(step, 0.0)[0]
        assert figures.sums[0].tolist() == [1 + 4 + 8 + 14, 3 + 7 + 13, 2 + 6 + 12]
        gradients.append([p.grad.clone() for p in trainer.drafter.parameters()])
    for other in gradients[1:]:
        for one, two in zip(gradients[0], other, strict=True):
            assert torch.allclose(one, two, atol=1e-6, rtol=1e-5)


def test_a_token_weighs_the_same_in_every_micro_batch(
    target: Target, data: Path, tmp_path: Path
) -> None:
    """One token at loss 8 and nine at loss 2 make 2.6, not the 5.0 of a mean of means."""
    trainer = make_trainer(target, data, tmp_path, 64, 2)
    numbers = {0: (1, 8.0), 1: (9, 2.0)}
    real = trainer.objective
    seen = iter(range(4))
    order = {}

    class Fixed:
        num_steps = 3

        def count(self, batch):
            order[batch.keys] = next(seen)
            return torch.tensor([numbers[order[batch.keys]][0], 0, 0])

        def __call__(self, batch, divisors):
            count, value = numbers[order[batch.keys]]
            zero = torch.zeros(3)
            loss = count * value / divisors[0] + 0.0 * real.drafter.fc.weight.sum()
            return replace(real(batch, divisors.clamp(min=1)), loss=loss, counts=zero)

    trainer.objective = trainer._model.objective = Fixed()
    figures = trainer._step(next(trainer.batches.steps(Position())), 0.0)[0]
    assert figures.loss == pytest.approx(2.6)


def test_samples_without_supervision_are_left_out(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sequences = [counting(row, 8) for row in range(5)]
    nothing, one, split = [0] * 8, [0] * 7 + [1], [0, 1, 0, 1, 0, 1, 0, 1]
    mixed = capture_toy(
        target, tmp_path / "mixed", sequences, [nothing, one, split, [0] * 4 + [1] * 4, [1] * 8]
    )
    run(toy_config(target.path, mixed, tmp_path / "out"))
    assert "2 samples to train on, 0 held out, 3 left out" in capsys.readouterr().err
    assert all(line["counts"][0] > 0 for line in read_log(tmp_path / "out"))
    bare = capture_toy(target, tmp_path / "bare", sequences[:3], [nothing, one, split])
    with pytest.raises(ConfigError, match="nothing to train on: of 3 samples 3"):
        run(toy_config(target.path, bare, tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_loss_that_is_not_finite_stops_before_the_update(target: Target, tmp_path: Path) -> None:
    data = capture_toy(target, tmp_path / "data", [counting(0, 8)] * 3)
    trainer = make_trainer(target, data, tmp_path, 8, 3)
    step = next(trainer.batches.steps(Position()))
    step.micro_batches[1].hidden_states[0, 5, 0] = float("nan")
    before = [p.clone() for p in trainer.drafter.parameters()]
    with pytest.raises(TrainingDiverged, match="the loss is not finite") as error:
        trainer._step(step, 1e-3)
    named = [batch.keys[0] in str(error.value) for batch in step.micro_batches]
    assert named == [False, True, False]
    assert all(map(torch.equal, before, trainer.drafter.parameters()))


def test_minutes_end_the_run_and_its_schedule(
    target: Target, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(toy_config(target.path, data, tmp_path / "out", budget={"max_minutes": 0.05}))
    assert "done after" in capsys.readouterr().err
    log = read_log(tmp_path / "out")
    # Three seconds, and the step that was at work when they ended.
    assert 1.0 < sum(line["seconds"] for line in log[:-1]) < 3.5
    assert log[-1]["lr"] < 0.3 * max(line["lr"] for line in log)


def test_another_targets_data_is_refused(target: Target, tmp_path: Path) -> None:
    data = capture_toy(target, tmp_path / "data", [counting(0, 8)] * 2)
    other = tiny_target(tmp_path / "other", num_hidden_layers=7)
    with pytest.raises(ConfigError, match=f"{target.fingerprint}.*{other.fingerprint}"):
        run(toy_config(other.path, data, tmp_path / "out"))


def test_bf16_autocast_keeps_fp32_weights(target: Target, data: Path, tmp_path: Path) -> None:
    run(toy_config(target.path, data, tmp_path / "fp32", budget={"max_steps": 2}))
    AcceleratorState._reset_state(reset_partial_state=True)
    options = {"mixed_precision": "bf16", "budget": {"max_steps": 2}}
    run(toy_config(target.path, data, tmp_path / "bf16", **options))
    (exact, _), (rounded, weights) = results(tmp_path / "fp32"), results(tmp_path / "bf16")
    assert exact != rounded
    assert exact == pytest.approx(rounded, rel=0.02)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.slow
def test_two_processes_equal_two_micro_batches(target: Target, data: Path, tmp_path: Path) -> None:
    """Epochs of an odd number of micro-batches, so one process is left without a last one."""
    for name, accumulation in (("alone", 2), ("shared", 1)):
        batch = {"tokens": 40, "accumulation": accumulation}
        config = toy_config(
            target.path, data, tmp_path / name, batch=batch, budget={"num_epochs": 2}
        )
        write_config(config, tmp_path / f"{name}.yaml")
    assert len(plan_epoch(sorted(CapturedDataset(data).lengths), 40, 0, 0)) % 2 == 1
    run(load_config(TrainConfig, tmp_path / "alone.yaml"))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    job = ["-m", "draftsmith.train", "--config", str(tmp_path / "shared.yaml")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    subprocess.run([sys.executable, *launch, *job], check=True, env=environment)
    (losses, weights), (shared_losses, shared_weights) = map(
        results, (tmp_path / "alone", tmp_path / "shared")
    )
    assert losses == pytest.approx(shared_losses, rel=1e-6)
    for name, tensor in weights.items():
        assert torch.allclose(tensor, shared_weights[name], atol=1e-6), name
