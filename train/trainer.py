"""The training loop: global batches, one update each, and what may end it."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from draftsmith.configs.train import TrainConfig
from draftsmith.infer.drafters.eagle3 import Eagle3Drafter
from draftsmith.train.batch import Batch
from draftsmith.train.batches import Batches, Step, load_batches, plan_measurement
from draftsmith.train.budget import Budget
from draftsmith.train.checkpoint import Checkpoints, RunState
from draftsmith.train.objectives.eagle3 import Eagle3Objective, ObjectiveOutput
from draftsmith.train.optimizer import build_optimizer, learning_rate
from draftsmith.train.progress import NUM_SUMS, Figures, Progress, stack_sums
from draftsmith.train.samples import SampleSet


class TrainingDiverged(ValueError):
    """A loss or gradient is not finite; the message names the samples of the step."""


class ObjectiveModule(nn.Module):
    """The objective as a module's forward, which is where accelerate puts gradient averaging and
    mixed precision."""

    def __init__(self, drafter: Eagle3Drafter, objective: Eagle3Objective) -> None:
        super().__init__()
        self.drafter = drafter
        self.objective = objective

    def forward(self, batch: Batch | None, divisors: Tensor) -> ObjectiveOutput:
        if batch is not None:
            return self.objective(batch, divisors)
        # Other processes wait for this one's gradients, so that it must have some: zeros.
        nothing = torch.zeros(len(divisors), device=divisors.device)
        loss = sum((p.sum() * 0.0 for p in self.drafter.parameters()), torch.zeros(()).to(nothing))
        return ObjectiveOutput(loss, nothing, nothing, nothing, nothing, nothing)


class Trainer:
    """Fits `objective.drafter` in place. `state` is how far it is."""

    def __init__(
        self,
        accelerator: Accelerator,
        objective: Eagle3Objective,
        batches: Batches,
        heldout: SampleSet,
        checkpoints: Checkpoints,
        config: TrainConfig,
    ) -> None:
        self.accelerator, self.objective, self.config = accelerator, objective, config
        self.batches, self.heldout, self.checkpoints = batches, heldout, checkpoints
        self.drafter = objective.drafter
        self.optimizer = build_optimizer(self.drafter, config.optimizer, accelerator.device)
        module = ObjectiveModule(self.drafter, objective)
        self._model, self._prepared = accelerator.prepare(module, self.optimizer)
        self.state = RunState()
        self._signal: int | None = None
        self._clock_zero = time.monotonic()

    def resume(self) -> str | None:
        """Take up the newest checkpoint, if there is one; returns its name."""
        complete = self.checkpoints.complete()
        if not complete:
            return None
        self.state = self.checkpoints.load(complete[-1], self.drafter, self.optimizer)
        return complete[-1].name

    def fit(self, progress: Progress) -> RunState:
        """Train to the end of the budget; the last checkpoint is then written too.

        SIGTERM and SIGINT end it after the step at work, with a checkpoint: SystemExit(0) and
        KeyboardInterrupt. Raises TrainingDiverged before an update that is not finite.
        """
        budget = Budget(self.config.budget, self.batches.steps_in_epoch)
        steps = self.batches.steps(self.state.position)
        self._clock_zero = time.monotonic() - self.state.elapsed
        with self._signals():
            while not budget.over(self.state.step, self.state.elapsed):
                step_began = time.monotonic()
                step = next(steps)
                used = budget.progress(self.state.step, self.state.elapsed)
                lr = learning_rate(self.config.optimizer, used)
                self.objective.follow(used)
                figures, norm, signalled, elapsed = self._step(step, lr)
                self.state = replace(
                    self.state,
                    step=self.state.step + 1,
                    position=step.following,
                    elapsed=elapsed,
                )
                took = time.monotonic() - step_began
                left = budget.seconds_left(self.state.step, elapsed)
                progress.step(
                    self.state.step, budget.limit, figures, lr=lr, norm=norm, took=took, left=left
                )
                if signalled:
                    self._stop(progress)
                if self._checkpoint_due():
                    self._measure_and_save(progress)
            if not self._saved():
                self._measure_and_save(progress)
        return self.state

    def measure(self) -> Figures | None:
        """The objective on the held-out samples, without gradients; None when there are none."""
        if len(self.heldout) == 0:
            return None
        self.objective.follow(1.0)
        accelerator, batches = self.accelerator, self.batches
        plan: list[list[int] | None] = list(
            plan_measurement(self.heldout.lengths, self.config.batch.tokens)
        )
        mine = plan[batches.rank :: batches.num_processes]
        device, num_steps = accelerator.device, self.objective.num_steps
        counts = torch.zeros(num_steps, dtype=torch.int64, device=device)
        totals = torch.zeros(NUM_SUMS, num_steps, dtype=torch.float64, device=device)
        with torch.no_grad(), accelerator.autocast():
            for batch in load_batches(self.heldout, batches.layer_ids, mine, batches.num_workers):
                assert batch is not None
                moved = batch.to(device)
                own_counts = self.objective.count(moved)
                counts += own_counts
                totals += stack_sums(self.objective(moved, own_counts))
        totals = accelerator.reduce(totals, "sum").cpu()
        # The loss of the whole set follows from its sums: Σ w_k · Σ CE / count.
        weights = torch.tensor(self.objective.step_weights, dtype=torch.float64)
        loss = float((weights * totals[1] / totals[0].clamp(min=1)).sum())
        return Figures(loss, float(sum(self.heldout.num_supervised)), totals)

    def _step(self, step: Step, lr: float) -> tuple[Figures, float, bool, float]:
        """One update. Returns figures, gradient norm, whether to stop, and seconds so far."""
        accelerator = self.accelerator
        device, world = accelerator.device, accelerator.num_processes
        batches = [batch and batch.to(device) for batch in step.micro_batches]
        num_steps = self.objective.num_steps
        # Known without a forward, so every micro-batch is divided by the count of all of them.
        counts = torch.zeros(num_steps, dtype=torch.int64, device=device)
        for batch in batches:
            if batch is not None:
                counts += self.objective.count(batch)
        counts = accelerator.reduce(counts, "sum")
        sums = torch.zeros(NUM_SUMS, num_steps, dtype=torch.float64, device=device)
        losses = []
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with nullcontext() if last else accelerator.no_sync(self._model):
                output = self._model(batch, counts)
                # Gradients are averaged over the processes, the loss is a sum over them.
                accelerator.backward(output.loss * world)
            losses.append(output.loss.detach().double())
            sums += stack_sums(output)
        limit = self.config.optimizer.max_grad_norm or float("inf")
        norm = accelerator.clip_grad_norm_(self.drafter.parameters(), limit)
        supervised = sum(int(batch.loss_mask.sum()) for batch in batches if batch is not None)
        # One exchange: sums, and what all processes must agree on (the main one's clock rules).
        own = [
            float(supervised),
            float(self._signal is not None),
            self._elapsed() if accelerator.is_main_process else 0.0,
        ]
        shared = torch.cat(
            [torch.stack(losses).sum()[None], torch.tensor(own).to(sums), sums.flatten()]
        )
        shared = accelerator.reduce(shared, "sum").cpu()
        if not bool(torch.isfinite(shared).all()) or not bool(torch.isfinite(norm)):
            self._refuse(step, losses, float(norm))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self._prepared.step()
        self._prepared.zero_grad()
        loss, supervised_everywhere, signalled, elapsed = shared[:4].tolist()
        figures = Figures(loss, supervised_everywhere, shared[4:].view(NUM_SUMS, num_steps))
        return figures, float(norm), signalled > 0, elapsed

    def _refuse(self, step: Step, losses: list[Tensor], norm: float) -> None:
        present = [batch for batch in step.micro_batches if batch is not None]
        pairs = zip(step.micro_batches, losses, strict=True)
        culprits = [b for b, loss in pairs if b is not None and not bool(torch.isfinite(loss))]
        keys = [key for batch in culprits or present for key in batch.keys]
        what = "loss" if culprits else f"gradient norm {norm}"
        raise TrainingDiverged(
            f"step {self.state.step + 1} (epoch {self.state.position.epoch}): the {what} is not "
            f"finite; no update was made. Samples of the batch: {', '.join(keys)}. Look at them "
            "with `draftsmith capture verify`, or lower optimizer.lr"
        )

    def _checkpoint_due(self) -> bool:
        every = self.config.checkpoint.every_steps
        return every is not None and self.state.step % every == 0

    def _saved(self) -> bool:
        return any(
            path.name == f"step-{self.state.step:06d}" for path in self.checkpoints.complete()
        )

    def _elapsed(self) -> float:
        """Seconds of training, earlier runs included."""
        return time.monotonic() - self._clock_zero

    def _measure_and_save(self, progress: Progress) -> None:
        figures = self.measure()
        if figures is not None:
            means = figures.means()
            progress.heldout(self.state.step, means)
            self.state = replace(self.state, heldout=means)
        self._save()

    def _save(self) -> None:
        if self.accelerator.is_main_process:
            state = replace(self.state, elapsed=self._elapsed())
            self.checkpoints.save(state, self.drafter, self.optimizer)
        self.accelerator.wait_for_everyone()

    def _stop(self, progress: Progress) -> None:
        self._save()
        progress.say(
            f"stopped at step {self.state.step}; its checkpoint is in {self.checkpoints.folder}. "
            "Run the same command again to continue"
        )
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(0)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let the step at work finish; a second signal has its usual effect."""

        def note(number: int, frame: FrameType | None) -> None:
            self._signal = number
            for known, handler in previous.items():
                signal.signal(known, handler)

        previous: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for wanted in (signal.SIGTERM, signal.SIGINT):
                previous[wanted] = signal.signal(wanted, note)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
