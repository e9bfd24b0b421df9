import pytest
import torch

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.settings import a2c_settings
from vcse.envs.tasks import observation_kind, task_spec
from vcse.play.load import load_policies, newest_checkpoint, usual_episodes
from vcse.runs import checkpoint
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory


def make_run(out, *, task="minigrid/LavaGapS5", bonus="vcse", seed=0, frames=(128,), environments=2, eval_episodes=100):
    """Write a run with an untrained agent's checkpoints; gives its directory and the agent of the last."""
    config = RunConfig(
        task=task,
        agent="a2c",
        method=bonus,
        seed=seed,
        reading="release",
        frames=max(frames, default=128),
        settings=a2c_settings(bonus, task=task, environments=environments),
        eval_episodes=eval_episodes,
    )
    spec = task_spec(task)
    agent = A2C(A2CSpec(spec.observation_shape, spec.actions, observation_kind(task)), [config.settings], [seed])
    directory = RunDirectory(out / config.name, config)
    for frame in frames:
        with torch.no_grad():
            agent.parameters += 0.01  # other than those that the seed gives
        agent.encoder.cache_matrices()
        directory.save_checkpoint(frame, {"agent": agent.learner_state(0)})
    directory.close()
    return directory.path, agent


def test_runs_of_any_bonus_and_batch_share_an_agent_and_act_as_they_did(tmp_path):
    made = [
        make_run(tmp_path, bonus="vcse", seed=0),
        make_run(tmp_path, bonus="se", seed=1, environments=3),
        make_run(tmp_path, bonus="none", seed=2),
    ]
    (policies,) = load_policies([path for path, _ in made])
    assert [config.method for config in policies.configs] == ["none", "se", "vcse"]
    assert policies.frame == 128
    seen = torch.randint(0, 6, (1, 5, 7, 7, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    theirs = dict(made)
    for learner, path in enumerate(policies.paths):
        here = policies.agent.action_probabilities(seen, slice(learner, learner + 1))
        torch.testing.assert_close(here, theirs[path].action_probabilities(seen), rtol=0, atol=0)


def test_other_shapes_and_other_frames_are_other_agents(tmp_path):
    paths = [
        make_run(tmp_path, task="minigrid/LavaGapS6")[0],
        make_run(tmp_path, seed=1)[0],
        make_run(tmp_path, seed=0)[0],
        make_run(tmp_path, seed=2, frames=(256,))[0],
        make_run(tmp_path, task="minigrid-full/LavaGapS7")[0],
    ]
    found = [[(c.task, c.seed, each.frame) for c in each.configs] for each in load_policies(paths)]
    assert found == [
        [("minigrid/LavaGapS5", 0, 128), ("minigrid/LavaGapS5", 1, 128), ("minigrid/LavaGapS6", 0, 128)],
        [("minigrid/LavaGapS5", 2, 256)],
        [("minigrid-full/LavaGapS7", 0, 128)],
    ]


def test_runs_that_share_an_agent_agree_in_how_many_episodes_evaluate_them(tmp_path):
    paths = [make_run(tmp_path, seed=seed, eval_episodes=count)[0] for seed, count in enumerate((20, 5, 20, 0))]
    found = [([c.seed for c in each.configs], usual_episodes(each)) for each in load_policies(paths)]
    assert found == [([0, 2], 20), ([1], 5), ([3], 100)]


def test_a_run_that_is_being_written_can_be_read(tmp_path):
    path, _ = make_run(tmp_path)
    (policies,) = load_policies([path])
    writer = RunDirectory(path, policies.configs[0])
    assert load_policies([path])[0].frame == 128
    writer.close()


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_taken(tmp_path, capsys):
    path, _ = make_run(tmp_path, frames=(128, 256))
    newest = path / "checkpoint" / "frame000000000256.pt"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert newest_checkpoint(path, "a2c").frame == 128
    assert "frame000000000256.pt is damaged" in capsys.readouterr().err


def test_a_checkpoint_that_is_dropped_while_it_is_read_is_looked_for_again(tmp_path, monkeypatch):
    path, _ = make_run(tmp_path, frames=(128, 256))
    read, failures = checkpoint.load, [FileNotFoundError("dropped")]

    def load_once_dropped(file):
        if failures:
            raise failures.pop()
        return read(file)

    monkeypatch.setattr(checkpoint, "load", load_once_dropped)
    assert newest_checkpoint(path, "a2c").frame == 256


def test_a_run_that_saved_nothing_is_named_and_left_out(tmp_path, capsys):
    with_policy, without = make_run(tmp_path)[0], make_run(tmp_path, seed=1, frames=())[0]
    (policies,) = load_policies([with_policy, without])
    assert policies.paths == [with_policy]
    assert capsys.readouterr().err == f"vcse: {without} has no whole checkpoint yet and is left out\n"
    with pytest.raises(ValueError, match="seed1 has no whole checkpoint yet: there is no policy to load"):
        load_policies([without])
    with pytest.raises(ValueError, match=r"none of 2 runs \(.*seed1, ...\) has a whole checkpoint yet"):
        load_policies([without, without])


def test_of_a_run_whose_checkpoints_are_damaged_nothing_is_promised(tmp_path, capsys):
    whole, damaged = make_run(tmp_path)[0], make_run(tmp_path, seed=1)[0]
    (damaged / "checkpoint" / "frame000000000128.pt").write_bytes(b"noise")
    assert [each.paths for each in load_policies([whole, damaged])] == [[whole]]
    assert f"vcse: {damaged} has no whole checkpoint and is left out\n" in capsys.readouterr().err
    with pytest.raises(ValueError, match="seed1 has no whole checkpoint: there is no policy to load"):
        load_policies([damaged])


@pytest.mark.parametrize(
    ("state", "lacking"), [({"update": 3}, "agent"), ({"agent": 3}, "agent"), ({"agent": {}}, "agent.parameters")]
)
def test_a_checkpoint_without_a_policy_is_passed_over_like_a_damaged_one(tmp_path, capsys, state, lacking):
    whole, odd = make_run(tmp_path)[0], make_run(tmp_path, seed=1)[0]
    written = checkpoint.save(odd / "checkpoint", 256, state)
    found = load_policies([whole, odd])
    assert [(each.paths, each.frame) for each in found] == [([whole, odd], 128)]
    told = capsys.readouterr().err
    assert told.startswith(f"vcse: {written} holds no {lacking}")
    assert told.endswith("; going back to frame 128\n")
    checkpoint.drop_after(odd / "checkpoint", 0)
    written = checkpoint.save(odd / "checkpoint", 256, state)
    assert [each.paths for each in load_policies([whole, odd])] == [[whole]]
    told = capsys.readouterr().err
    assert "there is none before: there is no policy to load" in told
    assert f"vcse: {odd} has no whole checkpoint and is left out" in told
