"""The environments of DrQ-v2: images of one size, actions of two frames."""

from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE
from vcse.envs.interface import Environments, Making
from vcse.envs.tasks import make_environments
from vcse.runs.config import RunConfig


def make_images(config: RunConfig, count: int, *, device: str, processes: int, spins: bool = False) -> Environments:
    """Make environments of a run's task, as it sees them."""
    making = Making(
        threads=processes,
        rendering=config.image_quality,
        goal_marker=config.shows_goal,
        image_size=IMAGE_SHAPE[-1],
        action_repeat=ACTION_REPEAT,
        device=device,
        spins=spins,
    )
    return make_environments([config.task] * count, making)


def gl_backend(environments: Environments) -> str:
    """Return what renders the images of environments; empty where that is not known."""
    return getattr(environments, "gl_backend", "")
