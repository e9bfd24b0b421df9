"""What the cohorts of agents that learn from images have in common: one run each, as its networks fill a GPU alone."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vcse.agents import agent_entry
from vcse.agents.image_environments import gl_backend, most_steps, replay_episode, spins
from vcse.agents.lockstep import OffPolicy
from vcse.agents.step_log import Outcome, StepLog
from vcse.envs.tasks import make_environments
from vcse.nets.cuda.side_stream import SideStream
from vcse.replay.images import ImageReplay
from vcse.replay.sequences import SequenceReplay
from vcse.runs.checkpoint import fitting, naming
from vcse.runs.directory import RunDirectory
from vcse.runs.resources import DISK, find_room
from vcse.settings import AgentSettings
from vcse.streams import episode_seed

S = TypeVar("S", bound=AgentSettings)
Replay = TypeVar("Replay", ImageReplay, SequenceReplay)


class ImageCohort(OffPolicy[S], Generic[S, Replay]):
    """One run of an agent that learns from images, in one environment.

    Args:
        directories: Of the run.
        settings: The class of the agent's settings.
        device: Where the networks live.
        threads: For the environment.
    """

    evaluates_at_start = keeps_success = True
    step_frames: int  # also the action repeat
    shown_of_evaluations = ("return_mean", "success_rate")
    replay: Replay

    def __init__(self, directories: Sequence[RunDirectory], settings: type[S], *, device: str, threads: int) -> None:
        if len(directories) != 1:
            raise ValueError(f"a run that learns from images trains alone, got {len(directories)}")
        super().__init__(directories, settings, device=device, threads=threads)
        [self.directory], [self.config] = self.directories, self.configs
        self.action_size, self.knows_success = self.spec.action_size, self.spec.has_success or self.spec.is_foreign
        image_size = agent_entry(self.config.agent).image_size_of(self.config)
        self.image_shape = (3, image_size, image_size)
        self.step_count = 0
        self.episode_begin = 0  # the step at which the current episode began
        self.pending: Outcome | None = None  # of the last action: stored once the next one is sent
        self.log = StepLog(self.directory, self.image_shape, self.action_size)
        self.updating = SideStream(torch.device(device))
        self.count_episodes(torch.zeros(1, dtype=torch.int64, device=device))

    def make_replay(self, replay: Callable[..., Replay], place: str | None, **options: Any) -> None:
        """Make the replay at a place, or where there is room for it.

        Args:
            replay: Its class.
            place: A device, or the disk.
            options: Of the class, other than sizes and devices.
        """
        needs = agent_entry(self.config.agent).needs(self.config)
        place = place or find_room([needs], self.directory.path, device=self.device, jobs=1).place
        scratch = self.directory.path / "replay.scratch"
        with naming(scratch):
            self.replay = replay(
                most_steps=most_steps(self.config),
                image_shape=self.image_shape,
                action_size=self.action_size,
                device=self.device,
                storage_device="cpu" if place == DISK else place,
                path=scratch if place == DISK else None,
                **options,
            )

    def make_environment(self) -> None:
        """Start the simulator of the run."""
        is_spinning = spins(self.device, self.threads)
        making = agent_entry(self.config.agent).making(self.config, device=self.device, spins=is_spinning)
        self.environment = make_environments([self.config.task], making)
        self.directory.add_to_meta("drawn_by", gl_backend(self.environment))

    @property
    def frame(self) -> int:
        """Frames that the run has had so far."""
        return self.step_frames * self.step_count

    def close(self) -> None:
        """End the simulators."""
        self.environment.close()
        super().close()

    def begin(self) -> None:
        """Begin an episode, whose seed follows from the run's and the step."""
        self.episode_begin = self.step_count
        image = torch.from_numpy(self.environment.reset([episode_seed(self.config.seed, self.episode_begin)])[0])
        self.replay.begin(image)
        self.log.add(Outcome(torch.zeros(self.action_size), 0.0, False, image), self.replay.position)
        self.observe(image, is_first=True)

    @abstractmethod
    def observe(self, image: UInt8[Tensor, "c h w"], *, is_first: bool) -> None:
        """Update what the policy acts on with a new image."""

    @abstractmethod
    def store(self, outcome: Outcome, *, ended: bool) -> None:
        """Add what an action led to to the replay."""

    def _send(self, action: Float[Tensor, " a"]) -> None:
        """Begin to play an action; meanwhile, store what the last one led to."""
        if not action.isfinite().all():
            self._finish_update()  # which names the loss that it comes from; if there is none, the simulator refuses it
        self.environment.send(action[None].numpy())
        self.timer.lap("act")
        self._store_pending()
        self.timer.lap("env")

    def _receive(self, action: Float[Tensor, " a"]) -> None:
        """Receive what the action led to, and begin a new episode where one ended."""
        step = self.environment.receive()
        image = torch.from_numpy(step.next_observations[0])
        self.pending = Outcome(action, float(step.rewards[0]), bool(step.terminated[0]), image)
        self.observe(image, is_first=False)
        self.step_count += 1
        self.episodes.add(slice(None), step.rewards, step.ended, step.success, step.success_reported)
        if step.ended[0]:
            self._store_pending(ended=True)
            self.begin()

    def _store_pending(self, *, ended: bool = False) -> None:
        """Add what the last action led to, if that was not done yet, to the replay and to the logs of the run."""
        outcome, self.pending = self.pending, None
        if outcome is not None:
            self.store(outcome, ended=ended)
            self.log.add(outcome, self.replay.position)

    def _finish_update(self) -> None:
        """Wait for the last update, and refuse one that has become NaN: the last checkpoint is still good."""
        self.updating.wait()
        self.check_finite()

    def settle(self) -> None:
        """Wait for the last update, and write all that happened to the logs."""
        self._finish_update()
        self._store_pending()
        self.log.flush()

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint, once all images and steps are in the logs."""
        self.settle()
        return [
            {
                "step": self.step_count,
                "frames_kept": self.replay.count,
                "agent": self.agent.state_dict(),
                **self.episode_state(0),
                "episode_begin": self.episode_begin,
                "latest": self.latest.of(*self.output)[0],
                **self.observation_state(),
            }
        ]

    @abstractmethod
    def observation_state(self) -> dict[str, Any]:
        """Return what the policy acts on, for a checkpoint."""

    @abstractmethod
    def load_observation(self, state: dict[str, Any]) -> UInt8[Tensor, "c h w"]:
        """Load what `observation_state` returned, and return the newest image."""

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what the run wrote after its checkpoint; without one, or at the beginning, also the first evaluation."""
        frame, kept = -1, 0
        if states and states[0]["step"] > 0:
            frame, kept = self.step_frames * states[0]["step"], states[0]["frames_kept"]
        self.log.cut(frame, kept)

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint, and replay the episode that had begun."""
        state = states[0]
        self.step_count, self.episode_begin = state["step"], state["episode_begin"]
        self.latest.loaded = [state["latest"]]
        with fitting(self.directory.path):
            self.agent.load_state_dict(state["agent"])
        self.load_episode_state(0, state)
        images, steps = self.log.read(state["frames_kept"])
        self.replay.restore(images, steps)
        newest = self.load_observation(state)
        actions = steps["action"][len(steps) - (self.step_count - self.episode_begin) :]
        image = replay_episode(self.environment, episode_seed(self.config.seed, self.episode_begin), actions)
        self.check_replayed(0, image, newest, other_cause=", or does another library render now")
