import copy
import sys

import pytest
import torch
from integrations.common import same

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from integrations.sb3_agents import (
    AGENTS,
    DICTIONARIES,
    IMAGES,
    OFF_POLICY,
    STEPS,
    Calls,
    bonus,
    continued,
    environments,
    greedy,
    make,
    train,
    weights,
)
from stable_baselines3.common.callbacks import CheckpointCallback

from vcse.integrations.sb3 import STATE

of_every_agent = pytest.mark.parametrize("kind", AGENTS)
MORE = [(kind, space) for space in (IMAGES, DICTIONARIES) for kind in ("ppo", "dqn")]


def assert_it_goes_on(kind, path, **which):
    one = train(kind, bonus(1.0), envs=environments(kind, **which))
    one.save(path / "agent.zip")
    other = AGENTS[kind].load(path / "agent.zip", device="cpu")
    assert same(vars(other)[STATE], one.vcse_bonus.state_dict())
    if kind in OFF_POLICY:
        one.save_replay_buffer(path / "replay.pkl")
        other.load_replay_buffer(path / "replay.pkl")
    if kind == "recurrent":  # Stable-Baselines3 does not save the state of its memory
        other._last_lstm_states = one._last_lstm_states
    callbacks = bonus(1.0), bonus(1.0)
    for model, callback in zip((one, other), callbacks, strict=True):
        continued(model, callback, envs=environments(kind, **which), steps=2 * STEPS)
    assert same(weights(one), weights(other))
    assert same(callbacks[0].part.state_dict(), callbacks[1].part.state_dict())
    # Another bonus, which had learned nothing, would have led elsewhere.
    fresh = AGENTS[kind].load(path / "agent.zip", device="cpu")
    del fresh.vcse_bonus
    if kind in OFF_POLICY:
        fresh.load_replay_buffer(path / "replay.pkl")
    continued(fresh, bonus(1.0), envs=environments(kind, **which), steps=2 * STEPS)
    assert not same(weights(one), weights(fresh))


@of_every_agent
def test_saved_and_loaded_it_goes_on_as_if_it_had_not_stopped(kind, tmp_path):
    assert_it_goes_on(kind, tmp_path)


@pytest.mark.parametrize(("kind", "space"), MORE)
def test_so_it_does_with_images_and_dictionaries(kind, space, tmp_path):
    assert_it_goes_on(kind, tmp_path, space=space)


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_checkpoints_in_the_middle_of_training_have_what_was_learned_by_then(kind, tmp_path):
    callback, states = bonus(1.0), {}
    note = Calls(at_step=lambda each: states.update({each.n_calls: copy.deepcopy(callback.part.state_dict())}))
    saving = CheckpointCallback(6, str(tmp_path), save_replay_buffer=kind == "sac")
    train(kind, [callback, note, saving], steps=96)  # three rollouts
    files = sorted(tmp_path.glob("*.zip"))
    assert len(files) == 96 // 2 // 6
    for file in files:
        calls = int(file.stem.split("_")[2]) // 2
        assert same(AGENTS[kind].load(file, device="cpu").vcse_bonus, dict(states[calls]))
    assert not same(states[6], states[36])


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_where_there_is_no_vcse_the_file_is_loaded_all_the_same(kind, tmp_path, monkeypatch):
    model = train(kind, bonus(1.0))
    model.save(tmp_path / "agent.zip")
    for name in [name for name in sys.modules if name == "vcse" or name.startswith("vcse.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError):
        import vcse.integrations.sb3  # noqa: F401
    loaded = AGENTS[kind].load(tmp_path / "agent.zip", envs_of(kind), device="cpu")
    assert type(loaded.vcse_bonus) is dict
    assert {type(each) for name, each in loaded.vcse_bonus.items() if name != "_extra_state"} == {torch.Tensor}
    observations = model.env.reset()
    assert greedy(model, observations) == greedy(loaded, observations)
    loaded.learn(2 * STEPS)  # without a bonus, which it keeps
    loaded.save(tmp_path / "again.zip")
    assert same(AGENTS[kind].load(tmp_path / "again.zip", device="cpu").vcse_bonus, loaded.vcse_bonus)


def envs_of(kind):
    return environments(kind, seed=3)


def test_what_was_left_out_of_the_file_begins_anew(tmp_path):
    model = train("ppo", bonus(1.0))
    model.save(tmp_path / "agent.zip", exclude=[STATE])
    loaded = AGENTS["ppo"].load(tmp_path / "agent.zip", envs_of("ppo"), device="cpu")
    assert STATE not in vars(loaded)
    loaded.learn(2 * STEPS, callback=bonus(1.0))


def test_a_model_is_copied_with_what_its_bonus_has_learned():
    model, callback = make("ppo", environments("ppo")), bonus(1.0)
    model.learn(2 * STEPS, callback=callback)
    assert same(copy.deepcopy(model.vcse_bonus), dict(callback.part.state_dict()))


def test_one_callback_serves_one_training_after_another():
    callback = bonus(1.0)
    model = make("ppo").learn(2 * STEPS, callback=callback)
    first = callback.part
    model.learn(2 * STEPS, callback=callback)
    assert callback.part is not first
    steps = {each["step"].item() for each in callback.part.optimizer.state_dict()["state"].values()}
    assert steps == {8}  # four of each training: PPO's two epochs of two batches
