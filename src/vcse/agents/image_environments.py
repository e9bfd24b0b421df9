"""The environments of agents that learn from images."""

import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import Tensor

from vcse.envs.interface import Environments, Making
from vcse.envs.tasks import make_environments
from vcse.runs.config import RunConfig

LEAST_CORES_TO_SPIN = 3  # for each run: one that learns, one that simulates, and one for all else


def make_images(
    config: RunConfig,
    count: int,
    *,
    image_size: int,
    action_repeat: int,
    device: str,
    processes: int,
    spins: bool = False,
) -> Environments:
    """Make environments of a run's task, as its agent sees them.

    Args:
        config: Of the run.
        count: Of environments.
        image_size: Pixels of each side of an image.
        action_repeat: Frames for which an action is played.
        device: That renders.
        processes: That simulate and render.
        spins: Wait for each other without sleeping.
    """
    making = Making(
        threads=processes,
        rendering=config.image_quality,
        goal_marker=config.shows_goal,
        image_size=image_size,
        action_repeat=action_repeat,
        device=device,
        spins=spins,
    )
    return make_environments([config.task] * count, making)


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
