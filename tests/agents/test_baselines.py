"""RND, ICM and episodic counts in the agents: what they are given, and runs that stop and go on."""

import dataclasses
import signal

import pytest
import torch
from agents.contract import A2CKind, DrQv2Kind, SACKind
from runs import small, small_sac

from vcse.agents.a2c.agent import A2C
from vcse.agents.a2c.costs import expected_seconds, needs
from vcse.agents.drqv2.agent import DrQv2
from vcse.agents.sac.agent import SAC
from vcse.bonuses import Bonus, BonusOutput, EpisodicCounts, IntrinsicCuriosity
from vcse.envs.mujoco import dmc
from vcse.launch.cohorts import StoppedError
from vcse.launch.configs import run_configs


class Recorder(Bonus):
    """Remembers what it is given, pays 1 for everything, and says in which order it is asked to do what."""

    needs_actions = True
    needs_next_features = True
    needs_episode_starts = True
    learns = True

    def __init__(self, *, learners):
        super().__init__(learners=learners)
        self.given, self.asked = [], []

    def forward(self, features, **given):
        self.given.append({"features": features, **given})
        self.asked.append("pay")
        return BonusOutput(torch.ones_like(features[..., 0]))

    def learn(self, batch):
        self.asked.append("learn")
        assert batch.next_features is self.given[-1]["next_features"]
        return {}


class RecorderOfTransitions(Recorder):
    """The same for what has no order."""

    needs_episode_starts = False


@pytest.mark.parametrize("time_limit", ["ends", "bootstraps"])
def test_a2c_tells_where_episodes_start_from_rollout_to_rollout(time_limit):
    kind = A2CKind()
    config = kind.config("vcse", time_limit=time_limit)
    bonus = Recorder(learners=2)
    agent = A2C(kind.spec, [config] * 2, [0, 1], bonus=bonus)
    assert agent.needs_next_observations
    before = torch.ones(2, 4, 1, dtype=torch.bool)
    for number in range(3):
        rollout = kind.material(number)
        late = torch.rand(1, 4, 8, generator=torch.Generator().manual_seed(number)) < 0.2
        rollout = rollout._replace(truncated=late & ~rollout.terminated)
        both = type(rollout)(*(None if each is None else torch.cat((each, each)) for each in rollout))
        agent.update(both)
        ended = both.terminated | both.truncated
        given = bonus.given[-1]
        expected = torch.cat((before, ended[..., :-1]), -1)
        assert torch.equal(given["episode_starts"], expected.flatten(1))
        assert torch.equal(given["actions"], both.actions.flatten(1))
        before = ended[..., -1:]
        if number == 1:  # another agent goes on from here
            state, bonus = agent.state_dict(), Recorder(learners=2)
            agent = A2C(kind.spec, [config] * 2, [5, 6], bonus=bonus)
            agent.load_state_dict(state)
    assert bonus.asked == ["pay", "learn"]


@pytest.mark.parametrize("sees", ["encoder", "position"])
def test_a2c_shows_a_bonus_what_each_action_led_to(sees):
    kind = A2CKind()
    agent = A2C(kind.spec, [kind.config("none", bonus_features=sees)], [0], bonus=(bonus := Recorder(learners=1)))
    rollout = kind.material(0)
    if sees == "position":
        next_observations = torch.rand(*rollout.actions.shape, 2)
        agent.update(rollout._replace(next_positions=next_observations))
        expected = next_observations.flatten(1, 2)
    else:
        agent.update(rollout)
        expected = agent.random_encoder(rollout.next_observations.flatten(1, 2))
    assert torch.equal(bonus.given[0]["next_features"], expected)
    assert bonus.given[0]["features"].shape == expected.shape
    for lacking, told in ((rollout._replace(next_observations=None), "next_observations"), (rollout, "next_positions")):
        if (sees == "position") == (told == "next_positions"):
            with pytest.raises(ValueError, match=f"{told} is needed in a rollout, for a bonus that looks at the next"):
                agent.update(lacking)


def test_what_actions_led_to_is_kept_for_those_who_look_at_it():
    kind = A2CKind()
    needs = {bonus: A2C(kind.spec, [kind.config(bonus)], [0]).needs_next_observations for bonus in kind.bonuses}
    assert {bonus for bonus, needed in needs.items() if needed} == {"rnd", "icm"}
    assert A2C(kind.spec, [kind.config("none", time_limit="bootstraps")], [0]).needs_next_observations


def test_where_nobody_bootstraps_it_makes_no_difference_to_the_rest():
    """Whether what actions led to is kept or not, for the sake of somebody else's bonus."""
    kind = A2CKind()
    agents = [kind.make([kind.config("vcse")], [0]) for _ in range(2)]
    for number in range(2):
        rollout = kind.material(number)
        agents[0].update(rollout)
        agents[1].update(rollout._replace(next_observations=None))
    assert torch.equal(agents[0].parameters, agents[1].parameters)


def test_sac_pays_before_it_lets_a_bonus_learn():
    kind = SACKind()
    agent = SAC(kind.spec, [kind.config("none")], [0], bonus=(bonus := RecorderOfTransitions(learners=1)))
    kind.update(agent, [0])
    assert bonus.asked == ["pay", "learn"]
    assert torch.equal(bonus.given[0]["next_features"], kind.material(0).next_observations / 5)


def test_drqv2_lets_a_bonus_learn_once_an_update_however_often_it_pays():
    kind = DrQv2Kind()
    agent = DrQv2(kind.spec, kind.config("rnd", n_step=3, return_injection="every_step"), 0)
    [rnd] = agent.bonus.parts
    for number in range(2):
        batch = kind.material(number, steps_between=2)
        agent.update(batch, kind.noise(number), kind.shifts(number), step=2 * number)
    assert rnd.predictor.steps.tolist() == [2]
    assert rnd.reward_moments.count.tolist() == [2 * 3 * 6]
    assert (rnd.needs_next_features, rnd.environments) == (False, None)


def test_what_an_agent_cannot_give_is_refused_by_name():
    for task, bonus, told in (
        ("dmc/hopper_stand", "counts", "the bonus counts needs episode_starts, but the agent sac gives actions, next_"),
        ("dmc-pixels/hopper_stand", "icm", "the bonus icm needs next_features, but the agent drqv2 gives actions, rew"),
        ("dmc-pixels/hopper_stand", "counts", "the bonus counts needs episode_starts, but the agent drqv2 gives"),
    ):
        with pytest.raises(ValueError, match=told):
            run_configs(task, bonus)
    kind = A2CKind()
    with pytest.raises(ValueError, match="EpisodicCounts was made with environments=3, but batches are rollouts of 4"):
        A2C(kind.spec, [kind.config("none")], [0], bonus=EpisodicCounts(environments=3, learners=1))
    with pytest.raises(ValueError, match=r"actions must have shape \(1, 32, 2\)"):
        kind.update(
            A2C(kind.spec, [kind.config("none")], [0], bonus=IntrinsicCuriosity(64, action_size=2, learners=1)), [0]
        )


def test_networks_of_a_bonus_take_time_and_disk():
    plain, learning = (small.make_config(bonus=bonus, frames=100_000) for bonus in ("vcse", "rnd"))
    assert expected_seconds(learning, "cpu") > 1.3 * expected_seconds(plain, "cpu")
    assert expected_seconds(learning, "cuda") == expected_seconds(plain, "cuda")
    assert needs(learning).files > needs(plain).files + 2_000_000


def stop():
    signal.raise_signal(signal.SIGTERM)


def test_runs_of_a2c_that_were_stopped_end_as_those_that_were_not(tmp_path, without_type_checks):
    configs = [small.make_config(bonus=bonus, seed=seed) for seed, bonus in enumerate(("rnd", "icm", "counts", "rnd"))]
    configs[3] = dataclasses.replace(configs[3], method="other")
    small.train(configs, tmp_path / "whole")
    with pytest.raises(StoppedError):
        small.train(configs, tmp_path / "stopped", progress=small.Interrupting(128, stop))
    small.train(configs[2:], tmp_path / "stopped")  # in other company
    small.train(configs, tmp_path / "stopped")
    for config in configs:
        small.assert_same_run(tmp_path / "whole" / config.name, tmp_path / "stopped" / config.name)


@pytest.fixture
def _short_episodes(monkeypatch):
    monkeypatch.setattr(dmc, "MOST_STEPS", small_sac.EPISODE)
    dmc.task_spec.cache_clear()  # it remembers how long episodes were
    yield
    dmc.task_spec.cache_clear()


@pytest.mark.usefixtures("_short_episodes", "without_type_checks")
def test_runs_of_sac_that_were_stopped_end_as_those_that_were_not(tmp_path):
    configs = [small_sac.make_config(bonus, seed) for seed, bonus in enumerate(("rnd", "icm"))]
    small.train(configs, tmp_path / "whole")
    with pytest.raises(StoppedError):
        small.train(configs, tmp_path / "stopped", progress=small.Interrupting(100, stop))
    small.train(configs, tmp_path / "stopped")
    for config in configs:
        small_sac.assert_same_run(tmp_path / "whole" / config.name, tmp_path / "stopped" / config.name)
