"""One environment of Gymnasium as agents here meet it, and batches of them.

Those with continuous actions are reset explicitly, with a seed for each episode. Those with discrete ones begin
episodes by themselves, each from a seed that follows from the environment's and from how many it has had. Either way an
episode depends on its seed and on its actions alone, if the environment is deterministic.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt8

from vcse.envs.gymnasium.registered import make, most_steps, one_line, render
from vcse.envs.gymnasium.spaces import (
    SHRUNK_SIDE,
    acts_of,
    channels_of_three,
    rendered,
    sight_of,
    sight_of_images,
)
from vcse.envs.interface import NOT_DETERMINISTIC, Making, Observations, Step
from vcse.envs.processes import Batch
from vcse.streams import episode_seed

NOT_REPORTED = -1  # of success, besides 0 and 1
SUCCESS_KEYS = ("is_success", "success")  # of the information that an environment returns


class GymnasiumEnvironment:
    """One environment, seen and acted in as agents do.

    Args:
        name: An id, perhaps with a module before it.
        family: gymnasium shows what the environment does, gymnasium-pixels the images that it renders.
        image_size: Pixels of each side of images where actions are continuous: there they are square, and their three
            channels come first.
        action_repeat: Steps for which an action is played; their rewards are summed.
        renders: Make it so that it renders images, for a film.

    Example:
        >>> from vcse.envs.gymnasium import GymnasiumEnvironment
        >>> environment = GymnasiumEnvironment("CartPole-v1")
        >>> environment.begin(seed=0).shape
        (4,)
        >>> observation, reward, terminated, truncated, success = environment.step(1)
        >>> reward, terminated, truncated
        (1.0, False, False)
    """

    def __init__(
        self,
        name: str,
        *,
        family: str = "gymnasium",
        image_size: int = SHRUNK_SIDE,
        action_repeat: int = 1,
        renders: bool = False,
    ) -> None:
        self.task = f"{family}/{name}"
        self._shows_images = family == "gymnasium-pixels"
        self._action_repeat = action_repeat
        with ExitStack() as made:  # closes what is refused
            self._world = made.enter_context(closing(make(name, renders=renders or self._shows_images, family=family)))
            self.most_steps = most_steps(self._world)
            sight = sight_of_images if self._shows_images else sight_of
            self.sight = sight(self._world, self.task)
            self.acts = acts_of(self._world, self.task)
            self._image_size = image_size if self.sight.kind == "image" and self.acts.size else 0
            if self._image_size and self.sight.shape[-1] not in (1, 3):
                raise ValueError(
                    f"{self.task}: images of {self.sight.shape[-1]} channels are not supported where actions are "
                    "continuous: 1 or 3 are"
                )
            made.pop_all()

    def begin(self, seed: int) -> np.ndarray:
        """Begin the episode of a seed, and return what is seen."""
        return self._seen(self._world.reset(seed=seed)[0])

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, int]:
        """Act, and return what is seen, the reward, whether that was the end or the time limit, and success.

        Args:
            action: A number, or numbers from -1 to 1.

        Returns:
            Success is 1 or 0, or -1 where the environment does not say. A time limit counts only where nothing else
            ended the episode.
        """
        rewards, success = 0.0, NOT_REPORTED
        shown, converted, terminated, truncated = None, self.acts.convert(action), False, False
        for _ in range(self._action_repeat):
            shown, reward, terminated, truncated, information = self._world.step(converted)
            rewards += float(reward)
            success = max(success, _success(information))
            if terminated or truncated:
                break
        if not np.isfinite(rewards):
            raise ValueError(f"{self.task} gave a reward of {rewards}")
        return self._seen(shown), rewards, bool(terminated), bool(truncated and not terminated), success

    def image(self) -> UInt8[np.ndarray, "h w 3"]:
        """Render what is there now, for people."""
        return rendered(render(self._world, self.task), self.task)

    @property
    def frames_per_second(self) -> float:
        """How many steps a second of the environment has, as it says itself."""
        return float(self._world.metadata.get("render_fps") or 0)

    def close(self) -> None:
        """Close the environment."""
        self._world.close()

    def _seen(self, shown: Any) -> np.ndarray:
        if self._shows_images:
            shown = render(self._world, self.task)
        seen = self.sight.convert(shown)
        if self.sight.kind == "state" and not np.isfinite(seen).all():
            raise ValueError(f"{self.task} shows numbers that are not finite: {seen.tolist()}")
        return channels_of_three(seen, self._image_size) if self._image_size else seen


def build(task: str, *, image_size: int = SHRUNK_SIDE, action_repeat: int = 1) -> GymnasiumEnvironment:
    """Make the environment of a task, which has its family before it, perhaps in a worker process."""
    family, _, name = task.partition("/")
    return GymnasiumEnvironment(name, family=family, image_size=image_size, action_repeat=action_repeat)


class ContinuousEnvironments(Batch):
    """A batch of environments whose actions are numbers from -1 to 1, each with a task and episodes of its own.

    States are simulated in this process, as most environments are fast; images in worker processes, as rendering them
    is not.

    Args:
        tasks: With their family, one per environment. Their observations and actions must be of the same size.
        first: An environment of the first task, as it is known already.
        making: How; its threads are the processes that simulate where images are seen.
    """

    def __init__(self, tasks: Sequence[str], first: GymnasiumEnvironment, making: Making) -> None:
        sight = first.sight
        sees_images = sight.kind == "image"
        self.action_repeat = making.action_repeat
        self.most_steps = first.most_steps // making.action_repeat
        shape = (3, making.image_size, making.image_size) if sees_images else sight.shape
        super().__init__(
            tasks,
            partial(build, image_size=making.image_size, action_repeat=making.action_repeat),
            action_size=first.acts.size,
            seen=("observation", sight.dtype, shape),
            has_success=None,
            processes=making.threads if sees_images else 1,
            always_workers=sees_images,
        )


class DiscreteEnvironments:
    """Environments of one task whose actions are counted, which begin new episodes by themselves.

    Args:
        task: With its family.
        seeds: One for each environment; the seeds of its episodes follow from it.
    """

    def __init__(self, task: str, seeds: Sequence[int]) -> None:
        if len(seeds) < 1:
            raise ValueError("at least one environment is needed, got no seeds")
        self.count, self.task, self.seeds = len(seeds), task, tuple(map(int, seeds))
        with ExitStack() as built:  # closes those before one that fails
            self._environments = [built.enter_context(closing(build(task))) for _ in seeds]
            self.close = built.pop_all().close  # of every environment
        self.most_steps = self._environments[0].most_steps
        self._progress: Int[np.ndarray, "n 2"] = np.zeros((self.count, 2), dtype=np.int64)
        self._sent: Int[np.ndarray, " n"] | None = None

    def reset(self, seeds: Sequence[int | None] | None = None) -> Observations:
        """Begin every environment's first episode."""
        del seeds  # they have them already
        self._progress[:] = 0
        return np.stack([self._begin(place, 0) for place in range(self.count)])

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Remember the actions; the work is done when the step is received."""
        self._sent = actions

    def receive(self) -> Step:
        """Step every environment, and begin new episodes where one has ended."""
        if self._sent is None:
            raise RuntimeError("receive() without send()")
        sent, self._sent = self._sent, None
        taken = [self._step(place, action) for place, action in enumerate(sent)]
        next_observations = np.stack([each[0] for each in taken])
        rewards = np.array([each[1] for each in taken], dtype=np.float32)
        terminated, truncated = (np.array([each[column] for each in taken], dtype=np.bool_) for column in (2, 3))
        success = np.array([each[4] for each in taken])
        self._progress[:, 1] += 1
        shown = next_observations
        ended: Bool[np.ndarray, " n"] = terminated | truncated
        if ended.any():
            shown = next_observations.copy()
            for place in np.flatnonzero(ended):
                self._progress[place] = self._progress[place, 0] + 1, 0
                shown[place] = self._begin(int(place), int(self._progress[place, 0]))
        return Step(
            shown, next_observations, rewards, terminated, truncated, success=success > 0, success_reported=success >= 0
        )

    def progress(self) -> Int[np.ndarray, "n 2"]:
        """Return which episode each environment plays, and how many steps of it are taken."""
        return self._progress.copy()

    def restore(self, progress: Int[np.ndarray, "n 2"], actions: Int[np.ndarray, "n t"]) -> Observations:
        """Begin the episodes of a progress again, and take the steps of each that had been taken."""
        shown = []
        for place, (episode, steps) in enumerate(progress.tolist()):
            seen = self._begin(place, episode)
            for number, action in enumerate(actions[place, actions.shape[1] - steps :], start=1):
                seen, _, terminated, truncated, _ = self._step(place, action)
                if terminated or truncated:
                    raise RuntimeError(
                        f"{self.task}: an episode that had begun ended after {number} of {steps} steps when it was "
                        f"replayed from its seed and actions: {NOT_DETERMINISTIC}"
                    )
            shown.append(seen)
        self._progress = progress.copy()
        return np.stack(shown)

    def _begin(self, place: int, episode: int) -> np.ndarray:
        try:
            return self._environments[place].begin(episode_seed(self.seeds[place], episode))
        except Exception as error:  # an environment from outside can fail in any way
            raise self._failure(place, error) from error

    def _step(self, place: int, action: Any) -> tuple[np.ndarray, float, bool, bool, int]:
        try:
            return self._environments[place].step(action)
        except Exception as error:
            raise self._failure(place, error) from error

    def _failure(self, place: int, error: Exception) -> RuntimeError:
        return RuntimeError(f"environment {place} ({self.task}) failed: {one_line(error)}")


def is_deterministic(environment: GymnasiumEnvironment, *, seed: int = 0, steps: int = 8) -> bool:
    """Whether an environment shows and pays the same again in the first steps of an episode."""
    return _beginning(environment, seed, steps) == _beginning(environment, seed, steps)


def _beginning(environment: GymnasiumEnvironment, seed: int, steps: int) -> list[Any]:
    """Play the beginning of an episode, whose actions follow from its seed, and return all that came of it."""
    generator, acts = np.random.default_rng(seed), environment.acts
    found: list[Any] = [environment.begin(seed).tobytes()]
    for _ in range(steps):
        action = generator.integers(acts.count) if acts.count else generator.uniform(-1, 1, acts.size)
        seen, *rest = environment.step(action)
        found.append((seen.tobytes(), *rest))
        if rest[1] or rest[2]:
            break
    return found


def _success(information: Mapping[str, Any]) -> int:
    """Return whether an environment says that the goal is reached: 1, 0, or -1 where it says nothing."""
    success = next((information[key] for key in SUCCESS_KEYS if key in information), None)
    return NOT_REPORTED if success is None else int(bool(success))
