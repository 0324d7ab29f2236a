"""Learning rates and budgets, by their values."""

import pytest

from draftsmith.configs.train import BudgetConfig, OptimizerConfig
from draftsmith.train.budget import Budget
from draftsmith.train.optimizer import learning_rate


def steps_in_epoch(epoch: int) -> int:
    return [10, 12, 11][epoch]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 0.75, 0.5, 0.0]),
        ("cosine", [0.5, 1.0, 0.8535534, 0.5, 0.0]),
    ],
)
def test_learning_rates(schedule: str, expected: list[float]) -> None:
    config = OptimizerConfig(lr=2.0, schedule=schedule, warmup_ratio=0.2)
    rates = [learning_rate(config, progress) / 2.0 for progress in (0.1, 0.2, 0.4, 0.6, 1.0)]
    assert rates == pytest.approx(expected, abs=1e-7)


def test_the_rate_falls_to_its_floor_and_needs_no_warm_up() -> None:
    config = OptimizerConfig(lr=1.0, schedule="linear", warmup_ratio=0.0, min_lr_ratio=0.1)
    assert learning_rate(config, 0.0) == 1.0
    assert learning_rate(config, 0.5) == pytest.approx(0.55)
    assert learning_rate(config, 1.0) == pytest.approx(0.1)


@pytest.mark.parametrize(("epochs", "steps"), [(1, 10), (2, 22), (2.5, 28), (0.01, 1)])
def test_epochs_are_counted_in_steps(epochs: float, steps: int) -> None:
    assert Budget(BudgetConfig(num_epochs=epochs), steps_in_epoch).limit == steps


def test_the_nearest_limit_rules() -> None:
    budget = Budget(BudgetConfig(num_epochs=2, max_steps=15, max_minutes=1), steps_in_epoch)
    assert budget.limit == 15
    assert budget.progress(0, 0.0) == 1 / 16
    assert budget.progress(7, 45.0) == 0.75
    assert budget.progress(13, 30.0) == 14 / 16
    assert not budget.over(14, 59.0)
    assert budget.over(15, 1.0)
    assert budget.over(3, 60.0)


def test_progress_by_steps_never_rests_at_either_end() -> None:
    budget = Budget(BudgetConfig(max_steps=4), steps_in_epoch)
    shares = [budget.progress(step, 1e9) for step in range(4)]
    assert shares == [0.2, 0.4, 0.6, 0.8]


def test_time_left_follows_the_pace() -> None:
    budget = Budget(BudgetConfig(max_steps=9), steps_in_epoch)
    assert budget.seconds_left(0, 0.0) is None
    assert budget.seconds_left(5, 10.0) == pytest.approx(10.0)
    by_time = Budget(BudgetConfig(max_minutes=1), steps_in_epoch)
    assert by_time.seconds_left(3, 20.0) == pytest.approx(40.0)
