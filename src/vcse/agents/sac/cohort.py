"""How runs of SAC train: a cohort in lockstep, with an environment and a replay each.

Every step is one frame: each learner acts in an environment of its own, learns from what it has lived through so far,
and only then sees what its action led to, so that the simulators work while the networks learn. This is the order of
the release too.
"""

import math
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vcse.agents.sac.agent import DRAWS, SAC, SACSpec
from vcse.agents.sac.costs import needs
from vcse.agents.sac.player import play_states
from vcse.agents.sac.settings import SACSettings
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.tasks import state_spec
from vcse.replay.transitions import TransitionReplay, distinct_places, transition_bytes
from vcse.runs.checkpoint import check_replayed, fitting
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.divergence import check_finite
from vcse.runs.metrics import SHOWN_OF_BONUS, BonusMean, Episodes
from vcse.runs.noise import ActionDraws, UpdateDraws
from vcse.runs.progress import Status, by_method
from vcse.runs.resources import find_room, together
from vcse.runs.schedule import EAGER_UPDATES, TIMING_FRAMES, few_transitions, nothing_learned
from vcse.streams import episode_seeds, numbers

MOST_DRAWERS = 4  # threads that draw random numbers
ENVIRONMENTS_PER_PROCESS = 4
RECENT_EPISODES = 10

# What the settings of all learners have in common, beside the sizes of their tasks.
SHARED = (*SAC.SHARED, "seed_frames", "updates_per_step", "replay_capacity")


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
    """Return what runs must have in common: the sizes of their tasks, and `SHARED`."""
    return state_spec(config.task), *(getattr(config.settings, name) for name in SHARED)


class SACCohort:
    """Runs of SAC that are trained in lockstep."""

    rows_show_evaluations = True
    evaluates_at_start = False
    timing_every_frames = TIMING_FRAMES
    step_frames = 1

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        self.directories = list(directories)
        self.configs = [directory.config for directory in directories]
        self.threads = threads
        self.settings = [SACSettings.of(config.settings) for config in self.configs]
        first = self.settings[0]
        spec = state_spec(self.configs[0].task)
        learners = len(self.configs)
        capacity = min(first.replay_capacity, max(config.frames for config in self.configs))
        self.transition_bytes = transition_bytes(spec.observation_size, spec.action_size)
        if replay_place is None:
            wanted = together(needs(config) for config in self.configs)
            replay_place = find_room([wanted], self.directories[0].path, device=device, jobs=1).place
        self.agent = SAC(
            SACSpec(spec.observation_size, spec.action_size),
            self.settings,
            [config.seed for config in self.configs],
            device=device,
        )
        self.replay = TransitionReplay(
            learners=learners,
            capacity=capacity,
            observation_size=spec.observation_size,
            action_size=spec.action_size,
            batch_size=first.batch_size,
            device=device,
            storage_device=replay_place,
        )
        self.frame = 0
        self.episodes = Episodes(learners, 1, recent=RECENT_EPISODES)
        self.episode_begins = [0] * learners  # the frame at which the present episode of each began
        self.new_rows: list[Tensor] = []  # transitions that are not on disk yet
        self.bonus_mean = BonusMean(learners, self.agent.paid)
        self.eval_returns = [math.nan] * learners
        self.metrics: dict[str, Tensor] = {}
        self.loaded_latest: list[dict[str, float]] = [{} for _ in self.configs]
        self.captures = self.agent.device.type == "cuda"
        self.eager_updates = 0
        shape = (DRAWS, first.batch_size, spec.action_size)
        seeds = [config.seed for config in self.configs]
        self.draws = UpdateDraws(seeds, shape, self.agent.device, threads=min(threads, MOST_DRAWERS))
        self.noise = torch.zeros(learners, *shape, device=self.agent.device)
        self.action_draws = ActionDraws(seeds, spec.action_size, self.agent.device)
        self.tasks = [config.task.partition("/")[2] for config in self.configs]
        processes = min(threads, -(-learners // ENVIRONMENTS_PER_PROCESS))
        self.environments = DMCStates(self.tasks, processes=processes)
        self.evaluation_environments: DMCStates | None = None
        self.observations = torch.zeros(learners, spec.observation_size)
        self.seconds = dict.fromkeys(("env", "act", "update"), 0.0)

    def describe(self) -> str:
        """Return nothing: all is known before."""
        return ""

    def begin(self) -> None:
        """Begin the first episode of every run."""
        self._begin_episodes(range(len(self.configs)))

    def close(self) -> None:
        """End the simulators and threads."""
        self.draws.close()
        self.environments.close()
        if self.evaluation_environments is not None:
            self.evaluation_environments.close()

    def step(self) -> None:
        """Let every learner act, learn from the past, and see what its action led to."""
        begin = time.perf_counter()
        actions = self._act()
        if not actions.isfinite().all():
            self._check_finite()  # which names the loss that it comes from; if there is none, the actions do
            check_finite("action", actions.sum(-1).tolist(), [config.name for config in self.configs], frame=self.frame)
        self.environments.send(actions.numpy())
        acted = time.perf_counter()
        self._learn()
        learned = time.perf_counter()
        self._receive(actions)
        self.frame += 1
        self.seconds["act"] += acted - begin
        self.seconds["update"] += learned - acted
        self.seconds["env"] += time.perf_counter() - learned

    def _act(self) -> Float[Tensor, "l a"]:
        """Choose actions: random ones at first, then those of the policies."""
        drawn = self.action_draws.of_step(self.frame)
        if self.frame < self.settings[0].seed_frames:
            return drawn.actions
        return self.agent.act(self.observations[:, None], drawn.noise[:, None])[:, 0].cpu()

    def _updates_now(self) -> int:
        """Give how many updates belong to this step."""
        settings = self.settings[0]
        since = self.frame - settings.seed_frames
        if since < 0:
            return 0
        return int((since + 1) * settings.updates_per_step) - int(since * settings.updates_per_step)

    def _learn(self) -> None:
        """Make the updates of this step."""
        batch_size = self.settings[0].batch_size
        for _ in range(self._updates_now()):
            drawn = self.draws.of_update(self.agent.updates)
            batch = self.replay.draw(distinct_places(drawn.uniforms, self.replay.size, batch_size))
            self.noise.copy_(drawn.noise)
            if self.captures and self.eager_updates == EAGER_UPDATES and self.agent.bonus.is_capturable:
                self.agent.capture(batch, self.noise)  # all that has to be loaded is
            self.eager_updates += 1
            self.metrics = self.agent.update(batch, self.noise)
            self.bonus_mean.take(self.agent.bonus_output.reward if len(self.agent.paid) else None)

    def _receive(self, actions: Float[Tensor, "l a"]) -> None:
        """Keep what the actions led to, and begin new episodes where one ended."""
        step = self.environments.receive()
        arrived = torch.from_numpy(step.arrived)
        rewards, terminated = torch.from_numpy(step.rewards), torch.from_numpy(step.terminated)
        self.new_rows.append(self.replay.add(self.observations, actions, rewards, terminated, arrived))
        self.episodes.take(slice(None), step.rewards, step.ended)
        self.observations = arrived
        if step.ended.any():
            self._begin_episodes(np.flatnonzero(step.ended).tolist(), at=self.frame + 1)

    def _begin_episodes(self, learners: Sequence[int], *, at: int = 0) -> None:
        """Begin an episode of some learners, whose seed follows from the run's and the frame."""
        for learner in learners:
            self.episode_begins[learner] = at
        seeds = [self._episode_seed(learner) if learner in learners else None for learner in range(len(self.configs))]
        self.observations = torch.from_numpy(self.environments.reset(seeds))

    def _episode_seed(self, learner: int) -> int:
        generator = numbers(self.configs[learner].seed, "episodes", self.episode_begins[learner])
        return episode_seeds(generator, 1)[0]

    def rows(self, *, is_evaluated: bool) -> list[dict[str, Any]]:
        """Return a row of train.csv for every run."""
        self._check_finite()
        self._keep_new_rows()
        bonus_mean = self.bonus_mean.of_row()
        latest = self._latest()
        rows = []
        for learner, evaluated in enumerate(self.eval_returns):
            row = self.episodes.row(self.frame, learner, bonus_mean[learner], knows_success=False)
            row["eval_return_mean"] = evaluated if is_evaluated else math.nan
            row |= {name: latest[learner].get(name, math.nan) for name in (*self.agent.METRICS, *SHOWN_OF_BONUS)}
            rows.append(row)
        return rows

    def _latest(self) -> list[dict[str, float]]:
        """Give what the last update of each learner showed, which may have been before a restart."""
        if not self.metrics:
            return self.loaded_latest
        latest: list[dict[str, float]] = [{} for _ in self.configs]
        for name, shown in self.metrics.items():
            for learner, number in enumerate(shown.tolist()):
                latest[learner][name] = number
        if len(self.agent.paid):
            for name, shown in self.agent.bonus_output.diagnostics().items():
                for learner, number in zip(self.agent.paid.tolist(), shown.tolist(), strict=True):
                    if name in SHOWN_OF_BONUS and not math.isnan(number):
                        latest[learner][name] = number
        return latest

    def evaluate(self) -> list[dict[str, Any]]:
        """Play episodes with the mean of every policy, and return a row of eval.csv for every run."""
        episodes = self.configs[0].eval_episodes
        if self.evaluation_environments is None:
            tasks = [task for task in self.tasks for _ in range(episodes)]
            self.evaluation_environments = DMCStates(tasks, processes=min(self.threads, len(tasks)))
        found = play_states(
            self.agent, self.configs, self.evaluation_environments, frame=self.frame, episodes=episodes, sampled=False
        )
        self.eval_returns = [each.return_mean for each in found]
        return [
            {"frame": self.frame, "episodes": episodes, "return_mean": mean, "success_rate": math.nan}
            for mean in self.eval_returns
        ]

    def _check_finite(self) -> None:
        """Refuse to write down what has become NaN, so that the last checkpoint is still good."""
        for loss in ("critic_loss", "actor_loss") if self.metrics else ():
            check_finite(loss, self.metrics[loss].tolist(), [config.name for config in self.configs], frame=self.frame)

    def _keep_new_rows(self) -> None:
        """Add the new transitions to each run's file."""
        if not self.new_rows:
            return
        rows = torch.stack(self.new_rows, 1).numpy()
        self.new_rows = []
        for learner, directory in enumerate(self.directories):
            directory.append_log("replay.bin", rows[learner])

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint of every run, once all transitions are in its log."""
        self._check_finite()
        self._keep_new_rows()
        return [
            {
                "frame": self.frame,
                "agent": self.agent.learner_state(learner),
                "episodes": self.episodes.learner_state(learner),
                "episode_begin": self.episode_begins[learner],
                **self.bonus_mean.learner_state(learner),
                "latest": latest,
                "observation": self.observations[learner].clone(),
            }
            for learner, latest in enumerate(self._latest())
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
            self.episodes.load_learner_state(learner, state["episodes"])
            self.episode_begins[learner] = state["episode_begin"]
            self.bonus_mean.load_learner_state(learner, state)
            self.loaded_latest[learner] = state["latest"]
        width = self.transition_bytes // np.dtype(np.float32).itemsize
        rows = [
            directory.read_log("replay.bin", self.frame * width, np.float32).reshape(-1, width)
            for directory in self.directories
        ]
        self.replay.restore(rows)
        self._replay_episodes(rows)
        for learner, state in enumerate(states):
            check_replayed(self.directories[learner].path, self.observations[learner], state["observation"])

    def _replay_episodes(self, rows: Sequence[Float[np.ndarray, "t w"]]) -> None:
        """Bring the environments, which cannot be saved, to where they were: the same actions from the same seeds."""
        start = self.agent.spec.observation_size
        stop = start + self.agent.spec.action_size
        begins = self.episode_begins
        ended = np.ones(len(begins), dtype=np.bool_)
        for frame in range(min(begins), self.frame + 1):
            # An episode that began later waits in one that is thrown away: environments are stepped together.
            starting = [ended[learner] or begin == frame for learner, begin in enumerate(begins)]
            seeds = [self._episode_seed(learner) if starts else None for learner, starts in enumerate(starting)]
            self.observations = torch.from_numpy(self.environments.reset(seeds))
            if frame < self.frame:
                self.environments.send(np.stack([mine[frame, start:stop] for mine in rows]))
                ended = self.environments.receive().ended

    def status(self, frames: int, frames_per_s: float) -> Status:
        """Return where the cohort is on its way to so many frames."""
        returns = [self.episodes.return_mean(learner) for learner in range(len(self.configs))]
        return Status(
            self.frame,
            frames,
            len(self.configs),
            frames_per_s,
            by_method(self.configs, returns),
            by_method(self.configs, self.bonus_mean.of_last_row),
            "return",
            learns=self.frame > self.settings[0].seed_frames,
        )
