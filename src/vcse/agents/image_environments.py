"""The environments of agents that learn from images, and how many steps are made in them."""

import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import Tensor

from vcse.agents import agent_entry
from vcse.envs.interface import Environments
from vcse.envs.tasks import task_spec
from vcse.runs.config import RunConfig

LEAST_CORES_TO_SPIN = 3  # for each run: one that learns, one that simulates, and one for all else


def steps_of(config: RunConfig) -> int:
    """Return the steps of a run, the last of which is made whole."""
    return -(-config.frames // agent_entry(config.agent).action_repeat)


def most_steps(config: RunConfig) -> int:
    """Return the steps of an episode, at most."""
    return task_spec(config.task).most_frames // agent_entry(config.agent).action_repeat


def played_steps(config: RunConfig) -> int:
    """Return the steps of a run and of its evaluations."""
    evaluations = 1 + (-(-config.frames // config.eval_every_frames) if config.eval_every_frames else 0)
    return steps_of(config) + evaluations * config.eval_episodes * most_steps(config)


def replay_episode(environment: Environments, seed: int, actions: Float[ndarray, "t a"]) -> UInt8[Tensor, "c h w"]:
    """Replay the episode of one environment, and return the last image.

    It cannot be saved, but the same actions from the same seed lead to the same state.
    """
    images = environment.reset([seed])
    for action in actions:
        environment.send(action[None])
        step = environment.receive()
        images = step.next_observations
        if step.ended[0]:  # of an environment that is not deterministic, and shows something else now
            break
    return torch.from_numpy(images[0])


def gl_backend(environments: Environments) -> str:
    """Return what renders the images of environments; empty where that is not known."""
    return getattr(environments, "gl_backend", "")


def spins(device: str, threads: int) -> bool:
    """Whether learner and simulator wait for each other without sleeping: a CPU that learns needs all of its cores."""
    return device.startswith("cuda") and threads >= LEAST_CORES_TO_SPIN
