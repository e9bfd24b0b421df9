"""The policies of the second package, as they are in this repository."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import vcse
from vcse.play import shipped
from vcse.play.evaluate import evaluate_policies
from vcse.play.export import is_exported, read_scores
from vcse.play.load import load_policies
from vcse.play.scores import wilson_interval
from vcse.play.shipped import NAMES, find_policies, shipped_home, shipped_names

PACKAGE = Path(__file__).parents[2] / "policies"
MOST_BYTES = 9_000_000
EPISODES = 30


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.setattr(shipped, "PACKAGE", "vcse_policies_that_nobody_installed")


def test_what_is_said_to_ship_is_there():
    assert tuple(shipped_names(shipped_home())) == NAMES
    for name in NAMES:
        path = find_policies(name)
        assert is_exported(path)
        assert f"{vcse.load_policy(name).config.task}/vcse" == name
    assert sum(each.stat().st_size for each in PACKAGE.rglob("*") if each.is_file()) < MOST_BYTES


def test_every_policy_plays_as_its_card_says():
    """A mean of a few episodes is that of the card, as far as both allow."""
    for policies in load_policies([find_policies(name) for name in NAMES]):
        found = evaluate_policies(policies, episodes=EPISODES)
        for path, evaluations in zip(policies.paths, found, strict=True):
            scores = read_scores(path).stored
            for evaluation, score in zip(evaluations, (scores.sampled, scores.greedy), strict=True):
                successes = sum(each > 0 for each in evaluation.returns)
                low, high = wilson_interval(successes, EPISODES, 0.999)
                assert low <= score.success_interval.high, path
                assert high >= score.success_interval.low, path
                reached = [each for each in evaluation.returns if each > 0]
                # How fast the goal is reached: the card's mean is over failures too, which count as 0.
                assert sum(reached) / successes == pytest.approx(score.return_mean / score.success_rate, abs=0.05), path


def test_policies_were_trained_with_one_seed_by_one_command_from_one_commit():
    metas = [json.loads((find_policies(name) / "meta.json").read_text()) for name in NAMES]
    assert {vcse.load_policy(name).config.seed for name in NAMES} == {0}
    assert {meta["commit"] for meta in metas} == {"d2e593729031f3fd194d2e5181906a56098fd693"}
    assert {" ".join(meta["command"]) for meta in metas} == {"study run minigrid --bonuses vcse --seeds 1 --device cpu"}


def test_the_readme_has_a_row_of_each_with_the_scores_of_its_card():
    rows = [line for line in (PACKAGE / "README.md").read_text().splitlines() if line.startswith("| `")]
    expected = []
    for name in NAMES:
        scores, config = read_scores(find_policies(name)).stored, vcse.load_policy(name).config
        cells = [f"{each.success_rate:.1%} | {each.return_mean:.3f}" for each in (scores.sampled, scores.greedy)]
        expected.append(f"| `{name}` | {config.frames:,} | {' | '.join(cells)} |")
    assert rows == expected


def test_the_beginning_of_names_is_the_directory_of_all_of_them():
    assert find_policies("minigrid") == shipped_home() / "minigrid"
    assert find_policies(Path("minigrid/LavaGapS7")) == shipped_home() / "minigrid" / "LavaGapS7"
    with pytest.raises(ValueError, match="minigrid must be one run, or hold one, got 6 runs below it"):
        vcse.load_policy("minigrid")


def test_a_path_is_taken_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minigrid" / "LavaGapS7").mkdir(parents=True)
    assert find_policies("minigrid/LavaGapS7") == Path("minigrid/LavaGapS7")
    assert find_policies(tmp_path) == tmp_path


def test_of_a_path_that_does_not_exist_what_is_beside_it_is_told(tmp_path):
    for seed in range(3):
        (tmp_path / f"seed{seed}").mkdir()
    with pytest.raises(ValueError, match=rf"seed9 does not exist; in {tmp_path} are seed\d, seed\d, seed\d$"):
        find_policies(tmp_path / "seed9")
    with pytest.raises(ValueError, match=r"none does not exist; in .*seed0 are no directories$"):
        find_policies(tmp_path / "seed0" / "none")


@pytest.mark.parametrize("name", ["minigrid/LavaGap7/vcse", "minigrid/LavaGapS7/vcs", "lavagaps7"])
def test_of_a_wrong_name_the_nearest_are_told(name):
    with pytest.raises(ValueError, match=rf"^{name} does not exist, and .*; nearest are minigrid/") as raised:
        vcse.load_policy(name)
    assert "\n" not in str(raised.value)
    if "Lava" in name:
        assert "nearest are minigrid/LavaGapS7/vcse, " in str(raised.value)


@pytest.mark.usefixtures("not_installed")
def test_without_the_package_the_install_command_and_the_names_are_told():
    with pytest.raises(ValueError, match=r"pip install \./policies") as raised:
        vcse.load_policy("minigrid/LavaGapS7/vcse")
    assert str(raised.value) == (
        "minigrid/LavaGapS7/vcse does not exist, and the package of trained policies is not installed (in a clone of "
        f"vcse: pip install ./policies); it has {', '.join(NAMES)}"
    )


def test_the_wheel_holds_the_weights(tmp_path):
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            tmp_path,
            PACKAGE,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("vcse_policies-*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    for name in NAMES:
        home = PACKAGE / "src" / "vcse_policies" / name
        assert {
            f"vcse_policies/{name}/{each.relative_to(home).as_posix()}" for each in home.rglob("*") if each.is_file()
        } <= set(held)
    assert sum(each.endswith(".pt") for each in held) == len(NAMES)
    assert wheel.stat().st_size < MOST_BYTES
