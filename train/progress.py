"""What a training tells while it runs: figures a step, for people, a log file and a tracker."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from draftsmith.train.objectives.eagle3 import ObjectiveOutput

NUM_SUMS = 5


@dataclass(frozen=True)
class Figures:
    """Sums over supervised anchors, of one step or of several: add them, then read the means.

    loss: the objective's value. num_supervised: assistant tokens seen. sums: [5, K] float64 with
    rows counts, cross_entropy, accept_rate, top1_match, accepted. num_steps: optimizer steps added.
    """

    loss: float
    num_supervised: float
    sums: Tensor
    num_steps: int = 1

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(
            self.loss + other.loss,
            self.num_supervised + other.num_supervised,
            self.sums + other.sums,
            self.num_steps + other.num_steps,
        )

    def means(self) -> dict[str, Any]:
        """Per drafted position, over the anchors supervised there, and in all.

        `survival[k]`: share of anchors whose first k + 1 greedy drafts all match the target's most
        likely tokens. `acceptance_length`: 1 + Σ survival, the length of a greedy round simulated
        on the data. Later positions have fewer supervised anchors, near the end of an answer, so
        the terms of that sum are means over different anchors.
        """
        counts = self.sums[0].clamp(min=1)
        cross_entropy, accept_rate, top1_match, accepted = self.sums[1:]
        survival = accepted / counts
        # Positions that no anchor was unrolled to have no figure, and then there is no length.
        seen = [bool(count) for count in self.sums[0]]

        def known(values: Tensor) -> list[float | None]:
            pairs = zip(values.tolist(), seen, strict=True)
            return [value if there else None for value, there in pairs]

        return {
            "loss": self.loss / self.num_steps,
            "acceptance_length": 1 + float(survival.sum()) if all(seen) else None,
            "top1_match": float(top1_match.sum() / counts.sum()),
            "accept_rate": float(accept_rate.sum() / counts.sum()),
            "survival": known(survival),
            "cross_entropy_by_position": known(cross_entropy / counts),
            "top1_match_by_position": known(top1_match / counts),
            "accept_rate_by_position": known(accept_rate / counts),
            "counts": [int(count) for count in self.sums[0]],
        }


def stack_sums(output: ObjectiveOutput) -> Tensor:
    """The sums of one forward: [5, K] float64."""
    rows = (
        output.counts,
        output.cross_entropy,
        output.accept_rate,
        output.top1_match,
        output.accepted,
    )
    return torch.stack([row.detach().double() for row in rows])


class Progress:
    """Only the main process writes: lines on stderr, one JSON line an event, the tracker's copy.

    log: each step is in it once, also after a resume. `last_step`: lines of later steps, which an
    interrupted run wrote after its last checkpoint, are cut off; 0 begins the log anew.
    """

    def __init__(
        self, accelerator: Accelerator, log: Path, *, log_every: int, last_step: int
    ) -> None:
        self.accelerator, self.log_every = accelerator, log_every
        self._file = None
        if accelerator.is_main_process:
            cut_log(log, last_step)
            self._file = log.open("a")
        self._window: Figures | None = None
        self._window_seconds = 0.0

    def say(self, line: str) -> None:
        if self.accelerator.is_main_process:
            print(line, file=sys.stderr, flush=True)

    def step(
        self,
        step: int,
        total: int | None,
        figures: Figures,
        *,
        lr: float,
        norm: float,
        took: float,
        left: float | None,
    ) -> None:
        """Log a finished step; `took`: its seconds; `left`: seconds to the end of the budget."""
        means = figures.means()
        speed = figures.num_supervised / took
        self._record(
            {
                "event": "step",
                "step": step,
                "lr": lr,
                "gradient_norm": norm,
                "supervised_tokens": int(figures.num_supervised),
                "seconds": round(took, 4),
                **means,
            }
        )
        self._track("train", means | {"lr": lr, "supervised_tokens_per_second": speed}, step)
        self._window = figures if self._window is None else self._window + figures
        self._window_seconds += took
        if step % self.log_every == 0 or step == total or step == 1:
            self._show(step, total, self._window, lr, left)
            self._window, self._window_seconds = None, 0.0

    def heldout(self, step: int, means: dict[str, Any]) -> None:
        self._record({"event": "heldout", "step": step, **means})
        self._track("heldout", means, step)
        self.say(f"held out at step {step}: {describe(means)}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _show(
        self, step: int, total: int | None, window: Figures, lr: float, left: float | None
    ) -> None:
        of = "" if total is None else f"/{total}"
        rest = "" if left is None else f"  left {clock(left)}"
        self.say(
            f"step {step}{of}  {describe(window.means())}  lr {lr:.2e}  "
            f"{window.num_supervised / self._window_seconds:.0f} tokens/s{rest}"
        )

    def _record(self, event: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def _track(self, group: str, means: dict[str, Any], step: int) -> None:
        values = {f"{group}/{k}": v for k, v in means.items() if not isinstance(v, list)}
        for position, survival in enumerate(means["survival"]):
            values[f"{group}/survival_{position}"] = survival
        values = {name: value for name, value in values.items() if value is not None}
        # Without a tracker this does nothing.
        self.accelerator.log(values, step=step)


def describe(means: dict[str, Any]) -> str:
    survival = " ".join("-" if share is None else f"{share:.2f}" for share in means["survival"])
    length = means["acceptance_length"]
    return (
        f"loss {means['loss']:.3f}  length {'-' if length is None else f'{length:.2f}'} "
        f"[{survival}]  "
        f"top-1 {means['top1_match']:.2f}  accept {means['accept_rate']:.2f}"
    )


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes}:{rest:02d}"
    )


def cut_log(path: Path, last_step: int) -> None:
    """Keep the lines of steps up to `last_step`; a half-written last line goes too."""
    kept = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            if json.loads(line)["step"] > last_step:
                break
        except ValueError:
            break
        kept.append(line + "\n")
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("".join(kept) if last_step else "")
    os.replace(partial, path)
