import copy
import doctest
import sys
import threading

import pytest
import torch
from integrations.common import copy_of, same

pytest.importorskip("torchrl", reason="TorchRL is not installed")

from integrations.torchrl_agents import AGENTS, Concatenated, choices, make, network, pendulum, trained
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.checkpoint import Checkpoint
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, InitTracker, MultiStepTransform, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.transforms import Compose
from torchrl.trainers import Trainer

from vcse.bonuses import EpisodicCounts, NoBonus, ValueConditionalStateEntropy
from vcse.integrations import ReplayBonus, RolloutBonus
from vcse.integrations.torchrl import ReplayReward, RolloutReward

EXTRINSIC, REWARD = ("next", "reward_extrinsic"), ("next", "reward")
of_every_agent = pytest.mark.parametrize("kind", AGENTS)


@of_every_agent
def test_with_a_weight_of_0_the_agent_is_the_plain_one_bit_for_bit(kind):
    plain, free, paid = (trained(kind, beta) for beta in (None, 0.0, 1.0))
    assert same(copy_of(free.loss), copy_of(plain.loss))
    assert same(free.loss.state_dict(), plain.loss.state_dict())
    assert not same(copy_of(paid.loss), copy_of(plain.loss))
    assert (free.last["next", "reward_intrinsic"] == 0).all()


@pytest.mark.parametrize("kind", ["ppo", "a2c"])
def test_the_reward_and_so_the_advantage_of_rollouts_is_of_the_task_s_and_the_bonus(kind):
    agent = make(kind, beta=0.3)
    batch = next(iter(agent.collect(1)))
    plain, part = batch.clone(), agent.bonus.bonus
    states = plain["observation"].flatten(0, 1)  # environment by environment
    with torch.no_grad():
        values = part.critic(states)
    alone = ValueConditionalStateEntropy.recommended(k=5)(states / 3**0.5, values=values).reward
    agent.bonus(batch)
    assert torch.equal(batch[EXTRINSIC], plain[REWARD])
    plain[REWARD] = plain[REWARD] + 0.3 * alone.view(2, 64, 1)
    torch.testing.assert_close(batch[REWARD], plain[REWARD])
    with torch.no_grad():
        agent.advantage(batch)
        agent.advantage(plain)
    torch.testing.assert_close(batch["advantage"], plain["advantage"])


@pytest.mark.parametrize("transform", [True, False])
@pytest.mark.parametrize("kind", ["sac", "td3", "ddpg", "dqn"])
def test_the_reward_of_samples_is_the_task_s_and_the_bonus(kind, transform):
    agent = make(kind, beta=0.3, transform=transform)
    agent.buffer.extend(next(iter(agent.collect(1))).reshape(-1))
    part = agent.bonus.bonus
    target = copy.deepcopy(part.target_critic)
    sample = agent.buffer.sample()
    sample = sample if transform else agent.bonus(sample)
    states = sample["observation"]
    with torch.no_grad():
        values = target(states, part._policy[0](states))
    alone = ValueConditionalStateEntropy.recommended(k=5)(states / states.shape[1] ** 0.5, values=values).reward
    torch.testing.assert_close(sample[REWARD], sample[EXTRINSIC] + 0.3 * alone[:, None])
    stored = agent.buffer.storage[:]
    assert torch.equal(sample[EXTRINSIC], stored[REWARD][sample["index"]])


@pytest.mark.parametrize("kind", ["sac", "dqn"])
def test_stored_rewards_stay_the_task_s(kind):
    plain, agent = trained(kind, batches=1), trained(kind, 1.0, batches=1)
    assert same(agent.buffer.storage[:][REWARD], plain.buffer.storage[:][REWARD])
    read = agent.buffer[:]  # the transform pays what is read, too
    assert not torch.equal(read[REWARD], read[EXTRINSIC])
    assert EXTRINSIC not in agent.buffer.storage[:].keys(include_nested=True)
    assert same(agent.buffer.storage[:][REWARD], plain.buffer.storage[:][REWARD])


@of_every_agent
def test_the_extrinsic_critic_s_gradient_reaches_nothing_else(kind):
    agent = make(kind, 1.0)
    batch = next(iter(agent.collect(1)))
    before, critic = copy_of(agent.loss), copy_of(agent.bonus.bonus.critic)
    for each in agent.loss.parameters():
        each.grad = None
    if kind in ("ppo", "a2c"):
        agent.bonus(batch)
    else:
        agent.buffer.extend(batch)
        agent.buffer.sample()
    assert all(each.grad is None for each in agent.loss.parameters())
    assert same(before, copy_of(agent.loss))
    assert not same(critic, copy_of(agent.bonus.bonus.critic))
    own = {id(each) for each in agent.bonus.parameters()}
    assert not own & {id(each) for each in (*agent.loss.parameters(), *agent.actor.parameters())}
    assert agent.actor.training


@of_every_agent
def test_saved_and_loaded_it_goes_on_as_if_it_had_not_stopped(kind, tmp_path):
    one = make(kind, 1.0)
    first, *rest = list(one.collect(3))
    one.learn(first.clone())
    torch.save([part.state_dict() for part in one.parts()], tmp_path / "agent.pt")
    state = torch.get_rng_state()
    for batch in rest:
        one.learn(batch.clone())
    other = make(kind, 1.0)
    for part, saved in zip(other.parts(), torch.load(tmp_path / "agent.pt", weights_only=False), strict=True):
        part.load_state_dict(saved)
    torch.set_rng_state(state)
    for batch in rest:
        other.learn(batch.clone())
    assert same(one.loss.state_dict(), other.loss.state_dict())
    assert same(one.bonus.state_dict(), other.bonus.state_dict())


def a_batch(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*others):
        return torch.randn(*shape, *others, generator=generator)

    ended = draw(1) > 1.2
    following = {"observation": draw(4), "reward": draw(1), "terminated": ended & (draw(1) > 0), "done": ended}
    return TensorDict({"observation": draw(4), "action": draw(2), "next": following}, shape)


def rollout_reward(bonus=None, **others):
    bonus = ValueConditionalStateEntropy.recommended(k=3) if bonus is None else bonus
    return RolloutReward(RolloutBonus((4,), bonus=bonus, beta=0.5), **others)


def test_a_batch_is_paid_once():
    bonus, batch = rollout_reward(), a_batch(2, 32)
    assert bonus(batch) is batch
    before, state = batch.clone(), copy.deepcopy(bonus.state_dict())
    assert bonus(batch) is batch
    assert (batch == before).all()
    assert same(bonus.state_dict(), state)


def test_a_reward_that_changed_after_the_bonus_was_added_is_refused():
    bonus, batch = rollout_reward(), a_batch(2, 32)
    bonus(batch)
    batch[REWARD] = batch[REWARD] * 2
    with pytest.raises(ValueError, match=r"the reward was changed after the bonus was added.*return_same_td"):
        bonus(batch)


@pytest.mark.parametrize("shape", [(32,), (1, 32), (3, 16), (2, 3, 8)])
def test_batches_of_any_shape_are_paid_environment_by_environment(shape):
    batch = a_batch(*shape)
    flat = batch.reshape(-1, shape[-1])
    part = RolloutBonus((4,), bonus=ValueConditionalStateEntropy.recommended(k=3), beta=0.5)
    names = ("observation", REWARD, ("next", "observation"), ("next", "terminated"), ("next", "done"))
    observations, rewards, later, terminated, ended = (flat[name].transpose(0, 1) for name in names)
    wanted = part(observations, rewards.squeeze(-1), later, terminated.squeeze(-1), ended.squeeze(-1))
    paid = rollout_reward()(batch)["next", "reward_intrinsic"]
    assert paid.shape == (*shape, 1)
    assert torch.equal(paid.reshape(-1, shape[-1]), wanted.T)


def test_time_is_the_axis_of_that_name():
    batch = a_batch(3, 16)
    turned = batch.transpose(0, 1).clone()
    turned.names = ["time", None]
    wanted = rollout_reward()(batch)["next", "reward_intrinsic"]
    assert torch.equal(rollout_reward()(turned)["next", "reward_intrinsic"].transpose(0, 1), wanted)


def counted(bonus, batch):
    """Return which visit of its episode each step of a batch that never moves is, by environment."""
    batch["observation"] = torch.zeros_like(batch["observation"])
    visits = 1 / bonus(batch)["next", "reward_intrinsic"].squeeze(-1)
    return visits.square().round().int().tolist()


def counting(environments):
    return RolloutReward(RolloutBonus((4,), bonus=EpisodicCounts(environments=environments), beta=1.0))


def test_rollouts_that_nothing_connects_are_episodes_of_their_own():
    bonus, env = counting(1), GymEnv("CartPole-v1")
    assert [counted(bonus, env.rollout(4)) for _ in range(2)] == [[1, 2, 3, 4]] * 2
    bonus, env = counting(1), TransformedEnv(env, InitTracker())
    first, second = env.rollout(3, break_when_any_done=False), env.rollout(3)
    second["is_init"][0] = False  # the episode goes on
    assert [counted(bonus, each) for each in (first, second)] == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("resets", [True, False])
def test_episodes_go_on_as_the_collector_s_trajectories_do(resets):
    env = SerialEnv(2, lambda: GymEnv("Pendulum-v1"))
    sizes = {"frames_per_batch": 8, "total_frames": 16, "reset_at_each_iter": resets}
    bonus = RolloutReward(RolloutBonus((3,), bonus=EpisodicCounts(environments=2), beta=1.0))
    seen = [counted(bonus, batch) for batch in Collector(env, None, **sizes)]
    assert seen == [[[1, 2, 3, 4]] * 2, [[1, 2, 3, 4] if resets else [5, 6, 7, 8]] * 2]


def test_batches_of_several_workers_in_turn_are_not_taken_for_one_episode():
    bonus, seen = counting(2), []
    for number in (0, 1, 0):
        batch = a_batch(2, 3)
        batch["next", "done"] = batch["next", "terminated"] = torch.zeros(2, 3, 1, dtype=torch.bool)
        batch["collector", "traj_ids"] = torch.tensor([[2 * number], [2 * number + 1]]).expand(2, 3).clone()
        seen.append(counted(bonus, batch)[0])
    assert seen == [[1, 2, 3], [1, 2, 3], [1, 2, 3]]


def test_padding_of_trajectories_is_neither_paid_nor_a_neighbour():
    batch = a_batch(2, 16)
    alone = rollout_reward()(batch[:1].clone())["next", "reward_intrinsic"]
    batch["collector", "mask"] = torch.tensor([[True], [False]]).expand(2, 16).clone()
    batch["observation"][1] = batch["next", "observation"][1] = torch.nan
    paid = rollout_reward()(batch)["next", "reward_intrinsic"]
    assert torch.equal(paid[:1], alone)
    assert torch.equal(paid[1], torch.zeros(16, 1))


def test_a_bonus_may_look_at_actions_and_several_observations():
    class Looks(NoBonus):
        needs_actions = True

        def forward(self, features, *, actions):
            self.seen = features, actions
            return super().forward(features)

    batch, looks = a_batch(2, 16), Looks()
    batch["goal", "place"] = torch.rand(2, 16, 3)
    batch["next", "goal", "place"] = torch.rand(2, 16, 3)
    part = RolloutBonus({"observation": (4,), "goal.place": (3,)}, bonus=looks)
    RolloutReward(part, in_keys=["observation", ("goal", "place")])(batch)
    features, actions = looks.seen
    joined = torch.cat((batch["goal", "place"], batch["observation"]), -1) / 7**0.5
    torch.testing.assert_close(features, joined.flatten(0, 1))
    assert torch.equal(actions, batch["action"].flatten(0, 1))


def test_an_actor_may_look_at_more_than_the_bonus_does():
    env = pendulum()
    actor = TensorDictModule(Concatenated(network(4, 1)), ["observation", "step_count"], ["action"])
    bonus = ReplayReward.from_env(env, actor, **choices(1.0))
    batch = env.rollout(40)
    batch["step_count"] = batch["step_count"].float()
    batch["next", "step_count"] = batch["next", "step_count"].float()
    paid = bonus(batch)["next", "reward_intrinsic"]
    assert paid.std() > 0
    assert bonus.bonus.encoder(bonus_observations(batch)).shape == (len(batch), 3)


def bonus_observations(batch):
    return {"observation": batch["observation"], "step_count": batch["step_count"]}


def test_returns_of_several_steps_are_discounted_so():
    env, actor = pendulum(), TensorDictModule(network(3, 1), ["observation"], ["action"])
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=20)
    buffer.append_transform(MultiStepTransform(n_steps=3, gamma=0.9))
    buffer.extend(env.rollout(60, break_when_any_done=False))
    sample = buffer.sample()
    bonus = ReplayReward.from_env(env, actor, discount=0.9, **choices(1.0))
    given = {}
    forward = bonus.bonus.forward
    bonus.bonus.forward = lambda *args, **known: given.update(known) or forward(*args, **known)
    bonus(sample)
    assert torch.equal(given["discount"], 0.9 ** sample["steps_to_next_obs"].reshape(-1))
    assert set(sample["steps_to_next_obs"].flatten().tolist()) <= {1, 2, 3}


def trainer_of(agent, path):
    trainer = Trainer(
        collector=agent.collect(2),
        total_frames=256,
        frame_skip=1,
        optim_steps_per_batch=1,
        loss_module=agent.loss,
        optimizer=agent.optimizer,
        progress_bar=False,
        save_trainer_file=path,
        checkpoint=Checkpoint(),
    )
    agent.bonus.register(trainer)
    trainer.register_op("pre_epoch", torch.no_grad()(agent.advantage.forward))
    return trainer


@pytest.mark.filterwarnings("ignore:The 'optimizer' hook stage will be replaced:FutureWarning")
def test_a_trainer_pays_before_advantages_and_saves(tmp_path):
    agent, seen = make("ppo", 1.0), []
    trainer = trainer_of(agent, tmp_path / "trainer")
    trainer.register_op("pre_steps_log", seen.append)
    trainer.train()
    assert len(seen) == 2
    assert all(torch.equal(batch[REWARD], batch[EXTRINSIC] + batch["next", "reward_intrinsic"]) for batch in seen)
    assert trainer._log_dict["bonus/beta"] == [1.0, 1.0]
    assert len(trainer._log_dict["bonus/extrinsic_critic_loss"]) == 2
    other = make("ppo", 1.0)
    assert not same(other.bonus.state_dict(), agent.bonus.state_dict())
    trainer_of(other, tmp_path / "other").load_from_file(tmp_path / "trainer")
    assert same(other.bonus.state_dict(), agent.bonus.state_dict())


def test_prefetching_is_refused():
    agent = make("sac", 1.0, prefetch=2)
    agent.buffer.extend(next(iter(agent.collect(1))))
    agent.buffer.sample()  # in this thread; what it begins to prefetch is not
    with pytest.raises(ValueError, match=r"another thread .* create the buffer with prefetch=None"):
        agent.buffer.sample()
    direct = make("sac", 1.0, prefetch=2, transform=False)
    for batch in direct.collect(1):
        direct.learn(batch)  # what sample() returns may be paid


def test_it_may_be_called_in_any_one_thread():
    raised = []

    def run():
        try:
            trained("sac", 1.0, batches=1)
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert raised == []


@pytest.mark.parametrize("wrap", [lambda bonus: bonus, lambda bonus: Compose(StepCounter(), bonus)])
def test_an_environment_is_refused(wrap):
    env = GymEnv("Pendulum-v1")
    bonus = make("sac", 1.0, transform=False).bonus
    with pytest.raises(ValueError, match=r"an environment has one at a time: append ReplayReward to a replay buffer"):
        TransformedEnv(env, wrap(bonus))
    env = TransformedEnv(env)
    with pytest.raises(ValueError, match=r"an environment has one at a time: append ReplayReward to a replay buffer"):
        env.append_transform(wrap(make("sac", 1.0, transform=False).bonus))


def test_a_rollout_s_bonus_in_an_environment_is_refused():
    with pytest.raises(ValueError, match=r"the batch has no .*'next', 'reward'.*on what a collector returns"):
        TransformedEnv(GymEnv("Pendulum-v1"), RolloutReward.from_env(GymEnv("Pendulum-v1"))).rollout(2)


def test_what_is_missing_or_not_supported_is_named():
    batch = a_batch(2, 16)
    with pytest.raises(ValueError, match=r"^the batch has no 'state', .'next', 'state'.: call RolloutReward on what"):
        rollout_reward(in_keys=["state"])(batch)
    with pytest.raises(ValueError, match=r"^in_keys has 'state', which is not among the environment's observations"):
        RolloutReward.from_env(pendulum(), in_keys=["state"])
    categorical = GymEnv("CartPole-v1", categorical_action_encoding=True)
    with pytest.raises(ValueError, match=r"^actions of shape \(\) are not supported by the default critic"):
        ReplayReward.from_env(categorical, make("dqn").actor)
    with pytest.raises(ValueError, match="k=12 needs at least 13 points in features, got 8"):
        RolloutReward.from_env(pendulum())(pendulum().rollout(8))


def test_the_parts_may_be_made_by_hand():
    part = ReplayBonus(lambda observations: observations[:, :2].tanh(), (4,), 2, beta=0.5)
    batch = ReplayReward(part)(a_batch(32))
    assert torch.equal(batch[REWARD], batch[EXTRINSIC] + batch["next", "reward_intrinsic"])


@pytest.mark.parametrize("public", [RolloutReward, ReplayReward])
def test_the_examples_of_docstrings_print_what_they_say(public):
    (found,) = doctest.DocTestFinder(recurse=False).find(public, module=False, globs={})
    result = doctest.DocTestRunner().run(found)
    assert result.failed == 0
    assert result.attempted > 1


def test_without_torchrl_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrl", None)
    monkeypatch.delitem(sys.modules, "vcse.integrations.torchrl")
    with pytest.raises(
        ImportError, match=r"^vcse.integrations.torchrl needs torchrl: .*pip install 'vcse\[torchrl\]'$"
    ):
        import vcse.integrations.torchrl  # noqa: F401


@pytest.mark.parametrize("version", ["0.9.2", "0.15.0", "1.0"])
def test_a_version_that_is_not_supported_is_named_with_the_range(version, monkeypatch):
    import torchrl

    monkeypatch.setattr(torchrl, "__version__", version)
    monkeypatch.delitem(sys.modules, "vcse.integrations.torchrl")
    with pytest.raises(
        ImportError, match=rf"^torchrl {version} is not supported, but >=0\.14,<0\.15 is: .*\[torchrl\]'$"
    ):
        import vcse.integrations.torchrl  # noqa: F401
