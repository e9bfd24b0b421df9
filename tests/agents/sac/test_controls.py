"""Controls of the value: permuted within the batch, or of critics that are never trained; and a cost of every step."""

import dataclasses
import signal

import jaxtyping
import pytest
import torch
from agents.contract import SACKind, together
from runs.small import Interrupting, train
from runs.small_sac import EPISODE, assert_same_run, make_config

from vcse.agents.value_permutation import ValuePermutation
from vcse.envs.mujoco import dmc
from vcse.launch.cohorts import StoppedError
from vcse.runs import loop

KIND = SACKind()
FAST = {"learning_rate": 3e-3, "target_rate": 0.3, "beta": 0.5}
NONE, VCSE = (KIND.config(bonus, **FAST) for bonus in ("none", "vcse"))
FROZEN = dataclasses.replace(VCSE, values="frozen")


def batch_of(seed, learners):
    return together([KIND.material(seed)] * learners), torch.cat([KIND.noise(seed)] * learners)


def test_the_bonus_sees_permuted_values_of_the_same_learner():
    order = ValuePermutation(["permuted", "network"], [0, 1], 48, torch.device("cpu")).of_update(0)
    seen = []
    for each in (None, order):
        agent = KIND.make([dataclasses.replace(VCSE, values="permuted"), VCSE], [0, 1])
        paid = agent.weighted_bonus

        def keep(batch, values, paid=paid):
            seen.append(values)
            return paid(batch, values)

        agent.weighted_bonus = keep
        agent.update(*batch_of(0, 2), each)
    own, permuted = seen
    assert torch.equal(permuted[0], own[0][order[0]])
    assert not torch.equal(permuted[0], own[0])
    assert torch.equal(permuted[1], own[1])


def test_frozen_critics_and_their_targets_are_those_of_the_beginning():
    agent = KIND.make([FROZEN, VCSE], [0, 0])
    rows = slice(agent.critic.extrinsic_rows.start, agent.critic.extrinsic_rows.start + 2)
    before = [each[rows].detach().clone() for each in agent.critic.mlp.layers]
    losses = [agent.update(*batch_of(seed, 2)).metrics["extrinsic_critic_loss"] for seed in range(3)]
    assert losses[0][0] == losses[0][1] > 0
    assert losses[2][0] != losses[2][1]
    for critic, target, first in zip(agent.critic.mlp.layers, agent.target_critic.mlp.layers, before, strict=True):
        assert torch.equal(critic[rows], first)
        assert torch.equal(target[rows], first)
        assert not torch.equal(critic[rows.stop :], critic[rows])
    assert not torch.equal(agent.critic.mlp.layers[0][0], before[0][0])


def test_the_extrinsic_critic_does_not_see_the_step_cost():
    agent = KIND.make([VCSE, dataclasses.replace(VCSE, step_cost=0.5)], [0, 0])
    metrics = agent.update(*batch_of(0, 2)).metrics
    for name in ("extrinsic_critic_loss", "batch_reward"):
        assert metrics[name][0] == metrics[name][1]
    assert metrics["critic_loss"][0] != metrics["critic_loss"][1]


def test_controls_are_a_runs_own_survive_a_stop_and_leave_the_others_as_they_are(tmp_path, monkeypatch):
    jaxtyping.config.update("jaxtyping_disable", True)
    monkeypatch.setattr(dmc, "MOST_STEPS", EPISODE)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_REPORTS", -1)
    dmc.task_spec.cache_clear()
    configs = [
        make_config(method="permuted", settings={"values": "permuted"}),
        make_config(method="frozen", settings={"values": "frozen"}),
        make_config("none", method="none-cost", settings={"step_cost": 0.5}),
        make_config(),
    ]
    alone, together_ = tmp_path / "alone", tmp_path / "together"
    try:
        with pytest.raises(StoppedError):
            train(configs, together_, progress=Interrupting(117, lambda: signal.raise_signal(signal.SIGTERM)))
        train(configs, together_)
        for config in configs:
            train([config], alone)
            assert_same_run(alone / config.name, together_ / config.name)
        transitions = {(alone / config.name / "replay.bin").read_bytes() for config in configs}
        assert len(transitions) == len(configs)
    finally:
        dmc.task_spec.cache_clear()  # it remembers how long episodes were here
        jaxtyping.config.update("jaxtyping_disable", False)
