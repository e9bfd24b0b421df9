import dataclasses
import errno
import json
import math
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import jaxtyping
import numpy as np
import pytest
import torch
from agents.contract import assert_same_state
from csv_rows import read_rows
from gl import needs_gl
from runs import small_pixels
from runs.small import Interrupting, half_written, newest_state, train
from runs.small_pixels import (
    DOOR,
    EPISODE,
    FRAMES,
    SEED_FRAMES,
    Kept,
    Lending,
    ShortPixels,
    assert_same_run,
    make_config,
    shorten,
    smaller,
    train_short,
)

from vcse.agents import read_config, step_log
from vcse.agents.drqv2 import cohort as cohort_module
from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.drqv2.cohort import DrQv2Cohort, warning
from vcse.agents.drqv2.costs import needs
from vcse.agents.drqv2.player import DrQv2Player
from vcse.agents.drqv2.settings import IMAGE_SHAPE, DrQv2Settings
from vcse.agents.drqv2.transfer import BatchTransfer
from vcse.cli import main
from vcse.envs.processes import Batch
from vcse.launch.cohorts import StoppedError, needs_of
from vcse.nets.cuda.side_stream import SideStream
from vcse.runs import checkpoint, loop, resources
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.metrics import BONUS_COLUMNS, REWARD_COLUMNS, SHOWN_OF_BONUS
from vcse.runs.progress import TrainingProgress
from vcse.studies.catalog import study
from vcse.studies.local import take_out
from vcse.studies.manifest import StudyFile
from vcse.studies.study import narrowed, run_configs

pytestmark = needs_gl
NONE, SE, VCSE = (make_config(bonus) for bonus in ("none", "se", "vcse"))
ROW_FRAMES = list(range(0, FRAMES + 1, 20))
STEPS = FRAMES // 2


@pytest.fixture(scope="module")
def lending():
    """Short episodes in environments that are used again and again, and no type checks, which are slow."""
    jaxtyping.config.update("jaxtyping_disable", True)
    environments = Lending()
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, environments)
        yield environments
    environments.close()
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def _all_are_closed(lending):
    yield
    assert not lending.lent


@pytest.fixture(scope="module")
def done(lending, tmp_path_factory):
    """Runs of two bonuses."""
    out = tmp_path_factory.mktemp("done")
    train([NONE, VCSE], out)
    return out


@pytest.fixture
def copy(done, tmp_path):
    """A finished run, to be spoilt; it goes on from frame 90."""
    out = tmp_path / "copy"
    shutil.copytree(done / VCSE.name, out / VCSE.name)
    (out / VCSE.name / "DONE").unlink()
    checkpoint.drop_after(out / VCSE.name / "checkpoint", 90)
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
    assert json.loads((run / "meta.json").read_text())["drawn_by"] in ("osmesa", "egl")
    assert checkpoint.frames(run / "checkpoint") == [FRAMES, 90]
    assert newest_state(run).state["agent"]["updates"] == (FRAMES - SEED_FRAMES) // 4 + 1
    assert RunConfig.from_json(json.loads((run / "config.json").read_text()), DrQv2Settings) == VCSE
    header = (run / "train.csv").read_text().splitlines()[0]
    assert header.startswith("frame,episodes,return_mean,success_rate,bonus_mean,eval_return_mean,eval_success_rate,")
    assert (run / "eval.csv").read_text().startswith("frame,episodes,return_mean,success_rate\n")
    rows = read_rows(run / "train.csv")
    assert [row["frame"] for row in rows] == ROW_FRAMES
    assert [row["episodes"] for row in rows] == [float(frame >= 2 * EPISODE) for frame in ROW_FRAMES]
    assert [(row["frame"], row["episodes"]) for row in read_rows(run / "eval.csv")] == [(0, 1), (60, 1), (FRAMES, 1)]


def known(row):
    return {name for name, number in row.items() if not math.isnan(number)}


def test_columns_are_the_same_for_every_bonus_and_empty_where_there_is_nothing_to_say(done):
    rows = {config.method: read_rows(done / config.name / "train.csv") for config in (NONE, VCSE)}
    assert len({tuple(row) for each in rows.values() for row in each}) == 1
    names = ("critic_loss", "extrinsic_critic_loss", "critic_mean", "actor_loss", "curiosity_loss", "action_noise")
    assert set(rows["none"][0]) >= {*names, "batch_reward", "beta", "reward_scale", *SHOWN_OF_BONUS}
    plain, paid = (rows[method][-1] for method in ("none", "vcse"))
    assert known(plain) >= {*names, "eval_return_mean", "return_mean"}
    assert not known(plain) & set(SHOWN_OF_BONUS)
    assert known(paid) - known(plain) == set(BONUS_COLUMNS)
    assert "success_rate" not in known(paid)
    nothing = ("bonus_mean", "beta", "curiosity_loss", "extrinsic_critic_loss")
    assert [plain[name] for name in nothing] == [0, 0, 0, 0]
    assert paid["curiosity_loss"] > 0
    assert (paid["action_noise"], paid["beta"]) == (pytest.approx(0.2), pytest.approx(0.1))
    assert plain["action_noise"] == pytest.approx(1 - 0.9 * STEPS / 100_000)
    before_learning = rows["vcse"][ROW_FRAMES.index(SEED_FRAMES) - 1]
    assert math.isnan(before_learning["critic_loss"])
    assert math.isnan(before_learning["bonus_mean"])


def test_the_evaluation_is_in_the_training_curve_where_there_was_one(done):
    shown = {row["frame"]: row["eval_return_mean"] for row in read_rows(done / VCSE.name / "train.csv")}
    evaluated = {row["frame"]: row["return_mean"] for row in read_rows(done / VCSE.name / "eval.csv")}
    assert min(evaluated) == 0
    assert {frame: number for frame, number in shown.items() if not math.isnan(number)} == evaluated


def test_every_frame_is_kept_once_with_what_led_to_it(done):
    kept = Kept(done / VCSE.name)
    begins = [0, EPISODE + 1]
    assert len(kept.frames) == STEPS + len(begins)
    assert np.flatnonzero(kept.positions == 0).tolist() == begins
    assert kept.positions.tolist() == [*range(EPISODE + 1), *range(STEPS - EPISODE + 1)]
    assert np.abs(kept.actions).max() < 1
    assert not kept.terminated.any()  # a time limit is no end
    for begin in begins:
        assert not kept.actions[begin].any()
        assert kept.rewards[begin] == 0
    returned = math.fsum(kept.rewards[: EPISODE + 1].astype(float))
    (row,) = [row for row in read_rows(done / VCSE.name / "train.csv") if row["frame"] == 2 * EPISODE]
    assert row["return_mean"] == pytest.approx(returned)
    # The second episode, played again, shows the same.
    state = newest_state(done / VCSE.name).state
    environments = DrQv2Player().make([VCSE], 1, device="cpu", threads=1)
    shown = environments.reset([int(cohort_module.numbers(VCSE.seed, "episodes", EPISODE).integers(2**31 - 1))])
    assert np.array_equal(shown[0], kept.frames[begins[1]])
    for index in range(begins[1] + 1, len(kept.frames)):
        environments.send(kept.actions[index : index + 1])
        assert np.array_equal(environments.receive().next_observations[0], kept.frames[index])
    environments.close()
    assert np.array_equal(np.concatenate(kept.frames[-3:]), state["observation"].numpy())


def test_first_actions_are_random_and_later_ones_near_the_policys(done):
    kept = Kept(done / VCSE.name)
    actions = np.delete(kept.actions[:, 0], [0, EPISODE + 1])
    random = cohort_module.numbers(VCSE.seed, "actions", 0).random((1000, 1), dtype=np.float32)[:, 0] * 2 - 1
    assert np.array_equal(actions[: SEED_FRAMES // 2], random[: SEED_FRAMES // 2])
    assert not np.isin(actions[SEED_FRAMES // 2 :], random).any()


def test_an_action_follows_from_what_is_seen_and_from_all_updates_before_it_and_is_the_one_that_is_kept(
    tmp_path, monkeypatch
):
    # As DrQ-v2's authors do it: act, make an update at every second step, and only then see what came of the action.
    config = make_config("none", eval_episodes=0)
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = DrQv2Cohort([directory])
    agent, replay, updates = cohort.agent, cohort.replay, {"made": 0, "acted on": 0}
    acted, seen, sent, learned_at = [], [], [], []
    act, learn, adopt, send = agent.act, agent.update_networks, agent.update_acting_policy, cohort.environment.send

    def acting(observation, noise, *, step):
        seen.append(observation[0].clone())
        assert step == cohort.step_count
        action = act(observation, noise, step=step)
        expected = act(observation, None) + (1 - 0.9 * step / 100_000) * noise
        assert torch.equal(action, expected.clamp(-1 + 1e-6, 1 - 1e-6))
        acted.append((step, updates["acted on"]))
        return action

    def learning(*batch, step):
        updates["made"] += 1
        learned_at.append(step)
        return learn(*batch, step=step)

    def adopting():
        updates["acted on"] = updates["made"]
        adopt()

    def sending(actions):
        sent.append(actions.copy())
        send(actions)

    for owner, name, replacement in (
        (agent, "act", acting),
        (agent, "update_networks", learning),
        (agent, "update_acting_policy", adopting),
        (cohort.environment, "send", sending),
    ):
        monkeypatch.setattr(owner, name, replacement)
    cohort.begin()
    while cohort.frame < FRAMES:
        cohort.step()
    seed_steps = SEED_FRAMES // 2
    assert learned_at == list(range(seed_steps, STEPS + 1, 2))
    assert acted == [(step, len(range(seed_steps, step, 2))) for step in range(seed_steps, STEPS)]
    loop.save(cohort)  # which stores what the last action led to
    is_led_to = replay.positions[: replay.count] > 0
    for observation, place in zip(seen, np.flatnonzero(is_led_to)[seed_steps:] - 1, strict=True):
        back = np.minimum([2, 1, 0], replay.positions[place])  # the first of an episode stands for those before
        assert torch.equal(observation, replay.images[place - back].flatten(0, 1))
    assert np.array_equal(replay.actions[: replay.count][is_led_to], np.concatenate(sent))
    cohort.close()
    directory.close()


def noting(names, name, function):
    """Return a function that notes its name at each call."""

    def noted(*given, **options):
        names.append(name)
        return function(*given, **options)

    return noted


@pytest.mark.parametrize("every", [1, 2])
def test_whether_an_update_is_begun_before_or_after_the_simulator_a_run_is_the_same(tmp_path, monkeypatch, every):
    config = make_config("vcse", settings={"steps_per_update": every})
    order = []
    monkeypatch.setattr(BatchTransfer, "is_asynchronous", True)
    for owner, name in ((DrQv2, "act"), (DrQv2, "update_networks"), (Batch, "send")):
        monkeypatch.setattr(owner, name, noting(order, name, getattr(owner, name)))
    for busy in (False, True):
        order.clear()
        monkeypatch.setattr(SideStream, "is_busy", busy)
        train([config], tmp_path / str(busy))
        _, *before = (
            order[place - 1] for place, name in enumerate(order) if name == "update_networks"
        )  # the first acts at random
        # At every step an update is adopted, which the next one must not be in the way of.
        assert set(before) == ({"act"} if busy and every == 2 else {"send"})
    assert_same_run(tmp_path / "True" / config.name, tmp_path / "False" / config.name)


@pytest.mark.parametrize("at", [52, 84])
def test_stopped_in_the_middle_of_an_episode_a_run_goes_on_to_the_same_end(done, tmp_path, at):
    with pytest.raises(StoppedError):
        train([VCSE], tmp_path, progress=Interrupting(at, stop))
    assert checkpoint.frames(tmp_path / VCSE.name / "checkpoint")[0] == at
    train([VCSE], tmp_path)
    assert_same_run(tmp_path / VCSE.name, done / VCSE.name)


def test_stopped_again_and_again_a_run_goes_on_to_the_same_end(done, tmp_path):
    for at in (14, 38, 42, 60):
        with pytest.raises(StoppedError):
            train([NONE], tmp_path, progress=Interrupting(at, stop))
    train([NONE], tmp_path)
    assert_same_run(tmp_path / NONE.name, done / NONE.name)


@pytest.mark.parametrize("at", [44, 96])
def test_a_death_takes_a_run_back_to_its_checkpoint_and_it_ends_the_same(done, tmp_path, at):
    with pytest.raises(DeathError):
        train([VCSE], tmp_path, progress=Interrupting(at, die))
    train([VCSE], tmp_path)
    assert_same_run(tmp_path / VCSE.name, done / VCSE.name)


def test_a_death_before_the_first_checkpoint_takes_a_run_back_to_its_beginning(done, tmp_path):
    with pytest.raises(DeathError):
        train([NONE], tmp_path, progress=Interrupting(24, die))
    train([NONE], tmp_path)
    assert_same_run(tmp_path / NONE.name, done / NONE.name)


def test_stopped_in_its_first_evaluation_a_run_goes_on_to_the_same_end(done, tmp_path, monkeypatch):
    plain = DrQv2Player.play

    def play(*arguments, **settings):
        stop()
        return plain(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(DrQv2Player, "play", play)
        with pytest.raises(StoppedError):
            train([NONE], tmp_path)
    train([NONE], tmp_path)
    assert_same_run(tmp_path / NONE.name, done / NONE.name)


REMEDIES = {"reward_normalization": "centered", "actor_normalization": True, "pre_activation_penalty": 0.1}


@pytest.mark.parametrize(
    ("bonus", "changes"),
    [
        ("se", {"replay_capacity": 20, "beta_decay": 0.01, "action_noise": (1.0, 0.1, 40)}),
        ("vcse", {"return_injection": "every_step", "bonus_batch_size": 10, "n_step": 2, **REMEDIES}),
    ],
    ids=["forgetful se with schedules", "vcse at every step"],
)
def test_deviations_survive_a_stop_too(tmp_path, bonus, changes):
    config = make_config(bonus, eval_episodes=0, settings=changes)
    train([config], tmp_path / "once")
    with pytest.raises(StoppedError):
        train([config], tmp_path / "again", progress=Interrupting(84, stop))
    train([config], tmp_path / "again")
    once, again = (tmp_path / each / config.name for each in ("once", "again"))
    for name in ("train.csv", "frames.bin", "steps.bin"):
        assert (again / name).read_bytes() == (once / name).read_bytes(), name
    assert_same_state(newest_state(again).state, newest_state(once).state)


@pytest.mark.parametrize(
    ("frames", "seed_frames", "every", "learns"),
    [
        *[(40, 40, 2, False), (42, 40, 2, True), (42, 41, 2, False), (44, 41, 2, False), (46, 41, 2, True)],
        *[(8, 1, 2, False), (10, 1, 2, True), (8, 1, 1, False), (10, 1, 1, True)],
        *[(40, 40, 1, False), (42, 40, 1, True)],
    ],
)
def test_a_run_that_is_too_short_to_learn_is_warned_of_and_no_other(tmp_path, frames, seed_frames, every, learns):
    settings = {"seed_frames": seed_frames, "batch_size": 1, "steps_per_update": every}
    config = make_config("none", frames=frames, eval_episodes=0, settings=settings)
    train([config], tmp_path)
    acting = newest_state(tmp_path / config.name).state["agent"]["acting"]
    unlearned = DrQv2(DrQv2Spec(9, 1), config.settings, config.seed).state_dict()["acting"]
    for mine, theirs in zip(acting, unlearned, strict=True):
        assert torch.equal(mine, theirs) != learns
    said = f"nothing is learned in {frames} frames: the first update comes within "
    assert warning(config).startswith(said) == (not learns)
    assert bool(warning(config)) == (not learns)


def test_a_batch_that_never_finds_enough_is_warned_of_and_the_replay_is_not_larger_than_the_run():
    few, enough = (make_config(settings={"batch_size": size}) for size in (45, 44))  # 50 steps in 2 episodes, over 3
    said = "every batch of 45 holds transitions more than once: there are never more than 44"
    assert warning(few) == said
    assert warning(enough) == ""
    assert needs(few).replay == needs(enough).replay
    forgetful = make_config(frames=100_000, settings={"replay_capacity": 100})  # of which a batch of 6 finds enough
    assert warning(forgetful) == ""


def test_a_replay_that_forgets_learns_as_often_and_something_else(done, tmp_path):
    config = make_config(method="forgetful", settings={"replay_capacity": 20})
    train([config], tmp_path)
    assert (tmp_path / config.name / "steps.bin").stat().st_size == (done / VCSE.name / "steps.bin").stat().st_size
    mine, whole = (newest_state(run).state["agent"] for run in (tmp_path / config.name, done / VCSE.name))
    assert mine["updates"] == whole["updates"]
    assert not torch.equal(mine["encoder"][0], whole["encoder"][0])


def test_a_run_that_grows_goes_on_where_it_was(done, tmp_path):
    shorter = dataclasses.replace(NONE, frames=70)
    train([shorter], tmp_path)
    assert (tmp_path / NONE.name / "DONE").read_text() == "70\n"
    train([NONE], tmp_path)
    grown, whole = tmp_path / NONE.name, done / NONE.name
    assert [row["frame"] for row in read_rows(grown / "train.csv")] == sorted([*ROW_FRAMES, 70])
    for name in ("frames.bin", "steps.bin"):
        assert (grown / name).read_bytes() == (whole / name).read_bytes()
    assert_same_state(newest_state(grown).state["agent"], newest_state(whole).state["agent"])


def test_a_replay_that_is_not_kept_is_gone_when_a_run_is_done_and_not_before(done, tmp_path, capsys):
    dropping = dataclasses.replace(VCSE, keep_replay=False)
    with pytest.raises(StoppedError):
        train([dropping], tmp_path, progress=Interrupting(52, stop))
    run = tmp_path / VCSE.name
    assert (run / "frames.bin").stat().st_size > 0
    train([dropping], tmp_path)
    assert not {"frames.bin", "steps.bin"} & {each.name for each in run.iterdir()}
    for name in ("train.csv", "eval.csv", "DONE"):
        assert (run / name).read_bytes() == (done / VCSE.name / name).read_bytes()
    train([VCSE], tmp_path)  # which is done, whatever is kept
    assert main(["eval", str(run), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["return_mean"] == read_rows(run / "eval.csv")[-1]["return_mean"]
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    expected = (
        "done at frame 100 and was trained with --no-keep-replay: it cannot be extended to 200; choose another --out"
    )
    with pytest.raises(ValueError, match=expected):
        train([dataclasses.replace(VCSE, frames=200)], tmp_path)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_is_on_disk_already_of_a_replay_that_is_not_kept_is_not_needed_again(done):
    dropping = dataclasses.replace(VCSE, frames=2 * FRAMES, keep_replay=False)
    needed = needs_of([dropping], done)
    assert needed.files + needed.until_done == needs_of([dataclasses.replace(dropping, keep_replay=True)], done).files


def test_an_odd_number_of_frames_is_made_whole(tmp_path):
    config = make_config("none", frames=13, eval_episodes=0)
    train([config], tmp_path)
    assert (tmp_path / config.name / "DONE").read_text() == "14\n"
    assert [row["frame"] for row in read_rows(tmp_path / config.name / "train.csv")] == [0, 14]


@pytest.mark.parametrize("name", ["frames.bin", "steps.bin"])
@pytest.mark.parametrize("bytes_left", [0, 700])
def test_lost_frames_are_told(copy, name, bytes_left):
    os.truncate(copy / VCSE.name / name, bytes_left)
    needed = 47 * {"frames.bin": 3 * 84 * 84, "steps.bin": 4 * 4}[name]
    with pytest.raises(RuntimeError, match=rf"{name} holds \d+ bytes, but the checkpoint needs {needed}: remove"):
        train([VCSE], copy)


def test_actions_that_were_tampered_with_are_found_by_what_the_environments_show(copy):
    run = copy / VCSE.name
    steps = np.fromfile(run / "steps.bin", dtype=np.float32).reshape(-1, 4)
    steps[:, 0] = 0
    steps.tofile(run / "steps.bin")
    with pytest.raises(RuntimeError, match="vcse/seed0: the environment, replayed, shows something else than when"):
        train([VCSE], copy)


def test_a_replay_that_fits_nowhere_is_refused_with_numbers_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "free_bytes", lambda device: 10**10)
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 4 * 10**10)  # for the frames alone it is enough
    needed = r"20\.\d GB are needed, but there is room for 7\.\d GB in the memory of the host and 19\.\d GB on"
    with pytest.raises(ValueError, match=needed):
        train([make_config(frames=1_900_000)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_frames_that_will_not_fit_on_disk_are_refused_with_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 10**10)
    long = make_config(frames=10**7, settings={"replay_capacity": 1000})
    with pytest.raises(ValueError, match=r"the files of 1 run will need 1[01]\d GB on disk, but 10\.0 GB are free in "):
        train([long], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_has_on_disk_is_not_needed_again(done):
    image_bytes = math.prod(IMAGE_SHAPE)
    assert needs_of([VCSE], done).files < image_bytes  # it is there, to the last frame
    longer = dataclasses.replace(VCSE, frames=2 * FRAMES)
    needed = needs_of([longer], done).files / image_bytes
    assert STEPS - 10 < needed < STEPS + 10  # names and the last image are in its checkpoints too
    assert needs_of([longer], done / "elsewhere") == needs(longer)


def test_a_replay_that_memory_has_no_room_for_lies_on_disk_and_learns_the_same(tmp_path, monkeypatch):
    train([VCSE], tmp_path / "memory")
    # Enough for networks and a process, and less than a fifth of that beside them.
    taken = needs(VCSE).working + resources.PROCESS_BYTES
    monkeypatch.setattr(resources, "free_bytes", lambda device: taken + 1000)
    train([VCSE], tmp_path / "disk", progress=(heard := Hearing()))
    assert heard.notes[0].startswith("replay: 1.2 MB on disk, which is slower; files: ")
    assert_same_run(tmp_path / "disk" / VCSE.name, tmp_path / "memory" / VCSE.name)
    assert not list((tmp_path / "disk").rglob("replay.scratch"))


def test_a_replay_on_disk_is_gone_with_a_run_that_cannot_be_built(tmp_path, monkeypatch):
    directory = RunDirectory(tmp_path / VCSE.name, VCSE)
    before = sorted(path.name for path in directory.path.iterdir())

    def fail(*_, **__):
        raise RuntimeError("nothing draws")

    monkeypatch.setattr("vcse.envs.mujoco.Pixels", fail)
    with pytest.raises(RuntimeError, match="nothing draws"):
        DrQv2Cohort([directory], replay_place=resources.DISK)
    directory.close()
    assert sorted(path.name for path in directory.path.iterdir()) == before


def test_a_disk_that_is_full_before_a_replay_lies_on_it_is_told_with_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    directory = RunDirectory(tmp_path / VCSE.name, VCSE)
    with pytest.raises(OSError, match=r"No space left on device.*replay\.scratch"):
        DrQv2Cohort([directory], replay_place=resources.DISK)
    directory.close()


def test_images_do_not_wait_in_memory_for_the_end_of_a_long_row(done, tmp_path, monkeypatch):
    monkeypatch.setattr(step_log, "MOST_UNWRITTEN", 7)
    config = dataclasses.replace(NONE, row_every_frames=10 * FRAMES, eval_every_frames=0)
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = DrQv2Cohort([directory])
    cohort.begin()
    while cohort.frame < FRAMES:
        cohort.step()
        assert len(cohort.log._images) < 7
    loop.save(cohort)
    cohort.close()
    directory.close()
    for name in ("frames.bin", "steps.bin"):
        assert (tmp_path / config.name / name).read_bytes() == (done / NONE.name / name).read_bytes()


def test_a_checkpoint_of_other_networks_is_told_with_the_run(copy, capsys):
    path = copy / VCSE.name
    content = json.loads((path / "config.json").read_text())
    content["drqv2"]["hidden_units"] = 32
    (path / "config.json").write_text(json.dumps(content))
    assert main(["resume", str(path)]) == 1
    assert f"vcse: the newest checkpoint of {path} does not fit its config.json: " in capsys.readouterr().err


def test_steps_that_are_no_numbers_are_told_with_their_file(copy, capsys):
    path = copy / VCSE.name / "steps.bin"
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert main(["resume", str(copy)]) == 1
    assert f"vcse: {path} is damaged: it holds numbers that are not finite\n" in capsys.readouterr().err


def test_a_run_trains_alone(tmp_path):
    configs = [make_config("none", seed, frames=10, eval_episodes=0) for seed in range(2)]
    directories = [RunDirectory(tmp_path / config.name, config) for config in configs]
    with pytest.raises(ValueError, match="a run that learns from images trains alone, got 2"):
        DrQv2Cohort(directories)
    for directory in directories:
        directory.close()
    train(configs, tmp_path)
    for config in configs:
        assert (tmp_path / config.name / "DONE").exists()
        assert {row["runs"] for row in read_rows(tmp_path / config.name / "timing.csv")} == {1}
    first, second = (Kept(tmp_path / config.name) for config in configs)
    assert not np.array_equal(first.frames[0], second.frames[0])


def test_a_loss_that_is_not_finite_stops_the_run_names_it_and_keeps_the_checkpoint(tmp_path):
    config = make_config("vcse", 4, eval_episodes=0)
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = DrQv2Cohort([directory])
    with torch.no_grad():
        cohort.agent.critic.head.layers[0][0] = math.nan
    message = "the critic_loss of dmc-pixels-pendulum_swingup/vcse/seed4 is not finite at frame 40"
    with pytest.raises(RuntimeError, match=message):
        loop.train(cohort, FRAMES, report=lambda status: None, should_stop=lambda: False)
    directory.close()
    assert not (directory.path / "DONE").exists()
    assert checkpoint.frames(directory.path / "checkpoint") == [30]


class Hearing(TrainingProgress):
    """Keeps what is said and shown, and may stop training at a frame."""

    def __init__(self, stop_at=math.inf):
        super().__init__(quiet=True)
        self.notes, self.statuses, self.stop_at = [], [], stop_at

    def note(self, text):
        self.notes.append(text)

    def report(self, status):
        self.statuses.append(status)
        if status.frame >= self.stop_at:
            stop()


def test_an_evaluation_before_the_first_frame_is_no_pace(tmp_path, monkeypatch):
    now = [100.0]

    def taking(seconds, do):
        def slowly(cohort):
            given = do(cohort)
            now[0] += seconds
            return given

        return slowly

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr("vcse.runs.progress.time", clock)
    monkeypatch.setattr(DrQv2Cohort, "evaluate", taking(1000, DrQv2Cohort.evaluate))
    monkeypatch.setattr(DrQv2Cohort, "step", taking(0.5, DrQv2Cohort.step))
    config = make_config("none", frames=4, eval_episodes=1)
    train([config], tmp_path, progress=(heard := Hearing()))
    assert heard.statuses[0].frames_per_s == 4
    [row] = read_rows(tmp_path / config.name / "timing.csv")
    assert row["frames_per_s"] == 4


def test_what_is_said_of_a_run(tmp_path):
    config = make_config("none", frames=10, eval_episodes=0)
    train([config], tmp_path, progress=(heard := Hearing()))
    room, images = heard.notes
    assert room.startswith("replay: 0.2 MB in the memory of the host; files: ")
    assert images.startswith("images: fast, rendered by ")
    assert "evaluation" not in images
    shown = heard.statuses
    assert [status.frame for status in shown] == [2, 4, 6, 8, 10]
    assert (shown[-1].score, shown[-1].frames, shown[-1].runs, shown[-1].learns) == ("return", 10, 1, False)


def test_of_evaluations_it_is_said_when_they_come(tmp_path):
    config = make_config("none", frames=12, eval_every_frames=6)
    with pytest.raises(StoppedError):
        train([config], tmp_path, progress=(first := Hearing(4)))
    train([config], tmp_path, progress=(second := Hearing()))
    [started] = [note for note in first.notes if note.startswith("images: ")]
    assert started.endswith("; 1 episode of evaluation first, and every 6 frames")
    assert second.notes[-1].endswith("; 1 episode of evaluation every 6 frames")


def test_vcse_eval_gives_the_last_evaluation_again(done, capsys):
    assert main(["eval", str(done), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["none", "vcse"]
    for row in rows:
        last = read_rows(done / "dmc-pixels-pendulum_swingup" / row["method"] / "seed0" / "eval.csv")[-1]
        assert {name: row[name] for name in ("frame", "episodes", "return_mean")} == {
            name: last[name] for name in ("frame", "episodes", "return_mean")
        }
        assert 0 <= row["sampled_return_mean"] <= 2 * EPISODE
        assert (row["success_rate"], row["sampled_success_rate"]) == (None, None)
    assert main(["eval", str(done)]) == 0
    assert "return" in capsys.readouterr().out


def worker_ids(pid):
    """Return the processes that a process has started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_that_is_killed_twice_ends_as_if_nothing_had_happened(done, tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vcse.cli", "dm_control.suite"])
    run = tmp_path / VCSE.name
    for at in (30, 90):
        process = context.Process(target=train_short, args=(VCSE, tmp_path))
        process.start()
        give_up = time.monotonic() + 120
        while process.is_alive() and time.monotonic() < give_up:
            if (run / "checkpoint").exists() and max([0, *checkpoint.frames(run / "checkpoint")]) >= at:
                break
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGSTOP)  # or it would go on to its end while its workers are looked for
        workers = worker_ids(process.pid)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert workers
        give_up = time.monotonic() + 120
        while any(map(is_running, workers)) and time.monotonic() < give_up:
            time.sleep(0.02)
        assert not any(map(is_running, workers))  # who nobody talks to any more
    train([VCSE], tmp_path)
    assert_same_run(run, done / VCSE.name)
    assert half_written(tmp_path) == []


def test_metaworld_knows_success_and_normalises_its_rewards(tmp_path, capsys, monkeypatch):
    pytest.importorskip("metaworld")
    succeeds_at = 7
    monkeypatch.setattr(small_pixels, "EPISODE", 16)

    def receive(environments):
        step = plain(environments)
        return step._replace(success=environments.steps == succeeds_at)

    plain = ShortPixels.receive
    monkeypatch.setattr(ShortPixels, "receive", receive)
    lengths = {"frames": 48, "eval_every_frames": 0, "row_every_frames": 24, "settings": {"seed_frames": 20}}
    config = make_config("rcse", task=DOOR, **lengths)
    train([config], tmp_path / "once")
    run = tmp_path / "once" / config.name
    rows = read_rows(run / "train.csv")
    assert math.isnan(rows[0]["success_rate"])
    assert (rows[1]["success_rate"], rows[1]["eval_success_rate"]) == (1, 1)
    assert rows[1]["reward_scale"] != 1
    assert known(rows[1]) >= set(REWARD_COLUMNS)
    assert rows[1]["reward_std"] > 0
    assert not {"decided_by_value_share", "value_count_mean", "value_mean", "value_std"} & known(rows[1])
    assert [(row["frame"], row["success_rate"]) for row in read_rows(run / "eval.csv")] == [(48, 1)]
    for at in (18, 38):  # after success, within an episode
        with pytest.raises(StoppedError):
            train([config], tmp_path / "again", progress=Interrupting(at, stop))
    assert newest_state(tmp_path / "again" / config.name).state["successes"] == [True]
    train([config], tmp_path / "again")
    assert_same_run(tmp_path / "again" / config.name, run)
    assert main(["eval", str(run), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["return_mean"] == read_rows(run / "eval.csv")[-1]["return_mean"]
    assert (row["success_rate"], row["sampled_success_rate"]) == (1, 1)
    assert main(["eval", str(run), "--episodes", "1"]) == 0
    assert "100.0%" in capsys.readouterr().out


def test_a_run_may_hide_the_goal_of_metaworld(tmp_path, monkeypatch):
    pytest.importorskip("metaworld")
    asked = []

    class Asked(ShortPixels):
        def __init__(self, tasks, making):
            asked.append(making.goal_marker)
            super().__init__(tasks, making)

    shorten(monkeypatch, Asked)
    for method, marker in (("shown", True), ("hidden", False)):
        config = make_config("none", task=DOOR, method=method, frames=8, eval_episodes=1, goal_marker=marker)
        train([config], tmp_path)
        assert main(["eval", str(tmp_path / config.name), "--episodes", "1"]) == 0
        assert asked == [marker] * 3  # in training, in its evaluation, and in the one afterwards
        assert read_config(tmp_path / config.name).goal_marker is marker
        asked.clear()
    first = [Kept(tmp_path / "metaworld-door-open" / each / "seed0", 4).frames[0] for each in ("shown", "hidden")]
    assert (first[0] != first[1]).any(0).sum() in range(1, 200)  # of 84 x 84


STUDIES = {
    "dmc-pixels": "hopper_stand",
    "dmc-pixels-rcse": "hopper_stand",
    "dmc-pixels-batch": "walker_walk",
    "dmc-pixels-controls": "pendulum_swingup",
    "dmc-pixels-beta-se": "walker_walk",
    "dmc-pixels-decay": "hopper_stand",
    "metaworld": "door-open",
    "metaworld-remedies": "door-open",
    "metaworld-clean": "door-open",
}


@pytest.mark.parametrize(("name", "task"), STUDIES.items())
def test_a_study_of_the_catalogue_runs_from_end_to_end(tmp_path, name, task):
    if name.startswith("metaworld"):
        pytest.importorskip("metaworld")
    frames, last_update = 200, 100  # steps
    entry = narrowed(study(name), seeds=1, frames=frames, tasks=[task])
    configs = [
        dataclasses.replace(config, settings=smaller(config.settings, seed_frames=100))
        for config in run_configs(entry, eval_episodes=1, rendering="fast")
    ]
    asked = list(entry.task_names), list(entry.method_names), "vcse study run"
    file = StudyFile(entry.name, 1, entry.first_seed, frames, *asked)
    take_out(file, configs, tmp_path)
    train(configs, tmp_path)
    critics = []
    for config in configs:
        *_, row = read_rows(tmp_path / config.name / "train.csv")
        state = newest_state(tmp_path / config.name).state["agent"]
        critics.append(tuple(state["critic"][0].flatten().tolist()))
        assert state["updates"] == 26
        assert math.isfinite(row[entry.metric])
        assert (row["bonus_mean"] != 0) == config.settings.has_bonus
        assert row["beta"] == pytest.approx(config.settings.weight(last_update) if config.settings.has_bonus else 0)
    assert list(dict.fromkeys(config.method for config in configs)) == list(entry.method_names)
    assert len(set(critics)) == len(configs)  # no method is another under its name
    if name.startswith("metaworld"):
        assert main(["report", str(tmp_path)]) == 0


def test_a_study_runs_from_the_command_line_with_whole_episodes(tmp_path, monkeypatch, capsys):
    def small_configs(entry, **asked):
        """Small networks and batches, for which a study has no option."""
        found = run_configs(entry, **asked, eval_episodes=1)
        return [dataclasses.replace(each, settings=smaller(each.settings, seed_frames=200)) for each in found]

    monkeypatch.setattr("vcse.cli.study.run_configs", small_configs)
    command = ["study", "run", "dmc-pixels", "--tasks", "cartpole_swingup_sparse", "--seeds", "1", "--frames", "400"]
    command += ["--bonuses", "none", "vcse"]
    command += ["--eval-every-frames", "0", "--rendering", "fast", "--no-keep-replay", "--out", str(tmp_path)]
    assert main([*command, "--quiet"]) == 0
    asked = json.loads((tmp_path / "study.json").read_text())["command"].removeprefix("MUJOCO_GL=").split()
    assert asked[-3:] == ["--rendering", "fast", "--no-keep-replay"]
    runs = [tmp_path / "dmc-pixels-cartpole_swingup_sparse" / method / "seed0" for method in ("none", "vcse")]
    for run in runs:
        assert (run / "DONE").read_text() == "400\n"
        assert newest_state(run).state["agent"]["updates"] == 51
        assert [(row["frame"], row["episodes"]) for row in read_rows(run / "eval.csv")] == [(400, 1)]
        assert not (run / "frames.bin").exists()
    assert main(["study", "status", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path)]) == 0
    assert "2 runs: 1 task, 2 methods, 1 seed each" in capsys.readouterr().err


@pytest.mark.parametrize(("precision", "is_warned"), [("float32", False), ("bfloat16", True)])
def test_bfloat16_on_a_cpu_is_warned_of(tmp_path, precision, is_warned):
    config = make_config(settings={"encoder_precision": precision})
    directory = RunDirectory(tmp_path / config.name, config)
    cohort = DrQv2Cohort([directory])
    assert ("bfloat16 is for GPUs" in cohort.describe()) == is_warned
    cohort.close()
    directory.close()


class Waiting(SideStream):
    """Lets what follows begin only once the operations inside are done."""

    def __exit__(self, *error):
        super().__exit__(*error)
        self.wait()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("every", "is_busy"), [(1, True), (2, False), (2, True)])
def test_updates_beside_acting_are_those_that_are_waited_for(tmp_path, monkeypatch, every, is_busy):
    """Convolutions add up in an order of their own, so that numbers differ a little, and more from update to update."""
    # Batches are large enough for the GPU to be still at an update when the next action is chosen.
    settings = {"batch_size": 128, "hidden_units": 1024, "features": 50, "seed_frames": 300, "steps_per_update": every}
    config = make_config("vcse", frames=420, eval_episodes=0, row_every_frames=20, settings=settings)
    monkeypatch.setattr(SideStream, "is_busy", is_busy)
    train([config], tmp_path / "beside", device="cuda")
    monkeypatch.setattr(SideStream, "is_busy", False)
    monkeypatch.setattr(cohort_module, "SideStream", Waiting)
    train([config], tmp_path / "waiting", device="cuda")
    beside, waiting = (read_rows(tmp_path / each / config.name / "train.csv") for each in ("beside", "waiting"))
    for name in ("critic_loss", "extrinsic_critic_loss", "critic_mean", "actor_loss", "curiosity_loss", "bonus_mean"):
        found, expected = (np.array([row[name] for row in rows]) for rows in (beside, waiting))
        assert np.isfinite(expected).sum() > 5
        np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.01, err_msg=name)
    found, expected = (Kept(tmp_path / each / config.name).actions for each in ("beside", "waiting"))
    np.testing.assert_allclose(found, expected, atol=0.05)
