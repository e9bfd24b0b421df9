from pathlib import Path

import pytest
import torch
from agents.contract import DrQv2Kind
from runs.small_pixels import make_config

from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.drqv2.player import DrQv2Player
from vcse.agents.entry import Saved
from vcse.runs.checkpoint import Checkpoint


@pytest.mark.parametrize(
    "changes",
    [{}, {"actor_normalization": True}, {"encoder_precision": "bfloat16"}, {"action_noise": (1.0, 0.1, 10)}],
    ids=["release", "normalized actor", "bfloat16", "noise"],
)
def test_a_policy_that_is_loaded_acts_as_the_one_that_was_trained(changes):
    config = make_config("vcse", settings=changes)
    trained = DrQv2(DrQv2Spec(9, 1), config.settings, config.seed)
    saved = Saved(Path("run"), config, Checkpoint(0, {"agent": trained.state_dict()}))
    played = DrQv2Player().load([saved], "cpu")
    shown, noise = DrQv2Kind().material(0).observations, torch.randn(6, 1, generator=torch.Generator().manual_seed(0))
    assert torch.equal(played.act(shown, None), trained.act(shown, None))
    assert torch.equal(played.act(shown, noise, step=3), trained.act(shown, noise, step=3))
