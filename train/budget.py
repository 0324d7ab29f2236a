"""How much of a run's budget is used: the schedule's clock, and its end."""

from collections.abc import Callable

from draftsmith.configs.train import BudgetConfig


class Budget:
    """Limits in steps, epochs and minutes; the one that is nearest rules.

    `limit`: steps allowed, None without such a limit. `seconds`: training time allowed, None
    without one. A schedule that follows `progress` ends with the budget on any machine, however
    fast it is and however its speed changes.
    """

    def __init__(self, config: BudgetConfig, steps_in_epoch: Callable[[int], int]) -> None:
        limits = [config.max_steps, _steps_of_epochs(config.num_epochs, steps_in_epoch)]
        self.limit = min((limit for limit in limits if limit is not None), default=None)
        self.seconds = None if config.max_minutes is None else 60 * config.max_minutes

    def progress(self, step: int, elapsed: float) -> float:
        """Share of the budget at the step after `step` finished ones, in (0, 1) while it runs.

        By steps it is never 0 nor 1, so that no step is spent at a learning rate of zero.
        """
        by_steps = 0.0 if self.limit is None else (step + 1) / (self.limit + 1)
        by_time = 0.0 if self.seconds is None else elapsed / self.seconds
        return min(1.0, max(by_steps, by_time))

    def over(self, step: int, elapsed: float) -> bool:
        """Whether training ends after `step` steps and `elapsed` seconds."""
        out_of_steps = self.limit is not None and step >= self.limit
        return out_of_steps or (self.seconds is not None and elapsed >= self.seconds)

    def seconds_left(self, step: int, elapsed: float) -> float | None:
        """An estimate from the pace so far; None before the first step."""
        if step == 0:
            return None
        used = self.progress(step - 1, elapsed)
        return elapsed * (1 - used) / used


def _steps_of_epochs(num_epochs: float | None, steps_in_epoch: Callable[[int], int]) -> int | None:
    """Batching differs from epoch to epoch, so each is counted; at least one step."""
    if num_epochs is None:
        return None
    whole = int(num_epochs)
    steps = sum(steps_in_epoch(epoch) for epoch in range(whole))
    rest = num_epochs - whole
    return max(1, steps + (round(rest * steps_in_epoch(whole)) if rest > 0 else 0))
