"""Meta-World: a robot's arm that opens doors, presses buttons and puts things into places.

Its 50 tasks are named without version, as in door-open. Where things are, and where they shall go, is sampled anew for
every episode, which depends on its seed and on its actions alone.
"""

import importlib.util
from typing import Any

import numpy as np
from jaxtyping import Float

from vcse.envs.interface import TaskSpec
from vcse.extras import install
from vcse.nearest import check_known

INSTALL = install("metaworld")
ACTION_SIZE = 4  # where the hand goes, and how hard it grips
MOST_FRAMES = 500  # of an episode
CAMERA = "corner4"
TASKS = (
    *("assembly", "basketball", "bin-picking", "box-close", "button-press", "button-press-topdown"),
    *("button-press-topdown-wall", "button-press-wall", "coffee-button", "coffee-pull", "coffee-push", "dial-turn"),
    *("disassemble", "door-close", "door-lock", "door-open", "door-unlock", "drawer-close", "drawer-open"),
    *("faucet-close", "faucet-open", "hammer", "hand-insert", "handle-press", "handle-press-side", "handle-pull"),
    *("handle-pull-side", "lever-pull", "peg-insert-side", "peg-unplug-side", "pick-out-of-hole", "pick-place"),
    *("pick-place-wall", "plate-slide", "plate-slide-back", "plate-slide-back-side", "plate-slide-side", "push"),
    *("push-back", "push-wall", "reach", "reach-wall", "shelf-place", "soccer", "stick-pull", "stick-push", "sweep"),
    *("sweep-into", "window-close", "window-open"),
)

_BUILDING_SEED = 0  # it samples an episode when it is built, which is not played


def check_task(name: str) -> None:
    """Refuse a task that does not exist, and name those that are written most like it."""
    if importlib.util.find_spec("metaworld") is None:
        raise RuntimeError(f"metaworld, which simulates metaworld/{name}, is not installed: {INSTALL}")
    check_known("metaworld", name, TASKS)


def task_spec(name: str) -> TaskSpec:
    """Return the spec of a task."""
    check_task(name)
    return TaskSpec(MOST_FRAMES, action_size=ACTION_SIZE, has_success=True)


class Arm:
    """One simulated task, whose camera hangs upside down.

    Args:
        name: Such as door-open.
        goal_marker: Render a dot where the goal is.
    """

    camera = CAMERA
    is_upside_down = True

    def __init__(self, name: str, *, goal_marker: bool = True) -> None:
        import mujoco
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE

        self._mujoco = mujoco
        build: Any = ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{name}-v3-goal-observable"]
        self._simulator: Any = build(seed=_BUILDING_SEED)
        self._simulator._freeze_rand_vec = False  # or all episodes would be the one that it was built with
        self._simulator.seeded_rand_vec = True  # by its own generator, not by that of all of NumPy
        self.model: Any = self._simulator.model
        self.data: Any = self._simulator.data
        if not goal_marker:
            self._hide_goal()

    def begin(self, seed: int) -> None:
        """Begin the episode of a seed."""
        # Its own reset moves the hand from where it is before it starts from nothing, and would remember that.
        self._mujoco.mj_resetData(self.model, self.data)
        self._simulator.seed(seed)
        self._simulator.reset()
        # It moves the goal after it has computed where all is, so that the previous goal would be seen.
        self._mujoco.mj_kinematics(self.model, self.data)

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[float, bool, bool, bool]:
        """Act for one frame, and give the reward, and whether that was the end, the time limit, and the goal."""
        # It computes in the precision of the action; those of agents, and those that it samples itself, have 32 bits.
        _, reward, _, truncated, information = self._simulator.step(action.astype(np.float32))
        return float(reward), False, bool(truncated), bool(information["success"])

    def _hide_goal(self) -> None:
        marks = {name for name, _ in self._simulator._target_site_config}
        for number in range(self.model.nsite):
            name = self.model.site(number).name
            if name in marks or "goal" in name:
                self.model.site_rgba[number, 3] = 0
