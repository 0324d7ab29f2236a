"""How many steps a run takes: the least of what its three limits allow."""

from collections.abc import Callable
from dataclasses import dataclass

from draftsmith.configs.train import BudgetConfig

# The first steps also fill caches and allocate memory, so they say little about the rest.
WARMUP_STEPS = 2
TIMED_STEPS = 5
# A pass without gradients costs about this share of a training step on the same tokens.
MEASUREMENT_COST = 0.4


@dataclass(frozen=True)
class Work:
    """Supervised tokens, which the time of a step is proportional to.

    per_step: mean of a training step. per_measurement: one pass over the held-out samples.
    every_steps: steps between such passes; None: one, at the end.
    """

    per_step: float
    per_measurement: float
    every_steps: int | None


class Budget:
    """`total` is the number of steps, None while `max_minutes` is being measured.

    It is fixed once, so that the learning rate has a schedule to end.
    """

    def __init__(
        self,
        config: BudgetConfig,
        work: Work,
        steps_in_epoch: Callable[[int], int],
        *,
        total: int | None = None,
    ) -> None:
        self.seconds = None if config.max_minutes is None else 60 * config.max_minutes
        self.limit = _fewest(config.max_steps, _steps_of_epochs(config.num_epochs, steps_in_epoch))
        self.total = self.limit if self.seconds is None else total
        self._work = work
        self._seen = 0
        self._timed_work = 0.0
        self._timing_began = 0.0

    def observe(self, step: int, num_supervised: float, elapsed: float) -> str | None:
        """Note a finished step; returns the line to print when it fixes `total`.

        step: steps done so far. elapsed: seconds of training so far.
        """
        if self.total is not None or self.seconds is None:
            return None
        self._seen += 1
        if self._seen <= WARMUP_STEPS:
            self._timing_began = elapsed
            return None
        self._timed_work += num_supervised
        if self._seen < WARMUP_STEPS + TIMED_STEPS:
            return None
        rate = self._timed_work / max(1e-9, elapsed - self._timing_began)
        fitting = step + self._steps_that_fit(rate, self.seconds - elapsed)
        self.total = min(fitting, self.limit) if self.limit is not None else fitting
        limited = " (another limit is lower)" if self.total < fitting else ""
        return (
            f"budget: {self.seconds / 60:g} minutes hold {fitting} steps at {rate:.0f} supervised "
            f"tokens/s; training ends at step {self.total}{limited}"
        )

    def over(self, step: int, elapsed: float) -> str | None:
        """Why training ends here, if it does: an empty text at the planned end."""
        if step == (self.limit if self.total is None else self.total):
            return ""
        if self.seconds is None or elapsed < self.seconds:
            return None
        planned = "before the steps could be timed" if self.total is None else f"of {self.total}"
        return (
            f"budget: {self.seconds / 60:g} minutes are over at step {step} {planned}; "
            "the end of the learning-rate schedule is cut"
        )

    def _steps_that_fit(self, rate: float, seconds: float) -> int:
        work, every = self._work, self._work.every_steps
        measurement = MEASUREMENT_COST * work.per_measurement
        per_step = work.per_step + (measurement / every if every else 0.0)
        return max(0, int((rate * seconds - measurement) / per_step))


def _fewest(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _steps_of_epochs(num_epochs: float | None, steps_in_epoch: Callable[[int], int]) -> int | None:
    """Batching differs from epoch to epoch, so each is counted; at least one step."""
    if num_epochs is None:
        return None
    whole = int(num_epochs)
    steps = sum(steps_in_epoch(epoch) for epoch in range(whole))
    rest = num_epochs - whole
    return max(1, steps + (round(rest * steps_in_epoch(whole)) if rest > 0 else 0))
