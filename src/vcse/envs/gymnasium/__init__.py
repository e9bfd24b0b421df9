"""Any environment that is registered with Gymnasium: `gymnasium/ID`, or `gymnasium/MODULE:ID` of a module of one's own.

`gymnasium-pixels/ID` shows the images that the environment renders instead of what it shows itself.
"""

from collections.abc import Sequence
from functools import cache, partial

from vcse.envs.gymnasium import registered
from vcse.envs.gymnasium.environment import (
    ContinuousEnvironments,
    DiscreteEnvironments,
    GymnasiumEnvironment,
    is_deterministic,
)
from vcse.envs.gymnasium.recording import record_environment
from vcse.envs.interface import NOT_DETERMINISTIC, Environments, Family, Making, ObservationKind, TaskSpec, one_task

__all__ = ["FAMILIES", "GymnasiumEnvironment"]

LISTED = "any id that is registered with Gymnasium; MODULE:ID imports the module that registers it"


@cache
def _known(name: str, family: str) -> tuple[GymnasiumEnvironment, bool]:
    """Return an environment that is not played, to look things up, and whether it is deterministic."""
    environment = GymnasiumEnvironment(name, family=family)
    try:
        return environment, is_deterministic(environment)
    except Exception as error:  # an environment from outside can fail in any way
        raise RuntimeError(f"{family}/{name} failed in its first steps: {registered.one_line(error)}") from error
    finally:
        environment.close()


def _spec(name: str, *, family: str) -> TaskSpec:
    environment, is_repeatable = _known(name, family)
    sight, acts = environment.sight, environment.acts
    # Agents with continuous actions choose the size of their images.
    has_shape = sight.kind != "image" or acts.count > 0
    return TaskSpec(
        most_frames=environment.most_steps,
        observation_shape=sight.shape if has_shape else (),
        actions=acts.count,
        action_size=acts.size,
        shows=sight.kind,
        is_foreign=True,
        warning="" if is_repeatable else f"the same seed and actions led to something else: {NOT_DETERMINISTIC}",
    )


def _make(names: Sequence[str], making: Making, *, family: str) -> Environments:
    environment, _ = _known(names[0], family)
    tasks = [f"{family}/{name}" for name in names]
    if environment.acts.count:
        return DiscreteEnvironments(one_task(tasks), making.seeds)
    return ContinuousEnvironments(tasks, environment, making)


def _family(name: str, about: str, shows: tuple[ObservationKind, ...]) -> Family:
    return Family(
        name,
        shows=shows,
        about=about,
        tasks=registered.registered_ids,
        check=partial(registered.check_id, family=name),
        spec=partial(_spec, family=name),
        make=partial(_make, family=name),
        record=partial(record_environment, family=name),
        backend="gymnasium",
        listed=LISTED,
    )


FAMILIES = (
    _family("gymnasium", "what the environment shows: vectors, grids of MiniGrid, images", ("state", "grid", "image")),
    _family("gymnasium-pixels", "the images that the environment renders", ("image",)),
)
