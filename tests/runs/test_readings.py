import pytest

from vcse.agents.a2c import A2CConfig
from vcse.bonuses.named import BonusChoice
from vcse.runs.readings import a2c_config, drqv2_config, sac_config


def test_readings_say_which_neighbour_and_where_the_bonus_joins():
    release, paper, clean = (a2c_config("vcse", reading) for reading in ("release", "paper", "clean"))
    assert (release.bonus.k, release.injection, release.time_limit) == (3, "after_gae", "ends")
    assert (paper.bonus.k, paper.injection, paper.time_limit) == (5, "reward", "ends")
    assert (clean.bonus.k, clean.injection, clean.time_limit) == (5, "reward", "bootstraps")
    assert a2c_config("se", "release").bonus.k == 5
    assert a2c_config("se-matched", "release").bonus.k == 3


def test_deviations_have_the_last_word():
    config = a2c_config("vcse", "release", k=7, beta=0.1, injection="reward", time_limit="bootstraps", log_offset=1.0)
    assert config == A2CConfig(
        bonus=BonusChoice("vcse", "release-a2c", 7, log_offset=1.0),
        beta=0.1,
        injection="reward",
        time_limit="bootstraps",
    )


@pytest.mark.parametrize(
    ("bonus", "heeded"),
    [
        ("none", (None, "batch")),
        ("se", (None, "batch")),
        ("se-matched", (1.0, "batch")),
        ("vcse", (1.0, "running")),
        ("rcse", (1.0, "running")),
    ],
)
def test_of_deviations_that_a_bonus_does_not_heed_nothing_is_recorded(bonus, heeded):
    asked = {"log_offset": 1.0, "value_normalization": "running"}
    for settings in (sac_config(bonus, **asked), drqv2_config(bonus, task="dmc-pixels/hopper_stand", **asked)):
        assert (settings.bonus.log_offset, settings.bonus.value_normalization) == heeded


def test_a_bonus_that_asks_for_more_states_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k must be below 8, the states of an update, got 8"):
        a2c_config("vcse", environments=1, k=8)
    with pytest.raises(ValueError, match="k must be below 12, the states of a batch, got 12"):
        sac_config("vcse", batch_size=12)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("hopper_stand", {"n_step": 3, "batch_size": 256, "noise_schedule": (1.0, 0.1, 100_000)}),
        ("walker_walk", {"n_step": 1, "batch_size": 512, "noise_schedule": (1.0, 0.1, 100_000)}),
        ("walker_run", {"n_step": 1, "batch_size": 512, "noise_schedule": (1.0, 0.1, 500_000)}),
        ("cheetah_run", {"learning_rate": 1e-4, "features": 50, "noise_schedule": (1.0, 0.1, 500_000)}),
        ("quadruped_run", {"replay_capacity": 100_000, "noise_schedule": (1.0, 0.1, 500_000)}),
        ("quadruped_walk", {"replay_capacity": 1_000_000, "noise_schedule": (1.0, 0.1, 500_000)}),
        ("humanoid_walk", {"learning_rate": 8e-5, "features": 100, "noise_schedule": (1.0, 0.1, 2_000_000)}),
    ],
)
def test_without_a_bonus_drqv2_has_the_settings_of_its_authors_on_each_task(task, settings):
    found = drqv2_config("none", task=f"dmc-pixels/{task}")
    assert {name: getattr(found, name) for name in settings} == settings
    paid = drqv2_config("vcse", task=f"dmc-pixels/{task}")
    expected = {**settings, "noise_schedule": (0.2, 0.2, 1)}
    assert {name: getattr(paid, name) for name in settings} == expected


def test_the_noise_of_actions_may_stay_or_follow_a_schedule_of_ones_own():
    task = "dmc-pixels/hopper_stand"
    assert drqv2_config("none", task=task, action_noise=0.4).noise_schedule == (0.4, 0.4, 1)
    assert drqv2_config("vcse", task=task, action_noise=(1.0, 0.1, 500_000)).noise_schedule == (1.0, 0.1, 500_000)
    with pytest.raises(ValueError, match=r"action_noise must be finite and not negative, got -0\.1"):
        drqv2_config("none", task=task, action_noise=(1.0, -0.1, 10))
    with pytest.raises(ValueError, match="action_noise must change over at least 1 step, got 0"):
        drqv2_config("none", task=task, action_noise=(1.0, 0.1, 0))


def test_unknown_names_are_refused(without_type_checks):
    with pytest.raises(ValueError, match=r"bonus must be one of none, se, vcse, rcse, se-matched, got 'curiosity'"):
        a2c_config("curiosity")
    with pytest.raises(ValueError, match="reading must be one of release, paper, clean, re3, got 'mine'"):
        a2c_config("vcse", "mine")
    with pytest.raises(ValueError, match="reading 're3' is one of state entropy"):
        a2c_config("vcse", "re3")
