"""A policy with a memory, to play in the place of a trained one: its actions say how long ago an episode began."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch

from vcse.agents import agent_entry
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.entry import Policies
from vcse.agents.playing import ContinuousPlayer
from vcse.bonuses.registry import NO_BONUS
from vcse.runs.config import RunConfig


class Memory(NamedTuple):
    """What the policy keeps: how many steps it took, and the brightest value it saw."""

    steps: torch.Tensor
    brightest: torch.Tensor
    name: str = "memory"  # no tensor, for which nothing begins anew


class RememberingPlayer(ContinuousPlayer):
    """Acts by the number of steps since an episode began, and the brightest value since then."""

    def in_common(self, saved):
        return (saved.path,)

    def load(self, group, device):
        return SimpleNamespace(spec=SimpleNamespace(action_size=2), device=device)

    def make(self, configs, count, *, device, threads):
        raise NotImplementedError

    def policy(self, agent, frame):
        raise NotImplementedError

    def first(self, policies, observations, noise, state):
        brightest = observations.flatten(1).amax(1, keepdim=True)
        if state is None:
            state = Memory(torch.zeros(len(observations), dtype=torch.int64), torch.zeros_like(brightest))
        state = Memory(state.steps + 1, torch.maximum(state.brightest, brightest))
        actions = torch.cat((state.steps[:, None].float(), state.brightest.float()), dim=1)
        return actions if noise is None else actions + 100, state


def remembering_entry(**changes):
    """Return the entry of an agent that plays by memory."""
    return replace(agent_entry("drqv2"), name="remembering", player=RememberingPlayer(), stacked_images=1, **changes)


def remembering_policies(task="dmc-pixels/hopper_stand"):
    """Return its policy of a task."""
    config = RunConfig(
        task=task,
        agent="remembering",
        method="vcse",
        seed=3,
        reading="release",
        frames=20,
        settings=DrQv2Settings(bonus=NO_BONUS),
    )
    return Policies(RememberingPlayer().load([], "cpu"), [config], 20, [Path("run")])
