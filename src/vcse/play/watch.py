"""Watching a policy: it plays episodes in its own task, which are drawn step by step."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vcse.agents.a2c.agent import A2C
from vcse.agents.drqv2.agent import DrQv2
from vcse.agents.entry import AGENTS
from vcse.agents.sac.agent import SAC
from vcse.envs.minigrid.crossing import GOAL, MAPS, TASK, CrossingMap, TableCrossing
from vcse.envs.minigrid.full_map import map_planes
from vcse.envs.minigrid.reference import ReferenceMiniGrid
from vcse.envs.mujoco.pixels import ACTION_REPEAT
from vcse.envs.mujoco.recording import FRAMES_PER_PICTURE, Filmed
from vcse.envs.tasks import make_environments
from vcse.play.load import load_policies
from vcse.play.video import Moment, Outcome, caption, check_film, write_film
from vcse.replay.images import STACK
from vcse.runs.config import RunConfig
from vcse.streams import episode_seeds

MAP_PIXELS = 384  # about as wide as a map is drawn


def watch_run(
    run: Path,
    out: Path,
    *,
    episodes: int | None = None,
    sampled: bool | None = None,
    seed: int = 0,
    frames_per_second: int | None = None,
    device: str = "cpu",
) -> list[Moment]:
    """Film the newest policy of a run, and give how each episode ended.

    Args:
        run: The run's directory.
        out: The film: a file that ends in .gif or .mp4.
        episodes: How many; as is the agent's habit if None, and likewise below.
        sampled: Draw the actions from the policy, as in training, instead of taking the likeliest.
        seed: Of the layouts and of the draws; it is no run's seed.
        frames_per_second: Pictures that are shown in a second.
        device: Where the network lives.
    """
    for name, number in (("episodes", episodes), ("frames_per_second", frames_per_second)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    check_film(out)
    (policies,) = load_policies([run], device)
    config, agent = policies.configs[0], policies.agent
    habit = AGENTS[config.agent].film
    episodes = habit.episodes if episodes is None else episodes
    sampled = habit.sampled if sampled is None else sampled
    if isinstance(agent, A2C):
        moments = list(play(agent, config, episodes=episodes, sampled=sampled, seed=seed))
    else:
        moments = list(play_simulation(agent, config, policies.frame, episodes=episodes, sampled=sampled, seed=seed))
    pictures = [caption(moment, config, episodes) for moment in moments]
    write_film(out, pictures, moments, frames_per_second or habit.frames_per_second)
    return [moment for moment in moments if moment.outcome]


def play(agent: A2C, config: RunConfig, *, episodes: int, sampled: bool, seed: int) -> Iterator[Moment]:
    """Play episodes in MiniGrid with an agent's first learner, and draw every step of them."""
    world, full, fixed_map = _world(config.task, seed)
    draws = np.random.default_rng(seed)
    for episode in range(1, episodes + 1):
        # Only the first reset is seeded: later layouts follow from it.
        shown = world.reset(seed=seed if episode == 1 else None)[0]
        if fixed_map is not None:
            _build(world, fixed_map)
            shown = world.gen_obs()
        step, return_so_far = 0, 0.0
        outcome: Outcome = ""
        yield Moment(world.render(), episode, step, return_so_far, outcome)
        while not outcome:
            observation = torch.from_numpy(map_planes(world) if full else shown["image"])[None, None].to(agent.device)
            noise = torch.from_numpy(draws.random((1, 1), dtype=np.float32)).to(agent.device) if sampled else None
            action = int(agent.act(observation, noise, slice(0, 1)))
            shown, reward, terminated, truncated, _ = world.step(action)
            step, return_so_far = step + 1, return_so_far + float(reward)
            outcome = _outcome(terminated, truncated, return_so_far)
            yield Moment(world.render(), episode, step, return_so_far, outcome)
    world.close()


def play_simulation(
    agent: SAC | DrQv2, config: RunConfig, frame: int, *, episodes: int, sampled: bool, seed: int
) -> Iterator[Moment]:
    """Play episodes of a simulated robot with an agent's first learner, as it was at a frame, and draw some frames."""
    world = Filmed(config.task, rendering=config.picture_quality, goal_marker=config.shows_goal)
    draws = np.random.default_rng(seed)
    try:
        for episode in range(1, episodes + 1):
            sight = world.reset(episode_seeds(draws, 1)[0])
            stack = deque([sight.observation] * STACK, maxlen=STACK)
            step, return_so_far, has_succeeded = 0, 0.0, False
            outcome: Outcome = ""
            yield Moment(sight.picture, episode, step, return_so_far, outcome)
            while not outcome:
                noise = None
                if sampled:
                    noise = torch.from_numpy(draws.standard_normal((1, world.action_size), dtype=np.float32))
                told = world.step(_choose(agent, stack, noise, frame).cpu().numpy())
                stack.append(told.sight.observation)
                step, return_so_far = step + 1, return_so_far + told.reward
                has_succeeded |= told.success
                if told.terminated or told.truncated:
                    outcome = "goal" if has_succeeded else "over" if told.terminated else "out of time"
                if outcome or step * world.action_repeat % FRAMES_PER_PICTURE == 0:
                    yield Moment(told.sight.picture, episode, step, return_so_far, outcome)
    finally:
        world.close()


def _choose(
    agent: SAC | DrQv2, stack: deque[np.ndarray], noise: Float[Tensor, "1 a"] | None, frame: int
) -> Float[Tensor, " a"]:
    """Choose an action: from the newest state, or from the last pictures."""
    if isinstance(agent, SAC):
        return agent.act(torch.from_numpy(stack[-1])[None, None], None if noise is None else noise[None])[0, 0]
    return agent.act(torch.from_numpy(np.concatenate(stack))[None], noise, step=frame // ACTION_REPEAT)[0]


def _world(task: str, seed: int) -> tuple[Any, bool, CrossingMap | None]:
    """Make the world that is drawn, and say whether the policy sees all of it and on which map alone it stays."""
    family, _, name = task.partition("/")
    fixed_map: CrossingMap | None = None
    if family == "minigrid-table":
        table = make_environments(task, [seed])
        if isinstance(table, TableCrossing) and table.fixed_map is not None:
            fixed_map = MAPS[table.fixed_map]
        name = TASK
    full = family == "minigrid-full"
    world = ReferenceMiniGrid(name, [seed], full=full, pictures=True).worlds[0]
    world.highlight = not full  # what the policy sees is drawn brighter
    world.tile_size = max(8, MAP_PIXELS // max(world.width, world.height))
    return world, full, fixed_map


def _build(world: Any, fixed_map: CrossingMap) -> None:
    """Put the wall of one map in the place of the one that was drawn by chance."""
    from minigrid.core.world_object import Goal, Wall

    for x in range(world.width):
        for y in range(world.height):
            world.grid.set(x, y, Wall() if fixed_map.is_wall(x, y) else None)
    world.grid.set(*GOAL, Goal())


def _outcome(terminated: bool, truncated: bool, return_so_far: float) -> Outcome:
    if return_so_far > 0:
        return "goal"
    if terminated:
        return "failed"
    return "out of time" if truncated else ""
