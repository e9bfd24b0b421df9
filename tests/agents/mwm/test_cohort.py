import dataclasses
import json
import math
import shutil
import signal

import jaxtyping
import numpy as np
import pytest
import torch
from agents.contract import assert_same_state
from agents.mwm import toy_images
from agents.mwm.toy_images import (
    DOTS,
    ENDING,
    EPISODE,
    FOREIGN,
    FRAMES,
    PRETRAINING,
    SEED_FRAMES,
    SEED_STEPS,
    STEPS,
    UPDATES,
    Kept,
    assert_same_run,
    make_config,
)
from csv_rows import read_rows
from gl import needs_gl
from runs.small import Interrupting, newest_state, train

from vcse.agents.mwm.agent import MWM
from vcse.agents.mwm.cohort import MWMCohort, check, warning
from vcse.agents.mwm.costs import needs
from vcse.agents.mwm.player import MWMPlayer
from vcse.agents.mwm.settings import MWMSettings
from vcse.cli import main
from vcse.launch.cohorts import StoppedError
from vcse.runs import checkpoint, loop, resources
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.metrics import BONUS_COLUMNS, SHOWN_OF_BONUS
from vcse.runs.progress import TrainingProgress
from vcse.streams import episode_seed, numbers

NONE, VCSE = (make_config(bonus) for bonus in ("none", "vcse"))
ROW_FRAMES = list(range(0, FRAMES + 1, 10))


@pytest.fixture(scope="module", autouse=True)
def _toy_images():
    """Know the toy tasks, and check no types, which is slow."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with pytest.MonkeyPatch.context() as patch:
        toy_images.register(patch)
        yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Runs with and without a bonus."""
    out = tmp_path_factory.mktemp("done")
    train([NONE, VCSE], out)
    return out


@pytest.fixture
def copy(done, tmp_path):
    """A finished run, to be spoilt; it goes on from frame 56."""
    out = tmp_path / "copy"
    shutil.copytree(done / VCSE.name, out / VCSE.name)
    (out / VCSE.name / "DONE").unlink()
    checkpoint.drop_after(out / VCSE.name / "checkpoint", 56)
    return out


def stop():
    signal.raise_signal(signal.SIGTERM)


class DeathError(BaseException):
    """The end of a process, which nothing in it may survive but what is on disk."""


def die():
    raise DeathError


def test_what_a_run_leaves_on_disk(done):
    run = done / VCSE.name
    assert sorted(each.name for each in run.iterdir()) == [
        ".lock",
        "DONE",
        "checkpoint",
        "config.json",
        "eval.csv",
        "frames.bin",
        "meta.json",
        "steps.bin",
        "timing.csv",
        "train.csv",
    ]
    assert (run / "DONE").read_text() == f"{FRAMES}\n"
    assert checkpoint.frames(run / "checkpoint") == [FRAMES, 56]
    agent = newest_state(run).state["agent"]
    assert (agent["updates"], agent["autoencoder_updates"]) == (UPDATES, PRETRAINING + UPDATES)
    assert RunConfig.from_json(json.loads((run / "config.json").read_text()), MWMSettings) == VCSE


def test_no_row_is_there_twice_though_the_autoencoder_learns_between_two_frames(done):
    for config in (NONE, VCSE):
        rows = read_rows(done / config.name / "train.csv")
        assert [row["frame"] for row in rows] == ROW_FRAMES
        assert [row["episodes"] for row in rows] == [frame // (2 * EPISODE) for frame in ROW_FRAMES]
        evaluations = read_rows(done / config.name / "eval.csv")
        assert [(row["frame"], row["episodes"]) for row in evaluations] == [(0, 2), (30, 2), (FRAMES, 2)]
        shown = {row["frame"]: row["eval_return_mean"] for row in rows if not math.isnan(row["eval_return_mean"])}
        assert shown == {row["frame"]: row["return_mean"] for row in evaluations}


def known(row):
    return {name for name, number in row.items() if not math.isnan(number)}


def test_columns_are_the_same_for_every_bonus_and_empty_where_there_is_nothing_to_say(done):
    rows = {config.method: read_rows(done / config.name / "train.csv") for config in (NONE, VCSE)}
    assert len({tuple(row) for each in rows.values() for row in each}) == 1
    assert set(rows["none"][0]) >= {*MWM.METRICS, *SHOWN_OF_BONUS, "eval_success_rate"}
    plain, paid = (rows[method][-1] for method in ("none", "vcse"))
    assert known(plain) >= {*MWM.METRICS, "eval_return_mean", "eval_success_rate", "success_rate", "return_mean"}
    assert not known(plain) & set(SHOWN_OF_BONUS)
    assert known(paid) - known(plain) == set(BONUS_COLUMNS)
    assert [plain[name] for name in ("bonus_mean", "intrinsic_loss", "extrinsic_critic_loss")] == [0, 0, 0]
    assert min(paid[name] for name in ("intrinsic_loss", "extrinsic_critic_loss", "critic_loss")) > 0
    for row in rows["vcse"][: ROW_FRAMES.index(SEED_FRAMES) + 1]:  # nothing was learned so far
        assert not known(row) & {*MWM.METRICS, "bonus_mean"}


def test_every_image_is_kept_once_with_what_led_to_it(done):
    kept = Kept(done / VCSE.name)
    begins = np.flatnonzero(kept.positions == 0)
    assert begins.tolist() == list(range(0, STEPS + STEPS // EPISODE, EPISODE + 1))
    assert len(kept.images) == STEPS + len(begins)
    assert not kept.terminated.any()
    environment = MWMPlayer().make([VCSE], 1, device="cpu", threads=1)
    for number, begin in enumerate(begins):
        shown = environment.reset([episode_seed(VCSE.seed, number * EPISODE)])
        assert np.array_equal(shown[0], kept.images[begin])
        assert (kept.actions[begin].any(), kept.rewards[begin]) == (False, 0)
        for place in range(begin + 1, min(begin + 1 + EPISODE, len(kept.images))):
            environment.send(kept.actions[place : place + 1])
            step = environment.receive()
            assert np.array_equal(step.next_observations[0], kept.images[place])
            assert step.rewards[0] == kept.rewards[place]


def test_first_actions_are_random_and_later_ones_the_policys(done):
    kept = Kept(done / VCSE.name)
    actions = kept.actions[kept.positions > 0]
    for step, action in enumerate(actions):
        uniforms = numbers(VCSE.seed, "actions", step).random((1, 3 + 2), dtype=np.float32)[0, 3:]
        assert np.array_equal(action, 2 * uniforms - 1) == (step < SEED_STEPS)


def test_an_action_follows_from_all_images_of_its_episode_and_from_all_updates_but_the_last(tmp_path, monkeypatch):
    config = make_config("vcse", eval_episodes=0)
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = MWMCohort([directory])
    agent, order, updates = cohort.agent, [], {"made": 0, "acted on": 0}
    act, learn, adopt, alone = agent.act, agent.update_networks, agent.update_acting_policy, agent.update_autoencoder

    def acting(images, memory, uniforms, noise):
        order.append(("act", cohort.step_count, updates["acted on"]))
        before = cohort.replay.positions_of_newest
        assert torch.equal(images[0], cohort.image)
        is_begin = cohort.step_count == cohort.episode_begin
        assert is_begin == (before == 0)
        assert (not any(each.any() for each in memory)) == (is_begin or cohort.step_count == SEED_STEPS)
        return act(images, memory, uniforms, noise)

    def learning(batch):
        updates["made"] += 1
        order.append(("learn", cohort.step_count))
        assert batch.images.shape == (4, 5, 3, 16, 16)
        return learn(batch)

    def adopting():
        updates["acted on"] = updates["made"]
        adopt()

    def learning_alone(batch):
        order.append(("see", cohort.step_count))
        assert batch.images.shape == (3, 4, 3, 16, 16)
        return alone(batch)

    newest = property(lambda replay: replay.position + (cohort.pending is not None))
    monkeypatch.setattr(type(cohort.replay), "positions_of_newest", newest, raising=False)
    for name, replacement in (("act", acting), ("update_networks", learning), ("update_acting_policy", adopting)):
        monkeypatch.setattr(agent, name, replacement)
    monkeypatch.setattr(agent, "update_autoencoder", learning_alone)
    cohort.begin()
    while cohort.frame < FRAMES:
        cohort.step()
    expected = [("see", SEED_STEPS)] * PRETRAINING
    for step in range(SEED_STEPS, STEPS):
        expected.append(("act", step, (step - SEED_STEPS) // 2 - (step % 2 == 0) if step > SEED_STEPS else 0))
        expected += [("see", step), ("learn", step)] if step % 2 == 0 else []
    assert order == [
        each if each[0] != "act" else ("act", each[1], max(0, (each[1] - SEED_STEPS - 1) // 2)) for each in expected
    ]
    cohort.close()
    directory.close()


@pytest.mark.parametrize("at", [6, 16, SEED_FRAMES, 26, 32, 46])
def test_stopped_before_or_after_the_first_update_a_run_goes_on_to_the_same_end(done, tmp_path, at):
    with pytest.raises(StoppedError):
        train([VCSE], tmp_path, progress=Interrupting(at, stop))
    assert checkpoint.frames(tmp_path / VCSE.name / "checkpoint")[0] == at
    train([VCSE], tmp_path)
    assert_same_run(tmp_path / VCSE.name, done / VCSE.name)


def at_update_of_autoencoder(monkeypatch, number, do):
    """Do something in the middle of an update of the autoencoder, counted from the first of the run."""
    plain = MWM.update_autoencoder

    def update(agent, batch):
        if agent.autoencoder_updates == number:
            do()
        return plain(agent, batch)

    monkeypatch.setattr(MWM, "update_autoencoder", update)


@pytest.mark.parametrize("number", [0, 3, PRETRAINING - 1])
@pytest.mark.parametrize("config", [NONE, VCSE], ids=["none", "vcse"])
def test_stopped_while_the_autoencoder_learns_alone_a_run_goes_on_to_the_same_end(
    done, tmp_path, monkeypatch, config, number
):
    with monkeypatch.context() as patch:
        at_update_of_autoencoder(patch, number, stop)
        with pytest.raises(StoppedError):
            train([config], tmp_path)
    saved = newest_state(tmp_path / config.name)
    assert (saved.frame, saved.state["agent"]["autoencoder_updates"]) == (SEED_FRAMES, number + 1)
    train([config], tmp_path)
    assert_same_run(tmp_path / config.name, done / config.name)


def test_stopped_again_and_again_a_run_goes_on_to_the_same_end(done, tmp_path, monkeypatch):
    for number in (1, 2, 4):
        with monkeypatch.context() as patch:
            at_update_of_autoencoder(patch, number, stop)
            with pytest.raises(StoppedError):
                train([NONE], tmp_path)
    for at in (22, 24, 36):
        with pytest.raises(StoppedError):
            train([NONE], tmp_path, progress=Interrupting(at, stop))
    train([NONE], tmp_path)
    assert_same_run(tmp_path / NONE.name, done / NONE.name)


def test_what_was_unsaved_for_too_long_is_saved_while_the_autoencoder_learns_alone(done, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "MOST_SECONDS_UNSAVED", -1.0)
        at_update_of_autoencoder(patch, 4, die)
        with pytest.raises(DeathError):
            train([VCSE], tmp_path)
    assert newest_state(tmp_path / VCSE.name).state["agent"]["autoencoder_updates"] == 4
    train([VCSE], tmp_path)
    assert_same_run(tmp_path / VCSE.name, done / VCSE.name)


def test_a_death_takes_a_run_back_to_its_checkpoint_and_it_ends_the_same(done, tmp_path, monkeypatch):
    for number, frame in ((3, 14), (PRETRAINING + 3, 28), (PRETRAINING + 8, 42)):
        with monkeypatch.context() as patch:
            at_update_of_autoencoder(patch, number, die)
            with pytest.raises(DeathError):
                train([VCSE], tmp_path)
        assert checkpoint.frames(tmp_path / VCSE.name / "checkpoint")[0] == frame
    train([VCSE], tmp_path)
    assert_same_run(tmp_path / VCSE.name, done / VCSE.name)


def test_a_death_before_the_first_checkpoint_takes_a_run_back_to_its_beginning(done, tmp_path):
    with pytest.raises(DeathError):
        train([NONE], tmp_path, progress=Interrupting(8, die))
    train([NONE], tmp_path)
    assert_same_run(tmp_path / NONE.name, done / NONE.name)


def test_stopped_in_its_first_evaluation_a_run_goes_on_to_the_same_end(done, tmp_path, monkeypatch):
    plain = MWMPlayer.play

    def play(*arguments, **settings):
        stop()
        return plain(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(MWMPlayer, "play", play)
        with pytest.raises(StoppedError):
            train([NONE], tmp_path)
    train([NONE], tmp_path)
    assert_same_run(tmp_path / NONE.name, done / NONE.name)


@pytest.mark.parametrize(
    ("bonus", "reading", "changes"),
    [
        ("rnd", "clean", {"replay_capacity": 12}),
        ("se", "paper", {"pretraining_updates": 0, "seed_frames": 1}),
        ("rcse", "recommended", {"steps_per_update": 1}),
    ],
    ids=["forgetful rnd", "se without pretraining", "rcse at every step"],
)
def test_deviations_survive_a_stop_too(tmp_path, bonus, reading, changes):
    config = make_config(bonus, reading=reading, eval_episodes=0, settings=changes)
    train([config], tmp_path / "once")
    for at in (20, 34):
        with pytest.raises(StoppedError):
            train([config], tmp_path / "again", progress=Interrupting(at, stop))
    train([config], tmp_path / "again")
    once, again = (tmp_path / each / config.name for each in ("once", "again"))
    for name in ("train.csv", "frames.bin", "steps.bin"):
        assert (again / name).read_bytes() == (once / name).read_bytes(), name
    assert_same_state(newest_state(again).state, newest_state(once).state)


def test_a_run_that_grows_goes_on_where_it_was(done, tmp_path):
    train([dataclasses.replace(NONE, frames=44)], tmp_path)
    assert (tmp_path / NONE.name / "DONE").read_text() == "44\n"
    train([NONE], tmp_path)
    grown, whole = tmp_path / NONE.name, done / NONE.name
    assert [row["frame"] for row in read_rows(grown / "train.csv")] == sorted([*ROW_FRAMES, 44])
    for name in ("frames.bin", "steps.bin"):
        assert (grown / name).read_bytes() == (whole / name).read_bytes()
    assert_same_state(newest_state(grown).state["agent"], newest_state(whole).state["agent"])


@pytest.mark.parametrize(
    ("sampling", "seed_frames", "length", "every"),
    [
        *[("ends", 20, 5, 2), ("ends", 1, 5, 2), ("ends", 1, 5, 3), ("ends", 21, 5, 1)],
        *[("uniform", 20, 5, 2), ("uniform", 1, 5, 1), ("uniform", 1, 5, 2), ("uniform", 1, 4, 1)],
        *[("uniform", 1, 9, 1), ("uniform", 1, 9, 2), ("uniform", 7, 5, 3)],
    ],
)
def test_a_run_that_is_too_short_to_learn_is_warned_of_and_no_other(tmp_path, sampling, seed_frames, length, every):
    settings = {"seed_frames": seed_frames, "steps_per_update": every, "sequence_sampling": sampling}
    settings |= {"sequence_length": length, "pretraining_updates": 1, "batch_size": 2, "horizon": 2}
    config = make_config("none", eval_episodes=0, row_every_frames=1000, settings=settings)
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = MWMCohort([directory])
    actor = list(cohort.agent.acting_policy.actor.parameters())
    unlearned = [each.clone() for each in actor]
    cohort.begin()
    while all(map(torch.equal, actor, unlearned)):
        cohort.step()
    first = cohort.frame
    cohort.close()
    directory.close()
    short, enough = (dataclasses.replace(config, frames=frames) for frames in (first - 2, first))
    assert warning(enough) == ""
    said = f"nothing is learned in {first - 2} frames: the first update comes within {first}, after seed_frames"
    assert warning(short).startswith(said)


def test_a_sequence_that_is_longer_than_an_episode_is_refused_with_both_lengths():
    for name in ("sequence_length", "autoencoder_sequence_length"):
        check(make_config(settings={name: EPISODE + 1}))
        with pytest.raises(ValueError, match=f"{name} must be at most 9, the images of an episode of {DOTS}, got 10"):
            check(make_config(settings={name: EPISODE + 2}))


def test_a_replay_that_never_keeps_an_episode_whole_is_refused_where_sequences_are_of_such_alone():
    message = f"replay_capacity must be at least 16, two episodes of {DOTS}, .* got 15"
    with pytest.raises(ValueError, match=message):
        check(make_config(settings={"replay_capacity": 15}))
    check(make_config(settings={"replay_capacity": 16}))
    check(make_config(settings={"replay_capacity": 15}, frames=30))  # which keeps all of them
    check(make_config(reading="clean", settings={"replay_capacity": 9}))


def test_tasks_that_end_of_themselves_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=f"mwm does not predict where episodes end, as those of {FOREIGN} may"):
        check(make_config(task=FOREIGN))
    config = make_config("none", task=ENDING, eval_every_frames=0)
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = MWMCohort([directory])
    with pytest.raises(ValueError, match=f"mwm does not predict where episodes end, as one of {ENDING} did"):
        loop.train(cohort, FRAMES, report=lambda status: None, should_stop=lambda: False)
    directory.close()


def test_a_run_trains_alone(tmp_path):
    configs = [make_config("none", seed, frames=10, eval_episodes=0) for seed in range(2)]
    directories = [RunDirectory(tmp_path / config.name, config) for config in configs]
    with pytest.raises(ValueError, match="a run that learns from images trains alone, got 2"):
        MWMCohort(directories)
    for directory in directories:
        directory.close()
    train(configs, tmp_path)
    first, second = (Kept(tmp_path / config.name) for config in configs)
    assert not np.array_equal(first.images[0], second.images[0])


def spoil(network, where):
    with torch.no_grad():
        dict(network.named_parameters())[where].fill_(math.nan)


@pytest.mark.parametrize(
    ("part", "where", "loss"),
    [
        ("critic", "output.bias", "critic_loss"),
        ("extrinsic_critic", "output.bias", "extrinsic_critic_loss"),
        ("bonus_head", "output.bias", "intrinsic_loss"),
        ("model", "reward.output.bias", "reward_loss"),
        ("model", "decoder.output.bias", "feature_loss"),
        ("autoencoder", "pixel_output.bias", "autoencoder_loss"),
        ("autoencoder", "reward_output.bias", "autoencoder_reward_loss"),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_run_names_it_and_keeps_the_checkpoint(tmp_path, part, where, loss):
    config = make_config("vcse", 4, eval_episodes=0, row_every_frames=2, settings={"pretraining_updates": 0})
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = MWMCohort([directory])
    spoil(getattr(cohort.agent, part), where)
    message = f"the {loss} of toy-images-dots/vcse/seed4 is not finite at frame {SEED_FRAMES + 2}"
    with pytest.raises(RuntimeError, match=message):
        loop.train(cohort, FRAMES, report=lambda status: None, should_stop=lambda: False)
    directory.close()
    assert not (directory.path / "DONE").exists()
    assert checkpoint.frames(directory.path / "checkpoint") == [14]


class Hearing(TrainingProgress):
    """Keeps what is said and shown."""

    def __init__(self):
        super().__init__(quiet=True)
        self.notes, self.statuses = [], []

    def note(self, text):
        self.notes.append(text)

    def report(self, status):
        self.statuses.append(status)


def test_a_replay_that_memory_has_no_room_for_lies_on_disk_and_learns_the_same(done, tmp_path, monkeypatch):
    # Enough for networks and a process, and less than a fifth of that beside them.
    taken = needs(VCSE).working + resources.PROCESS_BYTES
    monkeypatch.setattr(resources, "free_bytes", lambda device: taken + 1000)
    train([VCSE], tmp_path, progress=(heard := Hearing()))
    assert heard.notes[0].startswith("replay: ")
    assert " on disk, which is slower; files: " in heard.notes[0]
    assert_same_run(tmp_path / VCSE.name, done / VCSE.name)
    assert not list(tmp_path.rglob("replay.scratch"))


def test_what_is_said_of_a_run(tmp_path):
    train([make_config("none", eval_episodes=0)], tmp_path, progress=(heard := Hearing()))
    said = "images: 16 x 16, faithful; at frame 20, 6 updates of the autoencoder alone"
    assert heard.notes[-1] == said
    frames = [status.frame for status in heard.statuses]
    assert frames == sorted([*range(2, FRAMES + 1, 2), *[SEED_FRAMES] * PRETRAINING])
    assert (heard.statuses[-1].score, heard.statuses[-1].frames, heard.statuses[-1].runs) == ("success", FRAMES, 1)
    assert [status.learns for status in heard.statuses] == [frame > SEED_FRAMES for frame in frames]


def test_lost_images_are_told_with_their_file(copy):
    path = copy / VCSE.name / "frames.bin"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(RuntimeError, match=r"frames\.bin holds \d+ bytes, but the checkpoint needs \d+: remove"):
        train([VCSE], copy)


def test_actions_that_were_tampered_with_are_found_by_what_the_environment_shows(copy):
    path = copy / VCSE.name / "steps.bin"
    steps = np.fromfile(path, dtype=toy_images.step_record(2))
    steps["action"] = 0
    steps.tofile(path)
    with pytest.raises(RuntimeError, match="vcse/seed0: the environment, replayed, shows something else than when"):
        train([VCSE], copy)


def test_a_checkpoint_of_other_networks_is_told_with_the_run(copy, capsys):
    path = copy / VCSE.name
    content = json.loads((path / "config.json").read_text())
    content["mwm"]["hidden_units"] = 32
    (path / "config.json").write_text(json.dumps(content))
    assert main(["resume", str(path)]) == 1
    assert f"vcse: the newest checkpoint of {path} does not fit its config.json: " in capsys.readouterr().err


def test_vcse_eval_gives_the_last_evaluation_again(done, capsys):
    assert main(["eval", str(done), "--json", "--device", "cpu"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["none", "vcse"]
    for row in rows:
        last = read_rows(done / "toy-images-dots" / row["method"] / "seed0" / "eval.csv")[-1]
        for name in ("frame", "episodes", "return_mean", "success_rate"):
            assert row[name] == last[name]


@pytest.mark.parametrize(("precision", "is_warned"), [("float32", False), ("bfloat16", True)])
def test_bfloat16_on_a_cpu_is_warned_of(tmp_path, precision, is_warned):
    config = make_config(settings={"precision": precision})
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = MWMCohort([directory])
    assert ("bfloat16 is for GPUs" in cohort.describe()) == is_warned
    cohort.close()
    directory.close()


@needs_gl
@pytest.mark.parametrize("task", ["dmc-pixels/pendulum_swingup", "metaworld/drawer-open"])
def test_a_run_learns_from_images_of_a_simulator(tmp_path, task):
    if task.startswith("metaworld"):
        pytest.importorskip("metaworld")
    settings = {"image_size": 64, "sequence_sampling": "uniform"}
    config = make_config("vcse", task=task, frames=32, rendering="fast", eval_every_frames=0, eval_episodes=0)
    config = dataclasses.replace(config, settings=dataclasses.replace(config.settings, **settings))
    train([config], tmp_path)
    *_, row = read_rows(tmp_path / config.name / "train.csv")
    assert known(row) >= {*MWM.METRICS, *BONUS_COLUMNS}
    kept = Kept(tmp_path / config.name, side=64, action_size=1 if task.startswith("dmc") else 4)
    assert kept.images.shape == (17, 3, 64, 64)
    assert kept.images.std() > 5
    assert len(np.unique(kept.images[:, 0].reshape(17, -1), axis=0)) > 10
