"""How runs of SAC train: a cohort in lockstep, with an environment and a replay each.

Every step is one frame: each learner acts in an environment of its own, learns from what it has lived through so far,
and only then sees what its action led to, so that the simulators work while the networks learn. This is the order of
the release too.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vcse.agents.lockstep import OffPolicy
from vcse.agents.sac.agent import ACTION_SAMPLES, SAC, SACSpec
from vcse.agents.sac.costs import needs
from vcse.agents.sac.player import SACPlayer
from vcse.agents.sac.settings import SACSettings
from vcse.agents.value_permutation import ValuePermutation
from vcse.envs.interface import Making
from vcse.envs.tasks import make_environments, task_spec
from vcse.replay.transitions import TransitionReplay, distinct_places, transition_bytes
from vcse.runs.checkpoint import fitting
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.divergence import check_finite
from vcse.runs.noise import ActionNoiseStream, UpdateNoiseStream
from vcse.runs.resources import find_room, together
from vcse.runs.schedule import EAGER_UPDATES, few_transitions, nothing_learned
from vcse.streams import episode_seed

MOST_NOISE_THREADS = 4  # threads that sample random numbers
ENVIRONMENTS_PER_PROCESS = 4

# What the settings of all learners have in common, besides the sizes of their tasks.
SHARED = (*SAC.SHARED_SETTINGS, "seed_frames", "updates_per_step", "replay_capacity")


def warning(config: RunConfig) -> str:
    """Return, of runs that are too short, that they learn nothing, or from few transitions again and again."""
    settings = SACSettings.of(config.settings)
    if settings.updates_per_step == 0:
        return "nothing is learned with 0 updates per step"
    updated = settings.seed_frames + math.ceil(1 / settings.updates_per_step)  # frames when the first was made
    if config.frames < updated:
        return nothing_learned(config.frames, updated, settings.seed_frames)
    kept = min(settings.replay_capacity, config.frames - 1)  # the last update is made before the last frame is seen
    return few_transitions(kept, settings.batch_size)


def in_common(config: RunConfig) -> tuple[Hashable, ...]:
    """Return what runs must have in common: the sizes of their tasks, or the task if it is foreign, and `SHARED`."""
    spec = task_spec(config.task)
    task = config.task if spec.is_foreign else ""
    return spec, task, *(getattr(config.settings, name) for name in SHARED)


class SACCohort(OffPolicy[SACSettings]):
    """Runs of SAC that are trained in lockstep."""

    evaluates_at_start = False
    step_frames = 1
    frame = 0  # that every run has had so far
    agent: SAC
    player = SACPlayer()
    must_be_finite = ("critic_loss", "actor_loss")

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        super().__init__(directories, SACSettings, device=device, threads=threads)
        self.seed_frames = self.common.seed_frames
        self.knows_success = self.keeps_success = self.spec.is_foreign
        [observation_size], action_size = self.spec.observation_shape, self.spec.action_size
        learners = len(self.configs)
        self.transition_bytes = transition_bytes(observation_size, action_size)
        if replay_place is None:
            needed = together(needs(config) for config in self.configs)
            replay_place = find_room([needed], self.directories[0].path, device=device, jobs=1).place
        self.agent = SAC(SACSpec(observation_size, action_size), self.settings, self.seeds, device=device)
        self.replay = TransitionReplay(
            learners=learners,
            capacity=min(self.common.replay_capacity, max(config.frames for config in self.configs)),
            observation_size=observation_size,
            action_size=action_size,
            batch_size=self.common.batch_size,
            device=device,
            storage_device=replay_place,
        )
        self.count_episodes(self.agent.with_bonus)
        self.episode_begins = [0] * learners  # the frame at which the current episode of each began
        self.new_rows: list[Tensor] = []  # transitions that are not on disk yet
        self.captures = self.agent.device.type == "cuda"
        shape = (ACTION_SAMPLES, self.common.batch_size, action_size)
        self.update_noise = UpdateNoiseStream(
            self.seeds, shape, self.agent.device, threads=min(threads, MOST_NOISE_THREADS)
        )
        self.noise = torch.zeros(learners, *shape, device=self.agent.device)
        sources = [each.values for each in self.settings]
        self.value_permutation = ValuePermutation(sources, self.seeds, self.common.batch_size, self.agent.device)
        self.action_noise_stream = ActionNoiseStream(self.seeds, action_size, self.agent.device)
        processes = min(threads, -(-learners // ENVIRONMENTS_PER_PROCESS))
        self.environments = make_environments([config.task for config in self.configs], Making(threads=processes))
        self.observations = torch.zeros(learners, observation_size)

    def begin(self) -> None:
        """Begin the first episode of every run."""
        self._begin_episodes(range(len(self.configs)))

    def close(self) -> None:
        """End the simulators and threads."""
        self.update_noise.close()
        self.environments.close()
        super().close()

    def step(self) -> None:
        """Act, update and step the environments of every learner."""
        self.timer.start()
        actions = self._act()
        if not actions.isfinite().all():
            self.check_finite()  # which names the loss that it comes from; if there is none, the actions do
            check_finite("action", actions.sum(-1).tolist(), self.names, frame=self.frame)
        self.environments.send(actions.numpy())
        self.timer.lap("act")
        self._learn()
        self.timer.lap("update")
        self._receive(actions)
        self.frame += 1
        self.timer.lap("env")

    def _act(self) -> Float[Tensor, "l a"]:
        """Choose actions: random ones at first, then those of the policies."""
        noise = self.action_noise_stream.of_step(self.frame)
        if self.frame < self.seed_frames:
            return noise.actions
        return self.agent.act(self.observations[:, None], noise.noise[:, None])[:, 0].cpu()

    def _learn(self) -> None:
        """Make the updates of this step."""
        since, rate = self.frame - self.seed_frames, self.common.updates_per_step
        updates = 0 if since < 0 else int((since + 1) * rate) - int(since * rate)
        for _ in range(updates):
            noise = self.update_noise.of_update(self.agent.updates)
            batch = self.replay.sample(distinct_places(noise.uniforms, self.replay.size, self.common.batch_size))
            self.noise.copy_(noise.noise)
            order = self.value_permutation.of_update(self.agent.updates)
            if self.captures and self.eager_updates == EAGER_UPDATES and self.agent.bonus.is_capturable:
                self.agent.capture(batch, self.noise, order)  # all that has to be loaded is
            self.eager_updates += 1
            self.output = self.agent.update(batch, self.noise, order)
            self.bonus_mean.add(self.output.bonus)

    def _receive(self, actions: Float[Tensor, "l a"]) -> None:
        """Store what the actions led to, and begin new episodes where one ended."""
        step = self.environments.receive()
        next_observations = torch.from_numpy(step.next_observations)
        rewards, terminated = torch.from_numpy(step.rewards), torch.from_numpy(step.terminated)
        self.new_rows.append(self.replay.add(self.observations, actions, rewards, terminated, next_observations))
        self.episodes.add(slice(None), step.rewards, step.ended, step.success, step.success_reported)
        self.observations = next_observations
        if step.ended.any():
            self._begin_episodes(np.flatnonzero(step.ended).tolist(), at=self.frame + 1)

    def _begin_episodes(self, learners: Sequence[int], *, at: int = 0) -> None:
        """Begin an episode of some learners, whose seed follows from the run's and the frame."""
        for learner in learners:
            self.episode_begins[learner] = at
        self._reset([learner in learners for learner in range(len(self.configs))])

    def _reset(self, starts: Sequence[bool]) -> None:
        """Reset the environments of those who start an episode, to where it begins."""
        begins = zip(self.configs, self.episode_begins, starts, strict=True)
        seeds = [episode_seed(config.seed, begin) if start else None for config, begin, start in begins]
        self.observations = torch.from_numpy(self.environments.reset(seeds))

    def settle(self) -> None:
        """Add the new transitions to each run's file."""
        self.check_finite()
        if not self.new_rows:
            return
        rows = torch.stack(self.new_rows, 1).numpy()
        self.new_rows = []
        for learner, directory in enumerate(self.directories):
            directory.append_log("replay.bin", rows[learner])

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint of every run, once all transitions are in its log."""
        self.settle()
        return [
            {
                "frame": self.frame,
                "agent": self.agent.learner_state(learner),
                **self.episode_state(learner),
                "episode_begin": self.episode_begins[learner],
                "latest": latest,
                "observation": self.observations[learner].clone(),
            }
            for learner, latest in enumerate(self.latest.of(*self.output))
        ]

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what runs wrote after their checkpoints; without any, all."""
        frame = states[0]["frame"] if states else 0
        for directory in self.directories:
            directory.cut(frame, {"replay.bin": frame * self.transition_bytes})

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint of every run, all at the same frame, and replay the episodes that had begun."""
        self.frame = states[0]["frame"]
        for learner, state in enumerate(states):
            with fitting(self.directories[learner].path):
                self.agent.load_learner_state(learner, state["agent"])
            self.load_episode_state(learner, state)
            self.episode_begins[learner] = state["episode_begin"]
            self.latest.loaded[learner] = state["latest"]
        width = self.transition_bytes // np.dtype(np.float32).itemsize
        rows = [
            directory.read_log("replay.bin", self.frame * width, np.float32).reshape(-1, width)
            for directory in self.directories
        ]
        self.replay.restore(rows)
        self._replay_episodes(rows)
        for learner, state in enumerate(states):
            self.check_replayed(learner, self.observations[learner], state["observation"])

    def _replay_episodes(self, rows: Sequence[Float[np.ndarray, "t w"]]) -> None:
        """Replay the environments, which cannot be saved, to where they were: the same actions from the same seeds."""
        start = self.agent.spec.observation_size
        stop = start + self.agent.spec.action_size
        begins = self.episode_begins
        ended = np.ones(len(begins), dtype=np.bool_)
        for frame in range(min(begins), self.frame + 1):
            # An episode that began later waits in one that is discarded: environments are stepped together.
            self._reset([ended[learner] or begin == frame for learner, begin in enumerate(begins)])
            if frame < self.frame:
                self.environments.send(np.stack([mine[frame, start:stop] for mine in rows]))
                ended = self.environments.receive().ended
