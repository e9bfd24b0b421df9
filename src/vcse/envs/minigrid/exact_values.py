"""Exact values of a policy on SimpleCrossingS9N1, which is enumerated in `crossing.py`."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vcse.envs.minigrid.crossing import (
    ACTIONS,
    FORWARD,
    LEFT,
    MOST_STEPS,
    OUTCOMES,
    RIGHT,
    STAY,
    CrossingTables,
    goal_rewards,
)

SYSTEMS_AT_ONCE = 512  # of 168 unknowns: 115 MB
Probabilities = Float[Tensor, "*learners observations actions"]


@torch.no_grad()
def time_exact_values_at(
    tables: CrossingTables,
    probabilities: Probabilities,
    discount: float,
    states: Int[Tensor, "*learners n"],
    steps_used: Int[Tensor, "*learners n"],
) -> Float[Tensor, "*learners n"]:
    """Compute the value of states at step indices under a policy: discounted reward up to the time limit.

    Args:
        tables: From `crossing_tables`.
        probabilities: The policy: of each action, for each of the distinct observations.
        discount: From 0 to 1.
        states: As `TableCrossing.states` counts them.
        steps_used: The step index at each.
    """
    _check_policy(tables, probabilities, discount)
    _check_range("states", states, tables.states, probabilities)
    _check_range("steps_used", steps_used, MOST_STEPS, probabilities)
    if states.numel() == 0:
        return probabilities.new_empty(states.shape)
    flat = probabilities.reshape(-1, *probabilities.shape[-2:])
    maps, per_map = len(tables.starts), tables.states_per_map
    asked = states.reshape(len(flat), -1).long()
    owner = torch.arange(len(flat), device=flat.device)[:, None]
    problem, row = torch.unique(owner * maps + asked // per_map, return_inverse=True)
    place = row * per_map + asked % per_map
    step_of = steps_used.reshape(len(flat), -1)
    values = flat.new_empty(asked.shape)
    problems = _Problems(tables, flat, problem // maps, problem % maps)
    for step, now in _backward(problems, discount, last=int(step_of.min())):
        values = torch.where(step_of == step, now.view(-1)[place], values)
    return values.view(states.shape)


@torch.no_grad()
def stationary_values(
    tables: CrossingTables, probabilities: Probabilities, discount: float
) -> Float[Tensor, "*learners states"]:
    """Return the value of every state if there were no time limit and the goal always paid 1.

    V = G + discount · T V, with G the probability of entering the goal now and T that of moving on: one linear
    system per map, solved in float64.

    Args:
        tables: From `crossing_tables`.
        probabilities: The policy: of each action, for each of the distinct observations.
        discount: From 0 to below 1.
    """
    _check_policy(tables, probabilities, discount)
    if discount == 1:
        raise ValueError("discount must be below 1 where nothing ends an episode but the goal, got 1")
    flat = probabilities.reshape(-1, *probabilities.shape[-2:])
    maps, per_map = len(tables.starts), tables.states_per_map
    values = torch.empty(len(flat) * maps, per_map, dtype=torch.float64, device=flat.device)
    unit = torch.eye(per_map, dtype=torch.float64, device=flat.device)
    for begin in range(0, len(values), SYSTEMS_AT_ONCE):
        some = torch.arange(begin, min(begin + SYSTEMS_AT_ONCE, len(values)), device=flat.device)
        problems = _Problems(tables, flat.double(), some // maps, some % maps)
        moves = problems.continuing.new_zeros(len(some), per_map, per_map)
        for outcome in range(len(OUTCOMES)):
            target = problems.successor[outcome, :, :, None] % per_map
            moves.scatter_add_(2, target, problems.continuing[outcome, :, :, None])
        values[some] = torch.linalg.solve(unit - discount * moves, problems.entering)
    return values.to(probabilities.dtype).view(*probabilities.shape[:-2], tables.states)


class _Problems:
    """Maps under policies: what happens next in each state of map `number[p]` under the policy of `learner[p]`.

    Maps never lead into each other, so that each is a problem of its own.
    """

    continuing: Float[Tensor, "4 p s"]  # probability of each outcome that does not end the episode
    entering: Float[Tensor, "p s"]  # of entering the goal
    successor: Int[Tensor, "4 p s"]  # where each outcome leads, counted through all problems

    def __init__(
        self,
        tables: CrossingTables,
        probabilities: Float[Tensor, "l observations actions"],
        learner: Int[Tensor, " p"],
        number: Int[Tensor, " p"],
    ) -> None:
        fixed = _on_device(tables, probabilities.device)
        policy = probabilities[learner[:, None], fixed.observation_index[number]].movedim(-1, 0)
        self.continuing = torch.cat((policy[:STAY], policy[STAY:].sum(0, keepdim=True)))
        enters = fixed.enters_goal[number]
        self.entering = self.continuing[FORWARD] * enters
        self.continuing[FORWARD] -= self.entering
        offset = torch.arange(len(number), device=number.device) * tables.states_per_map
        self.successor = fixed.successor[:, number] + offset[:, None]


def _backward(problems: _Problems, discount: float, last: int = 0) -> Iterator[tuple[int, Float[Tensor, "p s"]]]:
    """Go through the step indices from the time limit, after which nothing is earned, back to `last`."""
    weights = problems.continuing * discount
    leads_to = problems.successor[:STAY].flatten()  # to stay leads nowhere
    values = torch.zeros_like(problems.entering)
    for step in range(MOST_STEPS - 1, last - 1, -1):
        reward = float(goal_rewards(np.array([step]))[0])
        after = values.view(-1).index_select(0, leads_to).view(STAY, *values.shape)
        values = problems.entering * reward + weights[STAY] * values
        for outcome in (LEFT, RIGHT, FORWARD):
            values.addcmul_(weights[outcome], after[outcome])
        yield step, values


class _Fixed(NamedTuple):
    """Tables by map, for torch."""

    observation_index: Int[Tensor, "maps s"]
    enters_goal: Bool[Tensor, "maps s"]
    successor: Int[Tensor, "4 maps s"]  # within the map


@functools.cache
def _on_device(tables: CrossingTables, device: torch.device) -> _Fixed:
    maps, per_map = len(tables.starts), tables.states_per_map
    successor = (tables.successor % per_map).reshape(maps, per_map, len(OUTCOMES)).transpose(2, 0, 1)
    by_map = (tables.observation_index.reshape(maps, -1), tables.enters_goal.reshape(maps, -1), successor)
    return _Fixed(*(torch.tensor(each, device=device) for each in by_map))


def _check_policy(tables: CrossingTables, probabilities: Tensor, discount: float) -> None:
    expected = (len(tables.observations), ACTIONS)
    if not probabilities.is_floating_point() or probabilities.shape[-2:] != expected:
        raise ValueError(
            f"probabilities must be floating-point numbers for {expected[0]} observations and {expected[1]} actions, "
            f"got {probabilities.dtype} of shape {tuple(probabilities.shape)}"
        )
    error = (probabilities.sum(-1) - 1).abs().max() if probabilities.numel() else 0
    if not error <= 1e-3 or not (probabilities >= 0).all():
        raise ValueError(
            f"probabilities must not be negative and sum to 1, got a sum that is off by {float(error):.3g} "
            f"and a smallest of {float(probabilities.min()):.3g}"
        )
    if not 0 <= discount <= 1:
        raise ValueError(f"discount must be from 0 to 1, got {discount}")


def _check_range(name: str, numbers: Tensor, limit: int, probabilities: Tensor) -> None:
    if numbers.shape[:-1] != probabilities.shape[:-2]:
        raise ValueError(
            f"{name} must have the learner axes of probabilities, {tuple(probabilities.shape[:-2])}, and one more, "
            f"got shape {tuple(numbers.shape)}"
        )
    if numbers.numel() and (int(numbers.min()) < 0 or int(numbers.max()) >= limit):
        raise ValueError(
            f"{name} must be from 0 to {limit - 1}, got numbers from {int(numbers.min())} to {int(numbers.max())}"
        )
