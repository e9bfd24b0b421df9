"""How trained policies of SAC are loaded and played."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from torch import Tensor

from vcse.agents.entry import Policies, Saved
from vcse.agents.playing import ContinuousPlayer, Noise
from vcse.agents.sac.agent import SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses.registry import NO_BONUS
from vcse.envs.tasks import task_spec
from vcse.runs.checkpoint import fitting


class SACPlayer(ContinuousPlayer):
    """Plays in simulations, from states; runs with other batches and bonuses fit the same agent."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return the sizes of a run's task and networks."""
        return task_spec(saved.config.task), SACSettings.of(saved.config.settings).hidden_units

    def load(self, group: Sequence[Saved], device: str) -> SAC:
        """Return an agent with the policies of runs."""
        spec = task_spec(group[0].config.task)
        trained = SACSettings.of(group[0].config.settings)
        settings = [SACSettings(bonus=NO_BONUS, hidden_units=trained.hidden_units)] * len(group)
        seeds = [saved.config.seed for saved in group]
        agent = SAC(SACSpec(spec.observation_shape[0], spec.action_size), settings, seeds, device=device)
        for learner, saved in enumerate(group):
            with fitting(saved.path):
                agent.load_policy(learner, saved.checkpoint.state["agent"])
        return agent

    def policy(self, agent: SAC, frame: int) -> Callable[[Tensor, Noise], Tensor]:
        """Return what chooses actions, the same at every frame."""
        del frame
        return agent.act

    def first(self, policies: Policies, observations: Tensor, noise: Noise, state: Any) -> tuple[Tensor, None]:
        """Choose actions of the first policy, which has no state: all learners choose at once."""
        del state
        everyone = (policies.agent.learners, -1, -1)
        actions: Tensor = policies.agent.act(
            observations.expand(everyone), None if noise is None else noise.expand(everyone)
        )
        return actions[0], None
