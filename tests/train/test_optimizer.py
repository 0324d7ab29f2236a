"""Learning rates and budgets, by their values."""

import pytest

from draftsmith.configs.train import BudgetConfig, OptimizerConfig
from draftsmith.train.budget import Budget, Work
from draftsmith.train.optimizer import learning_rate

WORK = Work(per_step=100.0, per_measurement=0.0, every_steps=None)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.775, 0.55, 0.325]),
        ("cosine", [0.5, 1.0, 1.0, 0.8682, 0.55, 0.2318]),
    ],
)
def test_learning_rates(schedule: str, expected: list[float]) -> None:
    config = OptimizerConfig(lr=2.0, schedule=schedule, warmup_ratio=0.3, min_lr_ratio=0.1)
    rates = [learning_rate(config, step, 6) / 2.0 for step in range(6)]
    assert rates == pytest.approx(expected, abs=1e-4)


def test_without_warmup_the_first_rate_is_the_peak() -> None:
    config = OptimizerConfig(lr=1.0, warmup_ratio=0.0)
    assert learning_rate(config, 0, 4) == 1.0
    assert learning_rate(config, 0, 1) == 1.0
    assert learning_rate(config, 3, 4) > 0


def test_epochs_are_counted_one_by_one_and_may_be_fractions() -> None:
    steps_in_epoch = [10, 11, 9].__getitem__
    for epochs, steps in ((1, 10), (2, 21), (2.5, 25), (0.01, 1)):
        assert Budget(BudgetConfig(num_epochs=epochs), WORK, steps_in_epoch).total == steps
    both = BudgetConfig(num_epochs=2, max_steps=15)
    assert Budget(both, WORK, steps_in_epoch).total == 15


def measured(config: BudgetConfig, work: Work = WORK) -> tuple[Budget, str | None]:
    """Two slow steps, then five of 1 s and 100 tokens each: 7 steps after 15 s."""
    budget = Budget(config, work, lambda epoch: 1000)
    line = None
    for step, elapsed in enumerate([6.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0], start=1):
        assert budget.over(step - 1, elapsed - 1.0) is None
        line = budget.observe(step, 100.0, elapsed)
    return budget, line


def test_minutes_become_steps_once_five_were_timed() -> None:
    budget, line = measured(BudgetConfig(max_minutes=1))
    assert budget.total == 7 + 45
    assert line is not None
    assert "hold 52 steps at 100 supervised tokens/s" in line
    assert budget.observe(8, 100.0, 30.0) is None
    assert budget.over(52, 59.0) == ""
    assert budget.over(51, 59.0) is None
    assert "over at step 40 of 52" in (budget.over(40, 60.5) or "")


def test_measurements_take_their_time_out_of_the_budget() -> None:
    # 40 tokens' worth of work at the end and after every fifth step: 45 s hold 4460 / 108.
    budget, _ = measured(BudgetConfig(max_minutes=1), Work(100.0, 100.0, 5))
    assert budget.total == 7 + 41


def test_the_lowest_limit_counts() -> None:
    budget, line = measured(BudgetConfig(max_minutes=1, max_steps=20))
    assert budget.total == 20
    assert line is not None
    assert "another limit is lower" in line
    short = Budget(BudgetConfig(max_minutes=1, max_steps=3), WORK, lambda epoch: 1000)
    assert short.over(3, 1.0) == ""


def test_too_short_a_time_says_so() -> None:
    budget = Budget(BudgetConfig(max_minutes=0.1), WORK, lambda epoch: 1000)
    assert budget.over(1, 3.0) is None
    assert "before the steps could be timed" in (budget.over(2, 7.0) or "")


def test_a_resumed_run_keeps_its_number_of_steps() -> None:
    budget = Budget(BudgetConfig(max_minutes=1), WORK, lambda epoch: 1000, total=33)
    assert budget.total == 33
    assert budget.observe(10, 100.0, 1.0) is None
