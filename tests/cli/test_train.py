import dataclasses
import importlib
import json
import re
import resource
import shutil
import signal
from pathlib import Path

import pytest
from csv_rows import read_rows

from vcse.agents import read_config
from vcse.agents.a2c.settings import a2c_settings
from vcse.agents.drqv2.settings import drqv2_settings
from vcse.agents.sac.settings import sac_settings
from vcse.cli import main
from vcse.envs.tasks import task_spec
from vcse.runs import checkpoint, resources
from vcse.runs.directory import RunDirectory

TASK = "minigrid/Empty-5x5"
PENDULUM = "dmc/pendulum_swingup"
SMALL = ["--environments", "2", "--eval-episodes", "1", "--frames", "48", "--threads", "1", "--device", "cpu"]
RUN = Path("minigrid-Empty-5x5", "none", "seed0")


def asked(more, task=TASK, bonus="none"):
    """Return words with a task and a bonus, where they name none."""
    missing = {"--task": task, "--bonus": bonus}.items()
    return [word for option, name in missing if option not in more for word in (option, name)] + list(more)


def train(out, *more, task=TASK, bonus="none"):
    return main(["train", *SMALL, "--out", str(out), *asked(more, task, bonus)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    assert train(out, "--quiet") == 0
    return out


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def test_every_task_with_every_bonus_and_seed_is_a_run(tmp_path, capsys):
    arguments = ["--task", TASK, "minigrid/LavaGapS5", "--bonus", "none", "vcse", "--seeds", "2", "--first-seed", "7"]
    assert main(["train", *arguments, *SMALL, "--out", str(tmp_path), "--jobs", "1"]) == 0
    runs = {str(each.parent.relative_to(tmp_path)) for each in tmp_path.rglob("DONE")}
    assert runs == {
        f"minigrid-{task}/{bonus}/seed{seed}"
        for task in ("Empty-5x5", "LavaGapS5")
        for bonus in ("none", "vcse")
        for seed in (7, 8)
    }
    out, err = capsys.readouterr()
    assert out == ""
    first, last, hint = err.splitlines()
    assert first == "2 tasks, a2c, 8 runs: 0 of 48 frames"
    assert hint.startswith(f"8 runs are in {tmp_path}; look at them with vcse report")
    assert re.match(r"2 tasks, a2c, 8 runs: 48 of 48 frames, [\d,]+ frames/s, success none .* bonus none 0 vcse", last)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_runs_note_the_command_that_trained_them_in_this_process_or_another(tmp_path, jobs, without_type_checks):
    arguments = ["train", "--task", TASK, "--bonus", "none", "--seeds", "2", *SMALL, "--out", str(tmp_path), "--quiet"]
    assert main([*arguments, "--jobs", jobs]) == 0
    commands = [json.loads(path.read_text())["command"] for path in tmp_path.rglob("meta.json")]
    assert commands == [[*arguments, "--jobs", jobs]] * 2


def test_what_is_asked_for_is_what_is_configured(tmp_path):
    deviations = ["--reading", "clean", "--k", "4", "--beta", "0.1", "--injection", "after_gae", "--method", "mine"]
    assert train(tmp_path, "--quiet", *deviations, bonus="vcse") == 0
    config = read_config(tmp_path / "minigrid-Empty-5x5" / "mine" / "seed0")
    assert config.settings == a2c_settings("vcse", "clean", k=4, beta=0.1, injection="after_gae", environments=2)
    assert (config.reading, config.frames, config.eval_episodes, config.backend) == ("clean", 48, 1, "envpool")


@pytest.mark.parametrize(
    ("task", "features", "backend"),
    [("minigrid-full/LavaGapS7", "position", "minigrid"), ("minigrid-table/SimpleCrossingS9N1", "encoder", "table")],
)
def test_other_families_choose_their_features_and_simulator(tmp_path, task, features, backend, without_type_checks):
    assert train(tmp_path, "--quiet", "--eval-episodes", "0", task=task, bonus="vcse") == 0
    config = read_config(tmp_path / task.replace("/", "-") / "vcse" / "seed0")
    assert (config.settings.bonus_features, config.backend) == (features, backend)


def test_rcse_is_for_tasks_whose_rewards_come_at_more_than_the_goal(tmp_path):
    assert train(tmp_path, "--quiet", task="minigrid/Dynamic-Obstacles-5x5", bonus="rcse") == 0
    assert read_rows(tmp_path / "minigrid-Dynamic-Obstacles-5x5" / "rcse" / "seed0" / "train.csv")


def test_the_help_has_the_options_of_each_agent_together(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    # Around the boxes are lines where the terminal can show them, and blanks elsewhere.
    boxes = re.split(r"(?m)^[╭─ ]+(?:([\w, ]+) )?options[╮─ ]*$", capsys.readouterr().out)[1:]
    pairs = zip(boxes[::2], boxes[1::2], strict=True)
    options = {name: re.findall(r"(?m)^[│ ]+(--[a-z][\w-]+)", box) for name, box in pairs}
    assert list(options) == [
        *(None, "environment", "a2c and sac", "a2c", "sac, drqv2 and mwm", "sac and drqv2", "sac", "drqv2", "mwm"),
    ]
    assert {"--task", "--frames", "--reading", "--device", "--dry-run", "--beta"} <= set(options[None])
    seen = ["--backend", "--visits-every-frames", "--rendering", "--goal-marker", "--keep-replay"]
    assert options["environment"] == seen
    assert options["a2c and sac"] == ["--step-cost", "--values"]
    assert {"--injection", "--environments"} <= set(options["a2c"])
    assert options["sac"] == ["--temperature", "--extrinsic-entropy", "--updates-per-step"]
    assert {"--batch-size", "--seed-frames"} <= set(options["sac, drqv2 and mwm"])
    assert {"--n-step", "--action-noise"} <= set(options["drqv2"])


def test_the_help_says_what_an_option_is_if_it_is_not_given(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    default = "in a2c 0.02 in recommended, else 0.005; in sac 0.02 in recommended, else 0.1; in drqv2 0.1; in mwm 1.0"
    assert f"--beta FLOAT Weight of the bonus. (default: {default})" in told
    about = "Units of each of the two hidden layers of every network. In mwm: units of each hidden layer of "
    about += "actor, critics and rewards. (default: in sac 256 for gymnasium/..., else 1024; in drqv2 1024; in mwm 512)"
    assert f"--hidden-units INT {about}" in told
    about = "Transitions of an update. In mwm: sequences of an update of the world model. (default: in sac 256 for "
    assert f"{about}gymnasium/..., else 1024; in drqv2 256, and 512 for walkers; in mwm 50)" in told
    kept = "Transitions that are kept; never more than the run has."
    assert f"{kept} (default: in sac 600k; in drqv2 1M; in mwm 2M)" in told


def test_a_dry_run_says_how_much_and_does_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vcse.cli.dry_run.cores", lambda: 2)
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 5 * 10**9)
    out = tmp_path / "runs"
    assert train(out, "--seeds", "3", "--jobs", "2", "--dry-run") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{out}: 3 of 3 runs to train, 144 frames"
    assert said[1].startswith("  2 cohorts on 2 cores, about ")
    assert said[2] == "  minigrid/Empty-5x5: 3 runs of 48 frames, none"
    assert said[3].startswith("  memory: about ")
    assert said[4].endswith("more on disk at the end, where 5.0 GB are free")
    assert not out.exists()


def test_a_dry_run_leaves_out_what_is_done_and_refuses_what_training_would(copy, capsys):
    before = sorted(copy.rglob("*"))
    assert train(copy, "--dry-run") == 0
    assert capsys.readouterr().out == f"the run in {copy} is done: nothing would run\n"
    assert train(copy, "--seeds", "2", "--dry-run") == 0
    assert f"{copy}: 1 of 2 runs to train, 48 frames\n" in capsys.readouterr().out
    assert train(copy, "--beta", "0.5", "--dry-run", bonus="vcse") == 0
    capsys.readouterr()
    assert train(copy, "--reading", "clean", "--dry-run") == 1
    assert "reading" in capsys.readouterr().err
    assert sorted(copy.rglob("*")) == before


def test_numbers_without_an_option_are_set_by_name(tmp_path, monkeypatch):
    kept = []
    place = importlib.import_module("vcse.cli.train")
    monkeypatch.setattr(place, "train_in_jobs", lambda configs, *given, **settings: kept.extend(configs))
    monkeypatch.setattr(place, "check_rendering", lambda *given: None)
    numbers = ["learning_rate=3e-4", "discount=0.9"]
    asked = ["--task", TASK, PENDULUM, PENDULUM_SEEN, "--set", *numbers, "--out", str(tmp_path), "--quiet"]
    assert main(["train", *asked]) == 0
    for config, read in zip(kept, (a2c_settings, sac_settings, drqv2_settings), strict=True):
        told = {"task": PENDULUM_SEEN} if read is drqv2_settings else {}
        assert config.settings == dataclasses.replace(read("vcse", **told), learning_rate=3e-4, discount=0.9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dicount=0.9", "--set dicount=0.9: the agent a2c has no dicount; it has rollout_steps, discount, .*"),
        ("target_rate=0.1", "--set target_rate=0.1: the agent a2c has no target_rate; it has .*"),
        ("discount", "--set must be NAME=NUMBER, got 'discount'"),
        ("bonus=se", "--set bonus=se: the agent a2c has no bonus; it has .*"),
        ("environments=3", "--set environments=3: environments has an option of its own, --environments"),
        ("rollout_steps=1.5", "--set rollout_steps=1.5: it must be a whole number, got '1.5'"),
        ("discount=much", "--set discount=much: it must be a number, got 'much'"),
        ("discount=2", "discount must be from 0 to 1, got 2.0"),
        ("learning_rate=nan", "learning_rate must be .*, got nan"),
        ("discount=0.9 discount=0.8", "--set has discount more than once"),
    ],
)
def test_numbers_that_cannot_be_set_are_one_clear_line(tmp_path, capsys, text, message):
    assert train(tmp_path / "out", "--set", *text.split()) == 1
    assert re.fullmatch(f"vcse: {message}\n", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_run_that_diverges_is_named_the_others_are_done_and_resume_goes_on_elsewhere(tmp_path, capsys):
    both = ["--task", TASK, "--bonus", "none", "vcse", "--beta", "1e30", *SMALL, "--frames", "960", "--quiet"]
    lost = "minigrid-Empty-5x5/vcse/seed0"
    assert main(["train", *both, "--out", str(tmp_path / "a")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(rf"vcse: the gradient of {lost} is not finite at frame \d+; the other run is done", said)
    assert (tmp_path / "a" / RUN / "DONE").exists()
    RunDirectory(tmp_path / "b" / RUN, read_config(tmp_path / "a" / RUN)).close()  # has not begun
    assert main(["resume", str(tmp_path), "--quiet", "--device", "cpu"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"vcse: the gradient of {tmp_path / 'a' / lost} is not finite at frame ")
    assert said.endswith("; the 2 other runs are done")
    assert (tmp_path / "b" / RUN / "DONE").exists()

    assert not (tmp_path / "out").exists()


def test_runs_go_on_where_they_were_begun_unless_told(copy, capsys, monkeypatch):
    used = []
    place = importlib.import_module("vcse.cli.train")
    monkeypatch.setattr(place, "train_in_jobs", lambda *given, device, **settings: used.append(device))
    monkeypatch.setattr("vcse.launch.devices.torch.cuda.is_available", lambda: True)
    longer = ["--frames", "96", "--quiet", "--device"]
    for device in ("auto", "cuda"):
        assert main(["resume", str(copy), *longer, device]) == 0
    for bonus in ("none", "se"):
        assert train(copy, *longer, "auto", bonus=bonus) == 0
    assert used == ["cpu", "cuda", "cpu", "cuda"]
    assert capsys.readouterr().err.count("vcse: these runs were begun on the CPU and continue there") == 2


def test_quiet_says_nothing(tmp_path, capsys):
    assert train(tmp_path, "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_the_same_command_again_is_one_line_and_success(copy, capsys):
    before = (copy / RUN / "train.csv").read_bytes()
    assert train(copy) == 0
    assert capsys.readouterr() == ("", f"{copy / RUN} is done: 48 frames\n")
    assert (copy / RUN / "train.csv").read_bytes() == before


def test_a_longer_run_goes_on_and_a_shorter_one_is_done(copy, capsys):
    assert train(copy, "--frames", "80") == 0
    assert capsys.readouterr().err.startswith(f"{TASK}, a2c, 1 run: 48 of 80 frames\n")
    assert (copy / RUN / "DONE").read_text() == "80\n"
    assert train(copy, "--frames", "16") == 0
    assert capsys.readouterr().err == f"{copy / RUN} is done: 80 frames\n"
    (copy / RUN / "DONE").unlink()
    assert train(copy, "--frames", "48") == 1
    assert "is a run of 80 frames, which may grow but not shrink to 48" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (["--time-limit", "bootstraps"], "a2c.time_limit is 'ends' there and 'bootstraps' here"),
        (["--reading", "paper"], "reading is 'release' there and 'paper' here"),
        (["--environments", "3"], "a2c.environments is 2 there and 3 here"),
        (["--eval-episodes", "2"], "eval_episodes is 1 there and 2 here"),
        (["--backend", "minigrid"], "backend is 'envpool' there and 'minigrid' here"),
    ],
)
def test_any_other_difference_is_refused_by_name(finished, capsys, change, named):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert train(finished, *change) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"vcse: {finished / RUN} holds another run: ")
    assert named in err
    ways_out = "choose another --out, or --method in vcse train, or continue with that one by"
    way_out = f"{ways_out} vcse resume {finished / RUN} --frames N\n"
    assert err.endswith(way_out)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "minigrid/Nowhere"], "task 'minigrid/Nowhere' does not exist"),
        (["--task", "atari/Pong"], "task 'atari/Pong' does not exist; tasks are written family/name"),
        (["--task", "minigrid-table/LavaGapS7"], "task 'minigrid-table/LavaGapS7' does not exist"),
        (["--k", "5"], "--k is for the bonuses se, vcse, rcse, se-matched, got --bonus none"),
        (["--beta", "0.1"], "--beta is for the bonuses se, vcse, rcse, se-matched, rnd, icm, counts, got --bonus none"),
        (["--task", "minigrid-full/Empty-5x5"], "needs an image of at least 7x7 cells, got 5x5"),
        (["--task", TASK, TASK], f"--task has {TASK} more than once"),
        (["--bonus", "se", "se"], "--bonus has se more than once"),
        (
            ["--bonus", "curiosity"],
            "--bonus must be one of none, se, vcse, rcse, se-matched, rnd, icm, counts, got 'curiosity'",
        ),
        (["--bonus", "rcse"], "--bonus rcse conditions on the reward, which minigrid/Empty-5x5 gives only at the goal"),
        (["--task", "minigrid-full/LavaGapS7", "--bonus", "rcse"], "which minigrid-full/LavaGapS7 gives only at the"),
        (["--bonus", "vcse", "--reading", "re3"], "--reading 're3' is one of state entropy"),
        (["--bonus", "se", "vcse", "--method", "mine"], "--method is one label, but there are 2 bonuses"),
        (["--method", "a/b"], "--method names a directory"),
        (["--method", ""], "--method names a directory"),
        (["--agent", "ppo"], "--agent must be one of a2c, sac, drqv2, mwm, got 'ppo'"),
        (["--agent", "sac"], "--agent sac does not train on minigrid/Empty-5x5, which is for a2c"),
        (
            ["--hidden-units", "64"],
            "--hidden-units is for the agent sac, drqv2 or mwm, but minigrid/Empty-5x5 is trained by a2c",
        ),
        (
            ["--no-keep-replay"],
            "--keep-replay is for dmc/..., dmc-pixels/..., metaworld/..., not for minigrid/Empty-5x5",
        ),
        (
            ["--injection", "reward"],
            "--injection is for the bonuses se, vcse, rcse, se-matched, rnd, icm, counts, got --bonus none",
        ),
        (["--temperature", "learned"], "--temperature is for the agent sac, but minigrid/Empty-5x5 is trained by a2c"),
        (
            ["--bonus", "none", "se", "--log-offset", "1"],
            "--log-offset is for the bonuses vcse, rcse, se-matched, got --bonus none se",
        ),
        (
            ["--bonus", "se-matched", "--value-normalization", "running"],
            "--value-normalization is for the bonuses vcse, rcse, got --bonus se-matched",
        ),
        (
            ["--bonus", "vcse", "--values", "exact"],
            "--values exact needs a task that is enumerated, minigrid-table/..., not minigrid/Empty",
        ),
        (["--values", "exact"], "--values is for the bonus vcse, got --bonus none"),
        (["--bonus", "se-matched", "--values", "permuted"], "--values is for the bonus vcse, got --bonus se-matched"),
        (["--step-cost", "-0.02"], "--step-cost must be finite and not negative, got -0.02"),
        (["--step-cost", "nan"], "--step-cost must be finite and not negative, got nan"),
        (
            ["--task", "minigrid-full/LavaGapS7", "--backend", "envpool"],
            "--backend envpool does not show the whole map of minigrid-full/LavaGapS7: use minigrid",
        ),
        (
            ["--task", "minigrid-table/SimpleCrossingS9N1", "--backend", "minigrid"],
            "--backend minigrid does not step minigrid-table/SimpleCrossingS9N1: leave it out",
        ),
        (["--frames", "0"], "--frames"),
        (["--frames", "-5"], "--frames must be at least 1, got -5"),
        (["--seeds", "0"], "--seeds"),
        (["--seeds", "-1"], "--seeds must be at least 1, got -1"),
        (["--environments", "0"], "--environments"),
        (["--first-seed", "-1"], "--first-seed must be at least 0, got -1"),
        (["--first-seed", "3000000000"], "seed must be from 0 to 1,000,000,000"),
        (["--threads", "0"], "--threads must be at least 1, got 0"),
        (["--eval-episodes", "-1"], "--eval-episodes must not be negative, got -1"),
        (["--checkpoint-every-frames", "0"], "--checkpoint-every-frames must be at least 1, got 0"),
        (["--bonus", "vcse", "--k", "0"], "--k must be at least 1, got 0"),
        (["--bonus", "se", "--k", "1"], "--k=1 with self_in_k=True makes each point its own neighbour"),
        (["--bonus", "vcse", "--k", "16"], "--k must be below 16, the states of an update, got 16"),
        (
            ["--bonus", "se", "--environments", "1300"],
            "--environments=1300 with rollout_steps=8 is 10400 states an update, but the memory of se holds 10000",
        ),
        (["--bonus", "vcse", "--log-offset", "nan"], "--log-offset must be finite and not negative, got nan"),
        (["--bonus", "vcse", "--beta", "-1"], "--beta must be finite and not negative, got -1"),
    ],
)
def test_bad_input_is_one_clear_line_and_writes_nothing(tmp_path, capsys, arguments, message, without_type_checks):
    out = tmp_path / "out"
    assert train(out, *arguments) == 1
    written, told = capsys.readouterr()
    assert (written, told.count("\n")) == ("", 1)
    assert told.startswith("vcse: ")
    assert message in told
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "dmc/hopper_stnd"], "task 'dmc/hopper_stnd' does not exist; nearest are dmc/hopper_stand, "),
        (["--agent", "a2c"], "--agent a2c does not train on dmc/pendulum_swingup, which is for sac"),
        (["--injection", "reward"], "--injection is for the agent a2c, but dmc/pendulum_swingup is trained by sac"),
        (["--environments", "2"], "--environments is for the agent a2c, but dmc/pendulum_swingup is trained by sac"),
        (["--bonus", "se", "--values", "frozen"], "--values is for the bonus vcse, got --bonus se"),
        (["--step-cost", "nan"], "--step-cost must be finite and not negative, got nan"),
        (
            ["--backend", "minigrid"],
            "--backend is for minigrid/..., minigrid-full/..., minigrid-table/..., not for dmc/p",
        ),
        (["--visits-every-frames", "100"], "--visits-every-frames is for minigrid/..., minigrid-full/..., minigrid-ta"),
        (["--goal-marker", "True"], "--goal-marker is for dmc-pixels/..., metaworld/..., not for dmc/pendulum_swingup"),
        (
            ["--task", TASK, "dmc/hopper_stand", "--hidden-units", "64"],
            "--hidden-units is for the agent sac, drqv2 or mwm, but mini",
        ),
        (["--reading", "re3"], "--reading must be one of release, paper, clean, recommended for sac, got 're3'"),
        (["--hidden-units", "0"], "--hidden-units must be at least 1, got 0"),
        (["--batch-size", "12"], "--k must be below 12, the states of a batch, got 12"),
        (["--seed-frames", "0"], "--seed-frames must be at least 1, got 0"),
        (["--updates-per-step", "-1"], "--updates-per-step must be finite and not negative, got -1"),
        (["--replay-capacity", "100"], "--replay-capacity must be at least 1024, the transitions of a batch, got 100"),
        (["--temperature", "0"], "--temperature must be finite and above 0, got 0"),
        (
            ["--bonus", "none", "se", "--value-critic", "online"],
            "--value-critic is for the bonus vcse, got --bonus none se",
        ),
        (["--beta", "-1"], "--beta must be finite and not negative, got -1"),
    ],
)
def test_bad_input_for_sac_is_one_clear_line_and_writes_nothing(tmp_path, capsys, arguments, message):
    out = tmp_path / "out"
    assert main(["train", "--frames", "48", "--out", str(out), *asked(arguments, PENDULUM, "vcse")]) == 1
    written, told = capsys.readouterr()
    assert (written, told.count("\n")) == ("", 1)
    assert told.startswith("vcse: ")
    assert message in told
    assert not out.exists()


@pytest.mark.usefixtures("without_type_checks")
def test_a_word_of_an_option_that_another_agent_has_is_refused(tmp_path, capsys):
    given = ["--task", PENDULUM, "--bonus", "vcse", "--values", "exact", "--out", str(tmp_path / "out")]
    assert main(["train", *given]) == 1
    assert capsys.readouterr().err == "vcse: --values must be one of network, permuted, frozen, got 'exact'\n"


def test_a_step_cost_without_a_bonus_lets_injection_be_chosen(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("vcse.cli.train.train_in_jobs", lambda configs, out, **means: made.extend(configs))
    given = ["--task", TASK, "--bonus", "none", "--step-cost", "0.02", "--quiet", "--out", str(tmp_path)]
    for more in ([], ["--injection", "after_gae"]):
        assert main(["train", *given, *more]) == 0
    assert [(config.settings.step_cost, config.settings.injection) for config in made] == [
        (0.02, "reward"),
        (0.02, "after_gae"),
    ]


def test_without_the_simulator_of_a_task_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vcse.envs.mujoco.dmc._installed", lambda: False)
    assert main(["train", "--task", PENDULUM, "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told == (
        "vcse: dm_control, which simulates dmc/pendulum_swingup, is not installed: pip install 'vcse[dmc]'\n"
    )
    assert not (tmp_path / "out").exists()


def test_what_is_asked_of_sac_is_what_is_configured(tmp_path, without_type_checks):
    sizes = ["--hidden-units", "16", "--batch-size", "32", "--seed-frames", "20", "--updates-per-step", "0.5"]
    deviations = ["--reading", "paper", "--temperature", "learned", "--value-critic", "online", "--k", "5"]
    lengths = ["--frames", "24", "--eval-episodes", "0", "--replay-capacity", "500", "--threads", "1", "--quiet"]
    assert main(["train", "--task", PENDULUM, *sizes, *deviations, *lengths, "--out", str(tmp_path)]) == 0
    config = read_config(tmp_path / "dmc-pendulum_swingup" / "vcse" / "seed0")
    assert config.settings == sac_settings(
        "vcse",
        "paper",
        k=5,
        temperature="learned",
        value_critic="online",
        hidden_units=16,
        batch_size=32,
        seed_frames=20,
        updates_per_step=0.5,
        replay_capacity=500,
    )
    assert config.settings.extrinsic_entropy
    assert (config.agent, config.backend, config.eval_every_frames, config.row_every_frames) == (
        "sac",
        "dm_control",
        10_000,
        10_000,
    )


PENDULUM_SEEN = "dmc-pixels/pendulum_swingup"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--task", "dmc-pixels/hopper_stnd"],
            "task 'dmc-pixels/hopper_stnd' does not exist; nearest are dmc-pixels/ho",
        ),
        (["--agent", "sac"], f"--agent sac does not train on {PENDULUM_SEEN}, which is for drqv2"),
        (["--temperature", "0.1"], f"--temperature is for the agent sac, but {PENDULUM_SEEN} is trained by drqv2"),
        (["--environments", "2"], f"--environments is for the agent a2c, but {PENDULUM_SEEN} is trained by drqv2"),
        (["--task", TASK, "--rendering", "fast"], f"--rendering is for dmc-pixels/..., metaworld/..., not for {TASK}"),
        (["--task", PENDULUM, "--n-step", "3"], f"--n-step is for the agent drqv2, but {PENDULUM} is trained by sac"),
        (["--task", PENDULUM_SEEN, PENDULUM, "--n-step", "3"], "--n-step is for the agent drqv2, but dmc/pendulum"),
        (["--n-step", "501"], f"--n-step must be at most 500, the steps of an episode of {PENDULUM_SEEN}, got 501"),
        (["--reading", "re3"], "--reading must be one of release, paper, clean, recommended for drqv2, got 're3'"),
        (["--batch-size", "12"], "--k must be below 12, the states of a batch, got 12"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--n-step", "0"], "--n-step must be at least 1, got 0"),
        (["--hidden-units", "0"], "--hidden-units must be at least 1, got 0"),
        (["--seed-frames", "0"], "--seed-frames must be at least 1, got 0"),
        (["--bonus-batch-size", "100"], "--bonus-batch-size must be at least --batch-size, 256, got 100"),
        (["--action-noise", "-1"], "--action-noise must be finite and not negative, got -1"),
        (["--action-noise", "1", "nan", "9"], "--action-noise must be finite and not negative, got nan"),
        (["--action-noise", "1", "0.1", "0"], "--action-noise must change over at least 1 step, got 0"),
        (["--bonus", "none", "--beta-decay", "0.1"], "--beta-decay is for the bonuses se, vcse, rcse, se-matched, rnd"),
        (["--bonus", "none", "--curiosity-pair", "one-step"], "--curiosity-pair is for the bonuses se, vcse, rcse, se"),
        (["--bonus", "se", "--value-critic", "target"], "--value-critic is for the bonus vcse, got --bonus se"),
        (
            ["--goal-marker", "False"],
            f"--goal-marker is for metaworld/..., whose tasks have one, not for {PENDULUM_SEEN}",
        ),
        (["--beta-decay", "1"], "--beta-decay must be from 0 to below 1, got 1"),
        (["--replay-capacity", "100"], "--replay-capacity must be at least 256, the transitions of a batch, got 100"),
        (["--replay-capacity", "-5"], "--replay-capacity must be at least 256, the transitions of a batch, got -5"),
    ],
)
def test_bad_input_for_drqv2_is_one_clear_line_and_writes_nothing(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(importlib.import_module("vcse.cli.train"), "train_in_jobs", lambda *given, **settings: None)
    out = tmp_path / "out"
    assert main(["train", "--frames", "48", "--out", str(out), *asked(arguments, PENDULUM_SEEN, "vcse")]) == 1
    written, told = capsys.readouterr()
    assert (written, told.count("\n")) == ("", 1)
    assert told.startswith("vcse: ")
    assert message in told
    assert not out.exists()


@pytest.mark.parametrize(
    ("named", "message"),
    [("off", "images are asked for, but MUJOCO_GL=off turns drawing off"), ("x", "MUJOCO_GL must be egl, osmesa")],
)
def test_where_nothing_draws_images_are_refused_before_anything_is_made(tmp_path, capsys, monkeypatch, named, message):
    task_spec(PENDULUM)  # which imports what looks at MUJOCO_GL too
    monkeypatch.setenv("MUJOCO_GL", named)
    assert main(["train", "--task", PENDULUM_SEEN, "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"vcse: {message}")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_unknown_task_of_metaworld_names_the_nearest(tmp_path, capsys):
    pytest.importorskip("metaworld")
    assert main(["train", "--task", "metaworld/door-opn", "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("vcse: task 'metaworld/door-opn' does not exist; nearest are metaworld/door-open, ")
    assert not (tmp_path / "out").exists()


def test_what_is_asked_of_drqv2_is_what_is_configured(tmp_path, monkeypatch):
    asked = []
    keep = lambda configs, out, **settings: asked.extend(configs)  # noqa: E731
    monkeypatch.setattr(importlib.import_module("vcse.cli.train"), "train_in_jobs", keep)
    monkeypatch.setattr(importlib.import_module("vcse.cli.train"), "check_rendering", lambda *_: None)

    def configured(*arguments):
        asked.clear()
        assert main(["train", *arguments, "--out", str(tmp_path), "--quiet"]) == 0
        [config] = asked
        return config

    plain = configured("--task", PENDULUM_SEEN)
    assert plain.settings == drqv2_settings("vcse", task=PENDULUM_SEEN)
    falling = configured("--task", PENDULUM_SEEN, "--action-noise", "1", "0.1", "500k")
    assert falling.settings.action_noise == (1.0, 0.1, 500_000)
    assert (plain.agent, plain.backend, plain.rendering) == ("drqv2", "dm_control", "faithful")
    assert (plain.goal_marker, plain.keep_replay) == (None, True)
    door = configured("--task", "metaworld/door-open", "--no-keep-replay")
    assert (door.goal_marker, door.keep_replay) == (True, False)
    assert configured("--task", "metaworld/door-open", "--goal-marker", "False").goal_marker is False
    assert (plain.row_every_frames, plain.eval_every_frames, plain.eval_episodes) == (10_000, 10_000, 10)
    sizes = ["--hidden-units", "16", "--batch-size", "32", "--seed-frames", "20", "--replay-capacity", "500"]
    deviations = ["--value-critic", "target", "--curiosity-pair", "one-step", "--return-injection", "every_step"]
    numbers = ["--k", "5", "--beta", "0.2", "--beta-decay", "0.001", "--action-noise", "0.4", "--n-step", "2"]
    more = ["--bonus-batch-size", "64", "--reward-normalization", "centered", "--rendering", "light"]
    more += ["--encoder-precision", "bfloat16", "--actor-normalization", "--pre-activation-penalty", "0.1"]
    config = configured("--task", PENDULUM_SEEN, *sizes, *deviations, *numbers, *more)
    assert config.rendering == "light"
    assert config.settings == drqv2_settings(
        "vcse",
        task=PENDULUM_SEEN,
        k=5,
        beta=0.2,
        beta_decay=0.001,
        value_critic="target",
        curiosity_pair="one-step",
        return_injection="every_step",
        action_noise=0.4,
        reward_normalization="centered",
        actor_normalization=True,
        pre_activation_penalty=0.1,
        bonus_batch_size=64,
        n_step=2,
        batch_size=32,
        hidden_units=16,
        seed_frames=20,
        replay_capacity=500,
        encoder_precision="bfloat16",
    )
    assert config.settings.action_noise == (0.4, 0.4, 1)


@pytest.mark.parametrize(
    "arguments", [["--reading", "mine"], ["--frames", "many"], ["--device", "tpu"], ["--nonsense"]]
)
def test_a_wrong_call_is_told_and_writes_nothing(tmp_path, capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        train(tmp_path / "out", *arguments)
    assert exit_.value.code == 2
    written, told = capsys.readouterr()
    assert written == ""
    assert arguments[0].removeprefix("--") in told
    assert not (tmp_path / "out").exists()


def test_a_file_where_runs_should_be_written_is_told(tmp_path, capsys):
    (tmp_path / "out").write_text("precious")
    assert train(tmp_path / "out") == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"the runs cannot be written to {tmp_path / 'out'}: it is a file; --out names a directory" in told
    assert (tmp_path / "out").read_text() == "precious"


def test_a_run_that_another_process_writes_is_refused(copy, capsys):
    held = RunDirectory(copy / RUN, read_config(copy / RUN))
    assert train(copy, "--frames", "80") == 1
    held.close()
    assert (
        capsys.readouterr().err
        == f"vcse: {copy / RUN} is being written by another process: wait until that is done, or stop it\n"
    )
    assert read_config(copy / RUN).frames == 48


def test_a_full_disk_is_one_line_and_exit_status_1_and_can_be_mended(tmp_path, finished, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # as if a checkpoint no longer fitted
    try:
        assert train(tmp_path, "--quiet") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"vcse: /.*frame.*\.pt: File too large; stopped at frame 48: .* continues from .*", line)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (tmp_path / RUN / "DONE").exists()
    assert train(tmp_path, "--quiet") == 0
    for name in ("train.csv", "eval.csv", "actions.bin", "DONE"):
        assert (tmp_path / RUN / name).read_bytes() == (finished / RUN / name).read_bytes()


def test_resume_finds_nothing_to_do(copy, capsys):
    assert main(["resume", str(copy)]) == 0
    assert capsys.readouterr() == ("", f"{copy / RUN} is done: 48 frames\n")


def test_resume_with_fewer_frames_than_runs_have_says_so(copy, capsys):
    assert main(["resume", str(copy), "--frames", "40"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"vcse: --frames 40 would shorten 1 of 1 run in {copy}, up to 48 long: runs may ")
    assert second == f"{copy / RUN} is done: 48 frames"
    assert main(["resume", str(copy), "--frames", "48"]) == 0
    assert capsys.readouterr().err == f"{copy / RUN} is done: 48 frames\n"


@pytest.mark.parametrize("below", ["", RUN])
def test_resume_of_a_run_or_of_all_makes_them_longer_also_elsewhere(finished, tmp_path, capsys, below):
    moved = shutil.copytree(finished, tmp_path / "some" / "other" / "place")
    assert main(["resume", str(moved / below), "--frames", "80", "--threads", "1"]) == 0
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == f"{TASK}, a2c, 1 run: 48 of 80 frames"
    assert last.startswith(f"1 run is in {moved / below}; look at it with vcse report {moved / below}, ")
    assert (moved / RUN / "DONE").read_text() == "80\n"
    assert [row["frame"] for row in read_rows(moved / RUN / "train.csv")] == [48, 80]


def test_resume_goes_on_with_a_run_that_stopped(copy, finished, monkeypatch):
    (copy / RUN / "DONE").unlink()
    checkpoint.drop_after(copy / RUN / "checkpoint", 0)
    monkeypatch.chdir(copy / RUN)
    assert main(["resume", "../seed0", "--quiet", "--device", "cpu"]) == 0
    for name in ("train.csv", "eval.csv", "actions.bin", "DONE"):
        assert (copy / RUN / name).read_bytes() == (finished / RUN / name).read_bytes()


def test_resume_leaves_a_run_out_that_lacks_what_it_needs_to_go_on(tmp_path, capsys):
    assert main(["train", "--task", TASK, "--bonus", "none", "se", *SMALL, "--out", str(tmp_path), "--quiet"]) == 0
    broken, whole = (tmp_path / "minigrid-Empty-5x5" / bonus / "seed0" for bonus in ("se", "none"))
    (broken / "actions.bin").unlink()
    before = (broken / "config.json").read_bytes()
    assert main(["resume", str(tmp_path)]) == 0  # all are done, and lack nothing for that
    assert main(["resume", str(tmp_path), "--frames", "96", "--quiet"]) == 1
    reason = "actions.bin is missing, without which the run cannot continue to 96 frames: choose another --out"
    assert f"{broken}/{reason}" in capsys.readouterr().err
    assert (whole / "DONE").read_text() == "96\n"
    assert (broken / "config.json").read_bytes() == before
    assert main(["resume", str(broken), "--frames", "96"]) == 1
    assert capsys.readouterr().err.startswith(f"vcse: {broken}/{reason}")


def test_resume_of_a_run_with_another_name_is_refused(copy, tmp_path, capsys):
    (copy / RUN).rename(tmp_path / "mine")
    assert main(["resume", str(tmp_path / "mine"), "--frames", "80"]) == 1
    told = capsys.readouterr().err
    assert told == f"vcse: {tmp_path / 'mine'} was moved: the path of this run must end in {RUN}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a directory"),
        (["."], ". holds no run: there is no config.json below it"),
        (["copy", "--frames", "0"], "frames must be at least 1, got 0"),
        (["copy", "--threads", "-1"], "--threads must be at least 1, got -1"),
    ],
)
def test_resume_of_what_cannot_be_resumed_is_one_line(tmp_path, finished, monkeypatch, capsys, arguments, message):
    if arguments[0] == "copy":
        shutil.copytree(finished, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    assert main(["resume", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert message in told


def test_a_configuration_that_cannot_be_read_is_one_line(copy, capsys):
    content = json.loads((copy / RUN / "config.json").read_text())
    del content["a2c"]
    (copy / RUN / "config.json").write_text(json.dumps(content))
    for command in (["resume", str(copy)], ["train", "--task", TASK, "--bonus", "none", *SMALL, "--out", str(copy)]):
        assert main(command) == 1
        assert capsys.readouterr().err == f"vcse: {copy / RUN / 'config.json'} cannot be read: 'a2c'\n"


def test_stopping_says_how_to_go_on_and_exits_as_signals_do(tmp_path, capsys, monkeypatch):
    def stop(*_, runs):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("vcse.runs.progress.TrainingProgress.start", stop)
    assert train(tmp_path, "--quiet") == 143
    assert capsys.readouterr().err == (
        "vcse: stopped by SIGTERM: no run had begun; to continue, run the same command again\n"
    )


def test_a_damaged_run_is_named_and_the_others_go_on(copy, capsys):
    other = copy / "minigrid-Empty-5x5" / "none" / "seed9"
    shutil.copytree(copy / RUN, other)
    (other / "config.json").write_text("")
    assert main(["resume", str(copy), "--frames", "96"]) == 1  # not all was done that was asked for
    shown = capsys.readouterr().err
    assert f"vcse: {other / 'config.json'} cannot be read: " in shown
    assert "the run is left out" in shown
    assert (copy / RUN / "DONE").read_text() == "96\n"


def test_a_finished_run_without_checkpoints_keeps_its_curves(copy, capsys):
    for path in (copy / RUN / "checkpoint").iterdir():
        path.unlink()
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for command in (["resume", str(copy), "--frames", "96"], ["train", "--task", TASK, "--bonus", "none", *SMALL]):
        more = [] if command[0] == "resume" else ["--out", str(copy), "--frames", "96"]
        assert main([*command, *more]) == 1
        assert capsys.readouterr().err == (
            f"vcse: {copy / RUN} is done at frame 48 and its checkpoints are gone: it cannot be extended to 96; choose "
            "another --out, or delete it to train it anew\n"
        )
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert main(["resume", str(copy)]) == 0


def test_a_setting_of_a_wrong_kind_is_one_line(copy, capsys, without_type_checks):
    content = json.loads((copy / RUN / "config.json").read_text())
    content["a2c"]["environments"] = "x"
    (copy / RUN / "config.json").write_text(json.dumps(content))
    assert main(["resume", str(copy)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(
        f"vcse: {copy / RUN / 'config.json'} cannot be read: a setting is missing, unknown or of a wrong"
    )
    assert told.count("\n") == 1


def test_of_a_bonus_that_pays_nothing_no_deviation_makes_another_run(finished, capsys):
    assert main(["train", "--task", TASK, "--bonus", "none", "vcse", "--k", "4", *SMALL, "--out", str(finished)]) == 0
    assert f"1 of 2 runs in {finished} are done" in capsys.readouterr().err
    assert read_config(finished / "minigrid-Empty-5x5" / "vcse" / "seed0").settings.bonus.k == 4
    shutil.rmtree(finished / "minigrid-Empty-5x5" / "vcse")


def test_files_that_are_of_no_run_are_not_overwritten(tmp_path, capsys):
    (tmp_path / RUN).mkdir(parents=True)
    (tmp_path / RUN / "train.csv").write_text("mine")
    assert main(["train", "--task", TASK, "--bonus", "none", *SMALL, "--out", str(tmp_path)]) == 1
    assert "holds train.csv but no config.json" in capsys.readouterr().err
    assert (tmp_path / RUN / "train.csv").read_text() == "mine"
