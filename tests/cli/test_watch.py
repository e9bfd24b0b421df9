import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import tyro
from gl import needs_gl
from PIL import Image

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.settings import A2CSettings, a2c_settings
from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.entry import Policies
from vcse.agents.sac.agent import SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses.registry import NO_BONUS
from vcse.cli.watch import first_runs, watch
from vcse.envs.minigrid.crossing import MAPS
from vcse.envs.minigrid.reference import ReferenceMiniGrid
from vcse.envs.moments import Moment
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.tasks import task_spec
from vcse.play.imagination import Imagination
from vcse.play.shipped import find_policies
from vcse.play.video import OUTCOME_COLOURS, caption, write_film
from vcse.play.watch import record
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory


@pytest.fixture(autouse=True)
def _small_images(monkeypatch):
    """Draw fast."""
    monkeypatch.setattr("vcse.envs.minigrid.recording.MAP_PIXELS", 64)


def play(agent, config, frame=128, **settings):
    """Play as `vcse watch` does."""
    return record(Policies(agent, [config], frame, []), **settings)


def make_config(task="minigrid/LavaGapS5", method="vcse", seed=0):
    return RunConfig(
        task=task, agent="a2c", method=method, seed=seed, reading="release", frames=128, settings=a2c_settings("vcse")
    )


def make_agent(task="minigrid/LavaGapS5", seed=0):
    spec = task_spec(task)
    return A2C(A2CSpec(spec.observation_shape, spec.actions), [A2CSettings(bonus=NO_BONUS)], [seed])


def make_run(out, **settings):
    config = make_config(**settings)
    directory = RunDirectory(out / config.name, config)
    directory.save_checkpoint(128, {"agent": make_agent(config.task, config.seed).learner_state(0)})
    directory.close()
    return directory.path


@pytest.mark.parametrize("task", ["minigrid/LavaGapS7", "minigrid-full/LavaGapS7"])
def test_what_is_played_is_what_the_environments_play(task):
    agent, full = make_agent(task), task.startswith("minigrid-full")
    moments = list(play(agent, make_config(task), episodes=3, sampled=True, seed=5))
    endings = [moment for moment in moments if moment.outcome]

    worlds, draws = ReferenceMiniGrid("LavaGapS7", [5], full=full), np.random.default_rng(5)
    shown = worlds.reset()
    expected, steps = [], 0
    while len(expected) < 3:
        noise = torch.from_numpy(draws.random((1, 1), dtype=np.float32))
        worlds.send(agent.act(torch.from_numpy(shown)[None], noise).numpy()[0])
        step = worlds.receive()
        shown, steps = step.observations, steps + 1
        if step.ended[0]:
            expected.append((steps, pytest.approx(float(step.rewards[0]))))
            steps = 0
    assert [(ending.step, ending.return_so_far) for ending in endings] == expected
    assert len(moments) == 3 + sum(ending.step for ending in endings)
    for ending in endings:
        without_reward = "failed" if ending.step < worlds.most_steps else "out of time"
        assert ending.outcome == ("goal" if ending.return_so_far > 0 else without_reward)


def test_the_greedy_actions_draw_nothing_and_another_seed_shows_another_layout():
    agent, config = make_agent("minigrid/LavaGapS7"), make_config("minigrid/LavaGapS7")
    starts = [next(play(agent, config, episodes=1, sampled=False, seed=seed)).image for seed in (0, 0, 1)]
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    ways = [
        [m.step for m in play(agent, config, episodes=2, sampled=way, seed=0) if m.outcome] for way in (True, False)
    ]
    assert ways[0] != ways[1]


def test_a_table_task_is_drawn_on_its_own_map():
    task, number = "minigrid-table/SimpleCrossingS9N1-map7", 7
    image = next(play(make_agent(task), make_config(task), episodes=1, sampled=True, seed=0)).image
    tile = len(image) // 9
    middle = image[tile // 2 :: tile, tile // 2 :: tile].transpose(1, 0, 2)  # at [x, y]
    grey = (middle.min(-1) == middle.max(-1)) & (middle.max(-1) >= 100)
    walls = np.array([[MAPS[number].is_wall(x, y) for y in range(9)] for x in range(9)])
    assert np.array_equal(grey, walls)
    assert middle[7, 7, 1] > middle[7, 7, 0]  # the goal is green


def make_sac(task="dmc/pendulum_swingup"):
    settings = SACSettings(bonus=NO_BONUS, hidden_units=16)
    config = RunConfig(task=task, agent="sac", method="none", seed=0, reading="release", frames=1000, settings=settings)
    return SAC(SACSpec(3, 1), [settings], [0]), config


@needs_gl
def test_a_simulation_is_played_by_the_mean_of_the_policy():
    agent, config = make_sac()
    playing = play(agent, config, 1000, episodes=1, sampled=False, seed=3)
    moments = [next(playing) for _ in range(11)]
    playing.close()
    environments = DMCStates(["pendulum_swingup"])
    shown, returns = environments.reset([int(np.random.default_rng(3).integers(2**31 - 1))]), [0.0]
    for _ in range(40):
        environments.send(agent.act(torch.from_numpy(shown)[:, None], None)[:, 0].numpy())
        step = environments.receive()
        shown = step.next_observations
        returns.append(returns[-1] + float(step.rewards[0]))
    assert [moment.step for moment in moments] == list(range(0, 41, 4))
    assert [moment.return_so_far for moment in moments] == pytest.approx(returns[::4])
    assert not np.array_equal(moments[0].image, moments[5].image)
    assert {moment.outcome for moment in moments} == {""}


class NineSteps:
    """In the place of a simulation: two episodes of nine steps, in the first of which the goal is reached."""

    action_size = 1

    def __init__(self, task, making):
        assert (making.image_size, making.action_repeat) == (84, 2)
        self.action_repeat, self.has_success, self.episodes = making.action_repeat, task.startswith("metaworld"), 0

    def begin(self, seed):
        self.episodes, self.steps = self.episodes + 1, 0
        return self.seen()

    def step(self, action):
        self.steps += 1
        success = self.has_success and self.episodes == 1 and self.steps == 4
        return self.seen(), 0.5, False, self.steps == 9, success

    def seen(self):
        return np.full((3, 84, 84), self.steps, dtype=np.uint8)

    def image(self):
        return np.full((8, 8, 3), self.steps, dtype=np.uint8)

    def close(self):
        pass


@pytest.mark.parametrize(
    ("task", "outcomes"),
    [("metaworld/door-open", ["goal", "out of time"]), ("dmc-pixels/hopper_stand", ["out of time", "out of time"])],
)
def test_the_end_of_a_simulation_is_shown_and_says_whether_there_was_a_goal(monkeypatch, task, outcomes):
    monkeypatch.setattr("vcse.envs.mujoco.recording.Filmed", NineSteps)
    settings = DrQv2Settings(bonus=NO_BONUS, hidden_units=8, features=4)
    config = RunConfig(
        task=task,
        agent="drqv2",
        method="none",
        seed=0,
        reading="release",
        frames=20,
        settings=settings,
        rendering="fast",
    )
    agent = DrQv2(DrQv2Spec(9, 1), settings, 0)
    seen = []
    monkeypatch.setattr(agent, "act", lambda images, noise, step: seen.append(images) or torch.zeros(1, 1))
    moments = list(play(agent, config, 20, episodes=2, sampled=False, seed=0))
    assert [moment.step for moment in moments] == 2 * [0, 2, 4, 6, 8, 9]
    assert [moment.outcome for moment in moments if moment.outcome] == outcomes
    assert moments[-1].return_so_far == 4.5
    # A policy from images sees the last three, of which the first stands for those before it.
    assert [each[0, ::3, 0, 0].tolist() for each in seen[:4]] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]


@needs_gl
def test_noise_of_a_simulated_policy_is_drawn_where_it_is_asked_for():
    agent, config = make_sac()
    ways = []
    for sampled in (False, True):
        playing = play(agent, config, 1000, episodes=1, sampled=sampled, seed=3)
        ways.append([next(playing).image for _ in range(4)])
        playing.close()
    assert np.array_equal(ways[0][0], ways[1][0])
    assert not np.array_equal(ways[0][3], ways[1][3])


def test_the_caption_says_who_where_and_how_it_ends():
    image = np.full((120, 381, 3), 7, dtype=np.uint8)
    config = make_config("minigrid-full/SimpleCrossingS9N1", method="se-matched")
    running, over = (caption(Moment(image, 1, 12, 0.5, outcome), config, 3) for outcome in ("", "goal"))
    assert all(side % 2 == 0 for side in running.size)
    assert np.array_equal(np.asarray(running)[-120:, :381], image)
    colours = {"#{:02x}{:02x}{:02x}".format(*colour) for _, colour in over.getcolors(10_000)}
    assert OUTCOME_COLOURS["goal"] in colours
    assert not np.array_equal(np.asarray(running), np.asarray(over))


def test_a_run_becomes_a_gif_in_its_directory(tmp_path, capsys):
    path = make_run(tmp_path)
    assert watch(path, episodes=2, frames_per_second=10) == 0
    told = capsys.readouterr()
    assert told.out == f"{path / 'watch.gif'}\n"
    steps = [int(word) for word in told.err.split() if word.isdigit()]
    with Image.open(path / "watch.gif") as film:
        shown_ms = []
        for place in range(film.n_frames):
            film.seek(place)
            shown_ms.append(film.info["duration"])
    assert len(steps) == 2
    assert shown_ms.count(1200) == 2  # the two ends stay
    assert shown_ms[-1] == 1200
    assert sum(shown_ms) == 100 * sum(steps) + 2 * 1200  # images that look the same may have become one


def test_of_many_runs_the_lowest_seed_of_each_method_is_watched(tmp_path, capsys):
    made = {(m, s): make_run(tmp_path, method=m, seed=s) for m in ("se", "vcse") for s in (10, 2)}
    assert first_runs(list(made.values())) == [made["se", 2], made["vcse", 2]]
    with pytest.raises(ValueError, match=r"--out is for one film, but .* holds 2 methods to watch: name one of"):
        watch(tmp_path, out=tmp_path / "film.gif")
    assert watch(tmp_path, episodes=1) == 0
    assert capsys.readouterr().out.split() == [str(made[method, 2] / "watch.gif") for method in ("se", "vcse")]


def test_a_run_that_has_saved_nothing_stands_in_nobodys_way(tmp_path, capsys):
    made = {seed: make_run(tmp_path, seed=seed) for seed in (3, 4)}
    shutil.rmtree(made[3] / "checkpoint")
    assert watch(tmp_path, episodes=1) == 0
    assert capsys.readouterr().out == f"{made[4] / 'watch.gif'}\n"


def test_actions_are_sampled_or_greedy(tmp_path, capsys):
    path, films = make_run(tmp_path, seed=3), {}
    for actions in ("", "sampled", "greedy"):
        film = tmp_path / f"film{actions}.gif"
        chosen = ["--actions", actions] if actions else []
        tyro.cli(watch, args=[str(path), "--episodes", "1", "--out", str(film), *chosen])
        films[actions] = film.read_bytes()
    assert films[""] == films["sampled"] != films["greedy"]
    with pytest.raises(SystemExit):
        tyro.cli(watch, args=[str(path), "--actions", "greed"])
    assert "did you mean greedy?" in " ".join(capsys.readouterr().err.split())


def test_what_a_world_model_imagines_is_filmed_with_a_flag(tmp_path, monkeypatch, capsys):
    path, asked = make_run(tmp_path), {}
    images = np.zeros((3, 3, 4, 4), dtype=np.uint8)
    parts = [Imagination(1, start, 1, images, images + np.uint8(51 * start)) for start in (0, 2)]

    def imagine_run(run, film, **settings):
        asked.update(run=run, film=film, **settings)
        return parts

    monkeypatch.setattr("vcse.cli.watch.imagine_run", imagine_run)
    tyro.cli(watch, args=[str(path), "--imagine", "--actions", "greedy", "--device", "cpu", "--seed", "4"])
    told = capsys.readouterr()
    assert told.out.split() == [str(path / f"imagination.{suffix}") for suffix in ("gif", "png")]
    assert told.err == f"{path}: difference of what is imagined from step 0, 2: 0.0 %, 40.0 %\n"
    settings = {"episodes": None, "sampled": False, "seed": 4, "frames_per_second": None, "device": "cpu"}
    assert asked == {"run": path, "film": path / "imagination.gif", **settings}
    watch(path, imagine=True, out=tmp_path / "film.mp4")
    assert capsys.readouterr().out.split() == [str(tmp_path / "film.mp4"), str(tmp_path / "film.png")]


def test_an_agent_without_a_world_model_imagines_nothing(tmp_path):
    path = make_run(tmp_path)
    with pytest.raises(ValueError, match="a2c has no world model that imagines; agents that have one: "):
        watch(path, imagine=True)
    with pytest.raises(ValueError, match="--episodes must be at least 1, got 0"):
        watch(path, imagine=True, episodes=0)
    assert not list(path.glob("imagination.*"))


def test_an_mp4_needs_its_package(tmp_path, monkeypatch):
    path = make_run(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "imageio_ffmpeg" else object())
    with pytest.raises(RuntimeError, match=r"imageio-ffmpeg, which writes \.mp4, is not installed: pip install"):
        watch(path, out=tmp_path / "film.mp4")


@pytest.fixture
def ffmpeg(tmp_path, monkeypatch):
    """In the place of ffmpeg, a program that writes what it is given, and how it was called; it fails if told to."""
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "out = open(sys.argv[-1], 'wb')\n"
        "out.write(' '.join(sys.argv[1:-1]).encode() + b'|' + sys.stdin.buffer.read())\n"
        "sys.exit(os.environ.get('FAILURE') and 'No space left on device\\nand more')\n"
    )
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", SimpleNamespace(get_ffmpeg_exe=lambda: str(program)))


@pytest.mark.usefixtures("ffmpeg")
def test_an_mp4_gets_every_image(tmp_path):
    images = [Image.new("RGB", (4, 2), (step, 0, 0)) for step in range(3)]
    write_film(tmp_path / "films" / "film.mp4", images, [False, False, True], 5)
    asked, _, pixels = (tmp_path / "films" / "film.mp4").read_bytes().partition(b"|")
    assert b"-pix_fmt rgb24 -s 4x2 -r 5 -i - -f mp4 " in asked
    assert pixels == bytes([0, 0, 0] * 8) + bytes([1, 0, 0] * 8) + bytes([2, 0, 0] * 8) * 6  # the end stays 1.2 s


@pytest.mark.usefixtures("ffmpeg")
def test_an_mp4_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    film, images = tmp_path / "film.mp4", [Image.new("RGB", (4, 2))]
    film.write_text("the one before")
    monkeypatch.setenv("FAILURE", "1")
    with pytest.raises(RuntimeError, match=r"film\.mp4: ffmpeg failed: No space left on device$"):
        write_film(film, images, [True], 5)
    assert film.read_text() == "the one before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bin", "film.mp4"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 0}, "--episodes must be at least 1, got 0"),
        ({"frames_per_second": 0}, "--frames-per-second must be at least 1, got 0"),
        ({"out": "film.png"}, "a film is a .gif or an .mp4, got 'film.png'"),
        ({"out": "folder.gif"}, r"the film cannot be written to .*folder\.gif, which is a directory"),
        ({"out": "file/film.gif"}, r"the film cannot be written to .*film\.gif: .*file is a file"),
        ({"out": "sealed/new/film.gif"}, r"the film cannot be written to .*film\.gif: .*sealed may not be written to"),
    ],
)
def test_what_cannot_be_filmed_is_refused(tmp_path, monkeypatch, settings, message):
    path = make_run(tmp_path)
    for folder in ("folder.gif", "sealed"):
        (tmp_path / folder).mkdir()
    (tmp_path / "file").touch()
    # Whoever runs the tests may write everywhere, perhaps.
    monkeypatch.setattr("vcse.play.video.os.access", lambda place, mode: place.name != "sealed")
    if "out" in settings:
        settings = {"out": tmp_path / settings["out"]}
    with pytest.raises(ValueError, match=message):
        watch(path, **settings)


def test_a_map_that_the_minigrid_package_has_no_files_for_is_not_filmed(tmp_path, monkeypatch):
    monkeypatch.setattr("vcse.envs.minigrid.names.lacks_patterns", lambda: True)
    run = make_run(tmp_path, task="minigrid/WFC-MazeSimple")
    with pytest.raises(RuntimeError, match="WFC-MazeSimple cannot be filmed, "):
        watch(run)


def test_the_film_of_a_policy_that_ships_is_written_where_one_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert watch(Path("minigrid/LavaGapS7/vcse"), episodes=1) == 0
    told = capsys.readouterr()
    assert told.out == "minigrid-LavaGapS7-vcse.gif\n"
    assert "vcse: goal after " in told.err
    with Image.open(tmp_path / "minigrid-LavaGapS7-vcse.gif") as film:
        assert film.n_frames > 5
    assert not list(find_policies("minigrid").rglob("*.gif"))
