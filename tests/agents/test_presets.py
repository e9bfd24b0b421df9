from functools import partial

import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.agents.drqv2.settings import drqv2_settings
from vcse.agents.presets import plain_settings
from vcse.agents.sac.settings import SACSettings, sac_settings
from vcse.bonuses.registry import BonusChoice, bonus_names, make_bonus

HOPPER = "dmc-pixels/hopper_stand"
EVERY_AGENT = {"a2c": a2c_settings, "sac": sac_settings, "drqv2": partial(drqv2_settings, task=HOPPER)}
of_every_agent = pytest.mark.parametrize("make", EVERY_AGENT.values(), ids=EVERY_AGENT)


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
    for settings in (sac_settings(bonus, **asked), drqv2_settings(bonus, task="dmc-pixels/hopper_stand", **asked)):
        assert (settings.bonus.log_offset, settings.bonus.value_normalization) == heeded


def test_a_baseline_is_the_same_run_whatever_is_asked_of_the_bonuses_beside_it():
    assert a2c_settings("none", k=7, beta=0.1, injection="reward") == a2c_settings("none")
    for bonus in ("none", "se", "rcse", "se-matched"):
        assert sac_settings(bonus, value_critic="online", extrinsic_entropy=True) == sac_settings(bonus)
        task = "dmc-pixels/hopper_stand"
        assert drqv2_settings(bonus, task=task, value_critic="target") == drqv2_settings(bonus, task=task)
    asked = {"k": 5, "beta": 1.0, "beta_decay": 0.1, "bonus_batch_size": 1024}
    of_curiosity = {"curiosity_pair": "one-step", "return_injection": "every_step"}
    assert drqv2_settings("none", task=task, **asked, **of_curiosity) == drqv2_settings("none", task=task)
    paid = drqv2_settings("se", task=task, **asked, **of_curiosity)
    assert (paid.bonus.k, paid.beta, paid.beta_decay, paid.bonus_batch_size) == (5, 1.0, 0.1, 1024)
    assert (paid.curiosity_pair, paid.return_injection) == ("one-step", "every_step")


@pytest.mark.parametrize("values", ["exact", "permuted", "frozen"])
def test_other_values_make_a_difference_to_vcse_alone(values):
    for bonus in ("none", "se", "rcse", "se-matched"):
        assert a2c_settings(bonus, values=values) == a2c_settings(bonus)
    assert a2c_settings("vcse", values=values).values == values


@of_every_agent
def test_of_bonuses_without_neighbours_k_is_not_recorded(make):
    for bonus in ("rnd", "icm", "counts"):
        assert make(bonus, k=7) == make(bonus)
        assert make(bonus).bonus.k == 1  # so that no batch is too small for it
    assert make("se", k=7).bonus.k == 7


@of_every_agent
def test_bonuses_pay_as_their_formula_says_but_where_a_scaling_is_asked_for_or_recommended(make, without_type_checks):
    for reading in ("release", "paper", "clean"):
        assert {make(bonus, reading).bonus.scaling for bonus in bonus_names()} == {"raw"}
    for bonus in bonus_names():
        pays = bonus != "none"
        assert make(bonus, scaling="centered").bonus.scaling == ("centered" if pays else "raw")
        assert make(bonus, "recommended").bonus.scaling == ("standardized" if pays else "raw")
        assert make(bonus, "recommended", scaling="raw").bonus.scaling == "raw"
    with pytest.raises(ValueError, match="scaling must be one of raw, centered, standardized, got 'scaled'"):
        make_bonus(make("vcse", scaling="scaled").bonus, learners=1, dimensions=2)


@pytest.mark.parametrize(
    ("make", "k", "beta"),
    [(a2c_settings, 5, 0.02), (sac_settings, 12, 0.02), (EVERY_AGENT["drqv2"], 12, 0.1)],
    ids=EVERY_AGENT,
)
def test_recommended_is_clean_with_duplicates_that_earn_nothing_and_a_scale_of_1(make, k, beta):
    expected = {"reading": "clean", "k": k, "scaling": "standardized"}
    for bonus in ("vcse", "rcse", "se-matched"):
        assert make(bonus, "recommended").bonus == BonusChoice(bonus, log_offset=1.0, **expected)
    assert make("se", "recommended").bonus == BonusChoice("se", normalizer="none", **expected)
    assert make("vcse", "recommended").beta == beta
    for bonus in bonus_names():
        found, clean = make(bonus, "recommended"), make(bonus, "clean")
        others = {name: value for name, value in vars(found).items() if name not in ("bonus", "beta")}
        assert others == {name: value for name, value in vars(clean).items() if name not in ("bonus", "beta")}
    assert make("none", "recommended").beta == make("none").beta


def test_recommended_may_be_deviated_from():
    found = a2c_settings("vcse", "recommended", beta=0.1, log_offset=1e-5, scaling="centered", k=3)
    expected = BonusChoice("vcse", "clean", 3, log_offset=1e-5, scaling="centered")
    assert (found.bonus, found.beta, found.injection, found.time_limit) == (expected, 0.1, "reward", "bootstraps")


def test_an_agent_without_readings_of_its_own_has_the_recommended_one_too():
    settings_for = plain_settings(SACSettings, k=5)
    assert settings_for("vcse", "release").bonus == BonusChoice("vcse", "paper", 5)
    assert settings_for("vcse", "clean").bonus == BonusChoice("vcse", "clean", 5)
    recommended = {"reading": "clean", "k": 5, "scaling": "standardized"}
    assert settings_for("vcse", "recommended").bonus == BonusChoice("vcse", log_offset=1.0, **recommended)
    assert settings_for("se", "recommended").bonus == BonusChoice("se", normalizer="none", **recommended)


def test_what_is_none_is_as_the_reading_says():
    asked = dict.fromkeys(("k", "log_offset", "value_normalization", "scaling", "beta", "injection", "time_limit"))
    assert a2c_settings("vcse", "clean", **asked) == a2c_settings("vcse", "clean")


@of_every_agent
def test_a_setting_that_does_not_exist_is_answered_with_all_that_do(make):
    told = r"setting 'betta' does not exist; there are k, log_offset, value_normalization, scaling, beta, .*discount"
    with pytest.raises(ValueError, match=told):
        make("vcse", betta=0.1)
