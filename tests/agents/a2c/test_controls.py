"""Controls of the value: permuted within the batch, or of a critic that is never trained; and a cost of every step."""

import dataclasses
import signal

import pytest
import torch
from agents.a2c.test_agent import NONE, SPEC, VCSE, make_rollout
from csv_rows import read_rows
from runs.small import EMPTY, LAVA, Interrupting, assert_same_run, make_config, train

from vcse.agents.a2c.agent import A2C
from vcse.agents.a2c.settings import a2c_settings
from vcse.agents.value_permutation import ValuePermutation
from vcse.launch.cohorts import StoppedError

FROZEN = dataclasses.replace(VCSE, values="frozen")


def conditions(agent, rollout, orders):
    """Return what the bonus conditions on in one update after the other."""
    seen, paid = [], agent.weighted_bonus

    def keep(rollout, condition):
        seen.append(condition.flatten(1))
        return paid(rollout, condition)

    agent.weighted_bonus = keep
    for order in orders:
        agent.update(rollout, value_permutation=order)
    return seen


def test_the_bonus_sees_permuted_values_of_the_same_learner():
    rollout = make_rollout(0, learners=2)
    order = ValuePermutation(["permuted", "network"], [0, 1], 128, torch.device("cpu"))
    [own] = conditions(A2C(SPEC, [VCSE, VCSE], [0, 1]), rollout, [None])
    [permuted] = conditions(A2C(SPEC, [VCSE, VCSE], [0, 1]), rollout, [order.of_update(0)])
    assert torch.equal(permuted[0].sort().values, own[0].sort().values)
    assert not torch.equal(permuted[0], own[0])
    assert torch.equal(permuted[1], own[1])


def test_a_cohort_permutes_the_values_of_those_who_ask_for_it_anew_in_every_update(tmp_path, monkeypatch):
    seen = []

    def update(agent, rollout, values=None, order=None):
        seen.append(order.clone())
        return whole(agent, rollout, values, order)

    whole = A2C.update
    monkeypatch.setattr(A2C, "update", update)
    train([controlled("permuted", values="permuted"), make_config(EMPTY, "vcse")], tmp_path)
    assert len(seen) == 9
    assert {tuple(order[1].tolist()) for order in seen} == {tuple(range(32))}
    assert len({tuple(order[0].tolist()) for order in seen}) == 9


def test_a_frozen_critic_is_that_of_the_beginning_and_its_loss_is_told():
    agent = A2C(SPEC, [FROZEN, VCSE], [0, 0])
    first = agent.extrinsic_parameters.clone()
    assert torch.equal(first[0], first[1])
    losses = [agent.update(make_rollout(seed, learners=2)).metrics["extrinsic_value_loss"] for seed in range(3)]
    assert losses[0][0] == losses[0][1] > 0
    assert losses[2][0] != losses[2][1]
    assert losses[2][0] > 0
    assert torch.equal(agent.extrinsic_parameters[0], first[0])
    assert not torch.equal(agent.extrinsic_parameters[1], first[1])


def test_a_frozen_critic_has_no_part_in_the_clipping_of_gradients():
    without_pay = dataclasses.replace(FROZEN, beta=0.0, most_gradient_norm=0.01)
    agents = [A2C(SPEC, [each], [0]) for each in (dataclasses.replace(NONE, most_gradient_norm=0.01), without_pay)]
    for seed in range(3):
        norms = [agent.update(make_rollout(seed)).metrics["gradient_norm"] for agent in agents]
        assert torch.equal(*norms)
    assert torch.equal(agents[0].parameters, agents[1].parameters)


def test_the_extrinsic_critic_does_not_see_the_step_cost():
    configs = [dataclasses.replace(VCSE, step_cost=cost, most_gradient_norm=1e9) for cost in (0.0, 0.5)]
    for injection in ("after_gae", "reward"):
        agents = [A2C(SPEC, [dataclasses.replace(config, injection=injection)], [0]) for config in configs]
        losses = [agent.update(make_rollout(0)).metrics["extrinsic_value_loss"] for agent in agents]
        assert torch.equal(*losses)
        assert torch.equal(agents[0].extrinsic_parameters, agents[1].extrinsic_parameters)
        assert not torch.equal(agents[0].parameters, agents[1].parameters)


def controlled(method, bonus="vcse", task=EMPTY, **deviations):
    return make_config(task, bonus, method=method, settings=a2c_settings(bonus, environments=4, **deviations))


CONTROLS = [
    controlled("permuted", values="permuted"),
    controlled("frozen", values="frozen"),
    controlled("none-cost", "none", step_cost=0.02),
    controlled("vcse-cost", scaling="centered", step_cost=0.02),
    controlled("permuted", task=LAVA, values="permuted", step_cost=0.5, injection="reward"),
]


@pytest.mark.usefixtures("without_type_checks")
def test_controls_are_a_runs_own_survive_a_stop_and_leave_the_others_as_they_are(tmp_path):
    others = [make_config(EMPTY, "none"), make_config(EMPTY, "vcse")]
    alone, together = tmp_path / "alone", tmp_path / "together"
    with pytest.raises(StoppedError):
        train([*CONTROLS, *others], together, progress=Interrupting(128, lambda: signal.raise_signal(signal.SIGTERM)))
    train([*CONTROLS, *others], together)
    for config in [*CONTROLS, *others]:
        train([config], alone)
        assert_same_run(alone / config.name, together / config.name)
    actions = {(alone / config.name / "actions.bin").read_bytes() for config in [*CONTROLS, *others]}
    assert len(actions) == len(CONTROLS) + len(others)


def test_logged_returns_and_the_bonus_are_without_the_step_cost(tmp_path):
    config = controlled("none-cost", "none", step_cost=10.0)
    train([config], tmp_path)
    rows = read_rows(tmp_path / config.name / "train.csv")
    assert all(row["bonus_mean"] == 0 for row in rows)
    assert all(row["return_mean"] >= 0 for row in rows if row["episodes"])
    assert rows[-1]["critic_mean"] < -1
