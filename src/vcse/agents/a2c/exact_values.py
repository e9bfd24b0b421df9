"""Exact values in the place of the critic's, an ablation: on a task that is enumerated, VCSE conditions on them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vcse.agents.a2c.agent import A2C
from vcse.agents.a2c.settings import A2CSettings
from vcse.envs.minigrid.crossing import TableCrossing, crossing_tables
from vcse.envs.minigrid.exact_values import stationary_values, time_exact_values_at

METRICS = ("exact_value_rmse", "exact_value_correlation")  # columns of runs that condition on exact values


class _Visited(NamedTuple):
    """Learners of one task, and in which states their environments were, step by step."""

    learners: slice
    environments: TableCrossing
    states: dict[int, np.ndarray]
    steps_used: dict[int, np.ndarray]


class ExactValues:
    """The states that a cohort's environments go through, and their values under its policies.

    Args:
        settings: Of each learner.
        groups: Learners, and the environments that they share.
    """

    def __init__(self, settings: Sequence[A2CSettings], groups: Sequence[tuple[slice, object]]) -> None:
        self.settings = list(settings)
        self.groups = {
            learners.start: _Visited(learners, environments, {}, {})
            for learners, environments in groups
            if isinstance(environments, TableCrossing)
        }

    def conditions(self, learner: int) -> bool:
        """Whether a learner conditions on exact values."""
        return self.settings[learner].has_exact_values

    def remember(self, learners: slice, t: int) -> None:
        """Remember the states of some learners' environments at a step of the rollout."""
        if visited := self.groups.get(learners.start):
            visited.states[t] = visited.environments.states.copy()
            visited.steps_used[t] = visited.environments.steps_used.copy()

    def of_rollout(self, agent: A2C, actions: Tensor) -> Tensor | None:
        """Return the values of a rollout's states under the present policies; NaN for learners without.

        Args:
            agent: Whose policies.
            actions: Of the rollout, for its shape.
        """
        if not any(map(self.conditions, range(len(self.settings)))):
            return None
        values = torch.full(actions.shape, torch.nan)
        tables = crossing_tables()
        every_view = torch.tensor(tables.observations, device=agent.device)
        for visited in self.groups.values():
            shown = every_view.expand(visited.learners.stop - visited.learners.start, *every_view.shape)
            policy = agent.action_probabilities(shown, visited.learners).cpu()
            states, steps_used = (
                torch.from_numpy(np.stack([each[t] for t in range(actions.shape[2])], -1)).view(len(shown), -1)
                for each in (visited.states, visited.steps_used)
            )
            for place, learner in enumerate(range(visited.learners.start, visited.learners.stop)):
                settings, mine = self.settings[learner], policy[place]
                if settings.values == "exact":
                    found = time_exact_values_at(tables, mine, settings.discount, states[place], steps_used[place])
                elif settings.values == "exact-stationary":
                    found = stationary_values(tables, mine, settings.discount)[states[place]]
                else:
                    continue
                values[learner] = found.view(actions.shape[1:])
        return values.to(agent.device)
