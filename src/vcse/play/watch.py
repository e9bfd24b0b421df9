"""Watching a policy: it plays episodes in its own task, which are rendered step by step."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vcse.agents import agent_entry
from vcse.agents.entry import Policies
from vcse.envs.moments import Moment
from vcse.envs.tasks import family_of
from vcse.play.load import load_policies
from vcse.play.video import caption, check_film, write_film


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
    """Record a video of the newest policy of a run, and return how each episode ended.

    Args:
        run: The run's directory.
        out: The film: a file that ends in .gif or .mp4.
        episodes: How many; as is the agent's habit if None, and likewise below.
        sampled: Sample the actions from the policy, as in training, instead of taking the greedy ones.
        seed: Of the layouts and of the draws; it is no run's seed.
        frames_per_second: Images that are shown in a second.
        device: Where the network lives.
    """
    for name, number in (("episodes", episodes), ("frames_per_second", frames_per_second)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    check_film(out)
    (policies,) = load_policies([run], device)
    config = policies.configs[0]
    entry = agent_entry(config.agent)
    habit = entry.film
    episodes = habit.episodes if episodes is None else episodes
    sampled = habit.sampled if sampled is None else sampled
    moments = list(record(policies, episodes=episodes, sampled=sampled, seed=seed))
    images = [caption(moment, config, episodes) for moment in moments]
    ends = [bool(moment.outcome) for moment in moments]
    write_film(out, images, ends, frames_per_second or habit.frames_per_second)
    return [moment for moment in moments if moment.outcome]


def record(policies: Policies, *, episodes: int, sampled: bool, seed: int) -> Iterator[Moment]:
    """Play episodes with the first policy, and render them for people.

    Args:
        policies: Of which the first plays.
        episodes: How many.
        sampled: Sample the actions from the policy instead of taking the greedy ones.
        seed: Of the layouts and of the samples.
    """
    config = policies.configs[0]
    entry, family = agent_entry(config.agent), family_of(config.task)
    if family.record is None:
        raise ValueError(f"{config.task} cannot be filmed: its family renders nothing for people")

    state: Any = None

    def choose(recent: Sequence[np.ndarray], generator: np.random.Generator) -> Any:
        nonlocal state
        observations = np.concatenate(recent)[None]
        actions, state = entry.player.act(policies, observations, generator if sampled else None, state)
        return actions[0]

    moments = family.record(
        config.task.partition("/")[2],
        choose,
        episodes=episodes,
        seed=seed,
        recent=entry.stacked_images,
        making=entry.making(config),
    )
    for moment in moments:
        if moment.step == 0:
            state = None
        yield moment
