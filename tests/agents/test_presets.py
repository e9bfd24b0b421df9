from functools import partial

import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.agents.drqv2.settings import drqv2_settings
from vcse.agents.sac.settings import sac_settings


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


def test_exact_values_make_a_difference_to_vcse_alone():
    asked = {"values": "exact"}
    for bonus in ("none", "se", "rcse", "se-matched"):
        assert a2c_settings(bonus, **asked) == a2c_settings(bonus)
    assert a2c_settings("vcse", **asked).values == "exact"


def test_what_is_none_is_as_the_reading_says():
    asked = dict.fromkeys(("k", "log_offset", "value_normalization", "beta", "injection", "time_limit"))
    assert a2c_settings("vcse", "clean", **asked) == a2c_settings("vcse", "clean")


@pytest.mark.parametrize("make", [a2c_settings, sac_settings, partial(drqv2_settings, task="dmc-pixels/hopper_stand")])
def test_a_setting_that_does_not_exist_is_answered_with_all_that_do(make):
    told = r"setting 'betta' does not exist; there are k, log_offset, value_normalization, beta, .*discount"
    with pytest.raises(ValueError, match=told):
        make("vcse", betta=0.1)
