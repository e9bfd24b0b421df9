import dataclasses
import math

import pytest
import torch
from runs.small import make_config, train

from vcse.bonuses import Bonus, BonusOutput, register_bonus, registry
from vcse.launch.configs import run_configs
from vcse.launch.payments import find_payment_problem, is_of_ones_own
from vcse.runs.progress import TrainingProgress

ENDING = "so that it pays for ending episodes; --reading recommended (or --scaling standardized) has a mean of 0"
DUPLICATES = "nearly all states have so many duplicates in a batch that the bonus does not tell them apart"
[PENDULUM] = run_configs("gymnasium/Pendulum-v1", "vcse", frames=40_000, beta=0.1)


def rows(*, bonus_mean=1.0, bonus_std=1.0, count=2, every=10_000, length=100, return_mean=0.0, **others):
    """Return rows of a run whose episodes have one length and one return."""
    known = {"return_mean": return_mean, "bonus_mean": bonus_mean, "bonus_std": bonus_std, "success_rate": math.nan}
    frames = [every * (row + 1) for row in range(count)]
    return [{"frame": frame, "episodes": frame // length, **known, **others} for frame in frames]


@pytest.mark.parametrize(
    ("bonus_mean", "return_mean", "is_said"),
    [
        (-2.0, 0.0, True),
        (-2.0, math.nan, False),  # no episode has ended
        (math.nan, 0.0, False),
        (-2.0, 39.0, True),  # 0.39 a step, of which half is less than 0.2
        (-2.0, -39.0, True),
        (-2.0, 41.0, False),
        (2.0, 0.0, False),
        (-1e-4, 0.0, False),  # rounding, of a bonus whose mean was taken off
    ],
)
def test_a_bonus_that_costs_more_than_the_task_pays_is_said_to_pay_for_ending(bonus_mean, return_mean, is_said):
    said = find_payment_problem(PENDULUM, rows(bonus_mean=bonus_mean, return_mean=return_mean))
    assert said.endswith(ENDING) == is_said
    assert bool(said) == is_said


def test_one_row_is_no_alarm_unless_it_is_all_that_a_run_has():
    assert find_payment_problem(PENDULUM, rows(bonus_mean=-2.0, count=1)) == ""
    assert find_payment_problem(dataclasses.replace(PENDULUM, frames=10_000), rows(bonus_mean=-2.0, count=1))
    first, second = rows(bonus_mean=-2.0)
    assert find_payment_problem(PENDULUM, [first, second | {"bonus_mean": 2.0}]) == ""
    assert find_payment_problem(PENDULUM, [first | {"bonus_mean": 2.0}, second, second | {"frame": 30_000}])


def test_a_bonus_that_does_not_vary_is_told_unless_the_task_is_solved():
    assert find_payment_problem(PENDULUM, rows(zero_radius_share=0.96)).startswith(DUPLICATES)
    assert find_payment_problem(PENDULUM, rows(zero_radius_share=0.94)) == ""
    assert find_payment_problem(PENDULUM, rows(zero_radius_share=0.96, success_rate=0.9)) == ""
    assert find_payment_problem(PENDULUM, rows(bonus_std=0.0)).startswith("all states of a batch earn the same bonus")
    assert find_payment_problem(PENDULUM, [{"frame": 100, "episodes": 1, "return_mean": 1.0}] * 2) == ""  # an own agent


def test_a_warning_before_the_run_is_not_repeated():
    options = {"frames": 40_000, "beta": 0.1}
    [raw] = run_configs("gymnasium/CartPole-v1", "vcse", **options)
    [running] = run_configs("gymnasium/CartPole-v1", "rnd", **options)
    assert find_payment_problem(raw, rows(bonus_mean=-2.0)) == ""
    assert find_payment_problem(running, rows(bonus_mean=-2.0)).endswith(ENDING)


class Tax(Bonus):
    """Costs about as much in every state."""

    def __init__(self, *, learners=None, scaling="raw"):
        super().__init__(learners=learners, scaling=scaling)

    @torch.no_grad()
    def forward(self, features):
        return BonusOutput(torch.linspace(-1.1, -0.9, features.shape[-2]).expand(features.shape[:-1]))


@pytest.fixture
def tax(monkeypatch):
    def make(choice, *, learners, dimensions, check_finite):
        return Tax(learners=learners, scaling=choice.scaling)

    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))  # which forgets it after the test
    register_bonus("tax", make, kind=Tax, has_neighbors=False)


def test_of_the_papers_tasks_and_bonuses_nothing_is_said(tax):
    assert is_of_ones_own(PENDULUM)
    assert is_of_ones_own(make_config(bonus="tax"))
    assert not is_of_ones_own(make_config(bonus="vcse"))
    assert not is_of_ones_own(make_config(bonus="none"))
    assert not is_of_ones_own(run_configs("gymnasium/Pendulum-v1", "none")[0])


def test_it_reaches_the_terminal_once_for_all_seeds_even_where_nothing_else_is_shown(tax, tmp_path, capsys):
    configs = [
        make_config(bonus=bonus, seed=seed, frames=640, eval_episodes=0)
        for bonus in ("tax", "vcse")
        for seed in range(2)
    ]
    train(configs, tmp_path, progress=TrainingProgress(quiet=True))
    assert capsys.readouterr().err == (
        "vcse: warning, minigrid-Empty-5x5/tax: the bonus is negative on average, and large beside the task's reward "
        f"(bonus_mean in train.csv, times beta), {ENDING}\n"
    )
