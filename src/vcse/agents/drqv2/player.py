"""How trained policies of DrQ-v2 are loaded and played."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE, DrQv2Settings
from vcse.agents.entry import Policies, Saved
from vcse.agents.playing import ContinuousPlayer, Noise
from vcse.bonuses.registry import NO_BONUS
from vcse.envs.tasks import task_spec
from vcse.replay.images import STACK
from vcse.runs.checkpoint import fitting


class DrQv2Player(ContinuousPlayer):
    """Plays in simulations, from stacks of images; one learner each."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return the run itself: it is loaded alone."""
        return (saved.path,)

    def load(self, group: Sequence[Saved], device: str) -> DrQv2:
        """Return an agent with the policy of a run."""
        [saved] = group
        spec = DrQv2Spec(STACK * IMAGE_SHAPE[0], task_spec(saved.config.task).action_size)
        settings = dataclasses.replace(DrQv2Settings.of(saved.config.settings), bonus=NO_BONUS)
        agent = DrQv2(spec, settings, saved.config.seed, device=device)
        with fitting(saved.path):
            agent.load_policy(saved.checkpoint.state["agent"])
        return agent

    def policy(self, agent: DrQv2, frame: int) -> Callable[[Tensor, Noise], Tensor]:
        """Return what chooses actions from the newest images, with the noise of a frame."""
        shown = torch.zeros(0)

        def act(newest: Tensor, noise: Noise) -> Tensor:
            nonlocal shown
            [newest] = newest
            is_first = len(shown) == 0
            shown = newest.tile(1, STACK, 1, 1) if is_first else torch.cat((shown[:, IMAGE_SHAPE[0] :], newest), 1)
            return agent.act(shown, None if noise is None else noise[0], step=frame // ACTION_REPEAT)[None]

        return act

    def first(self, policies: Policies, observations: Tensor, noise: Noise, state: Any) -> tuple[Tensor, None]:
        """Choose actions of the policy, for any number of stacks of images; it has no state."""
        del state
        actions: Tensor = policies.agent.act(observations, noise, step=policies.frame // ACTION_REPEAT)
        return actions, None
