"""On-policy training: a cohort of runs in lockstep, from its first frame or its last checkpoint to its last frame."""

import itertools
import math
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.entry import AGENTS
from vcse.envs.interface import Environments, Observations, Positions
from vcse.envs.minigrid.crossing import TableCrossing, crossing_tables
from vcse.envs.minigrid.exact_values import stationary_values, time_exact_values_at
from vcse.envs.minigrid.names import Backend
from vcse.envs.tasks import make_environments, task_spec
from vcse.nets.encoders import GridEncoder
from vcse.play.evaluate import play_grids
from vcse.replay.rollouts import Rollouts
from vcse.runs.checkpoint import KEPT, check_replayed, fitting
from vcse.runs.config import RunConfig
from vcse.runs.directory import BONUS_COLUMNS, SHOWN_OF_BONUS, RunDirectory
from vcse.runs.divergence import check_finite
from vcse.runs.metrics import BonusMean, Episodes
from vcse.runs.progress import Status, Stopwatch, by_method
from vcse.runs.resources import CHECKPOINT_COPIES, Needs
from vcse.runs.schedule import EAGER_UPDATES, is_due
from vcse.streams import uniforms

ENVIRONMENT_SEED_STRIDE = 10_000  # environment i of a run has seed + 10,000 i, as in the release
OF_EXACT = ("exact_value_rmse", "exact_value_correlation")  # columns of runs that condition on exact values
MAP_SIDE = 25  # no MiniGrid is larger
BLIND_TO_THE_GOAL = (
    "which thing is the goal changes from episode to episode and is said by the mission alone, which is not shown to "
    "the agent: it can but guess"
)

# Measured on two cores and on an H200.
FRAMES_PER_S = {"cpu": 17_000, "cuda": 500_000}  # per job
SLOWDOWN = {"minigrid-full": 8.0, "minigrid-table": 1.5}  # families that are stepped in Python
EXACT_SLOWDOWN = 12.0
EVALUATION_FRAMES = 30_000  # 200 episodes of a few hundred frames, without learning
BYTES_PER_FRAME = 1.1  # a byte for the action, and the rows
BYTES_PER_STATE = 17_000  # of an update: what was seen, and what the encoder makes of it, for gradients
BYTES_PER_RUN = 500_000  # two checkpoints
MEMORY_BYTES = 5_200_000  # of the features that SE remembers, in two checkpoints


class Group:
    """Learners of one task, whose environments are stepped together while other groups choose their actions."""

    def __init__(self, learners: slice, environments: Environments) -> None:
        self.learners = learners
        self.environments = environments
        # Where values are exact, the states they are the values of, step by step.
        self.exact = environments if isinstance(environments, TableCrossing) else None
        self.states: dict[int, np.ndarray] = {}
        self.steps_used: dict[int, np.ndarray] = {}
        self.observations: Observations
        self.positions: Positions
        self.observations, self.positions = environments.reset()


class OnPolicyCohort:
    """Runs that are trained in lockstep.

    A run's numbers do not depend on the others. Runs of one task must stand side by side.
    """

    @classmethod
    def check(cls, config: RunConfig) -> None:
        """Refuse maps that are too small for the encoder."""
        GridEncoder(*task_spec(config.task).observation_shape)

    @classmethod
    def warning(cls, config: RunConfig) -> str:
        """Say of missions that choose the goal that the agent does not see them; however short a run is, it learns."""
        return BLIND_TO_THE_GOAL if task_spec(config.task).mission == "chooses" else ""

    @classmethod
    def in_common(cls, config: RunConfig) -> tuple[Hashable, ...]:
        """Give what runs must have in common: what they see and can do, and what learners of one stack share."""
        spec = task_spec(config.task)
        return spec.observation_shape, spec.actions, *(getattr(config.a2c, name) for name in A2C.SHARED)

    @classmethod
    def expected_seconds(cls, config: RunConfig, device: str) -> float:
        """Give about how long a run takes."""
        slow = SLOWDOWN.get(config.task.partition("/")[0], 1.0)
        slow *= 1.0 if config.values == "network" else EXACT_SLOWDOWN
        whole = math.ceil(config.frames / config.a2c.frames_per_update) * config.a2c.frames_per_update
        frames = whole + EVALUATION_FRAMES
        return frames * slow / (FRAMES_PER_S[device] if slow == 1 else FRAMES_PER_S["cpu"])

    @classmethod
    def needs(cls, config: RunConfig) -> Needs:
        """Give about what a run takes; it has no replay."""
        checkpoints = BYTES_PER_RUN + MEMORY_BYTES * (config.a2c.bonus.memory_capacity is not None)
        files = math.ceil(config.frames * BYTES_PER_FRAME) + checkpoints
        working = CHECKPOINT_COPIES * checkpoints // KEPT + config.a2c.frames_per_update * BYTES_PER_STATE
        return Needs(working=working, replay=0, files=files)

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        del replay_place  # what was seen since the last update is little
        self.directories = list(directories)
        self.configs = [directory.config for directory in directories]
        self.names = [config.name for config in self.configs]
        self.threads = threads
        first = self.configs[0].a2c
        spec = task_spec(self.configs[0].task)
        self.agent = A2C(
            A2CSpec(spec.observation_shape, spec.actions),
            [config.a2c for config in self.configs],
            [config.seed for config in self.configs],
            device=device,
        )
        learners = len(self.configs)
        self.rollouts = Rollouts(
            learners=learners,
            environments=first.environments,
            steps=first.rollout_steps,
            observation_shape=spec.observation_shape,
            keep_arrived=self.agent.needs_arrived,
            device=self.agent.device,
        )
        self.update = 0
        self.frames_per_update = first.frames_per_update
        self.episodes = Episodes(learners, first.environments, recent=AGENTS["a2c"].recent_episodes)
        self.bonus_mean = BonusMean(learners, self.agent.paid)
        self.visits = np.zeros((learners, 1, MAP_SIDE, MAP_SIDE), dtype=np.int64)  # the last slice is being counted
        self.counts_visits = self.configs[0].visits_every_frames > 0
        self.new_actions: list[np.ndarray] = []
        self.metrics: dict[str, Tensor] = {}
        self.captures = self.agent.device.type == "cuda"
        self.eager_updates = 0
        self.groups = self._make_groups()
        self.seconds = dict.fromkeys(("env", "act", "update"), 0.0)

    @property
    def frame(self) -> int:
        """Frames that every run has had so far."""
        return self.update * self.frames_per_update

    def describe(self) -> str:
        """Say nothing: all is known before."""
        return ""

    def train(self, frames: int, *, report: Callable[[Status], None], should_stop: Callable[[], bool]) -> bool:
        """Go on until every run has had so many frames. False: stopped before, with a checkpoint."""
        watch = Stopwatch(self.frame)
        shared = self.configs[0]  # all runs of a cohort have the same intervals
        try:
            while self.frame < frames:
                if should_stop():
                    self.save()
                    return False
                self.step()
                if self._is_due(shared.row_every_frames) or self.frame >= frames:
                    self._write_rows(watch.frames_per_s_of_row(self.frame))
                    report(self._status(frames, watch.frames_per_s(self.frame) * len(self.configs)))
                    watch.begin_row(self.frame)
                if self._is_due(shared.eval_every_frames) and self.frame < frames:
                    self._evaluate()
                if self._is_due(shared.checkpoint_every_frames) and self.frame < frames:
                    self.save()
            self._evaluate()
            self.save()
            for directory in self.directories:
                directory.finish(self.frame)
        finally:
            self.close()
        return True

    def close(self) -> None:
        """End the simulators."""
        for group in self.groups:
            group.environments.close()

    def step(self) -> None:
        """Collect one rollout and learn from it."""
        self._collect()
        begin = time.perf_counter()
        rollout = self.rollouts.complete()
        if self.captures and self.eager_updates >= EAGER_UPDATES and self.agent.can_be_captured:
            self.agent.capture(rollout)  # all that has to be loaded is, and shapes no longer change
        self.eager_updates += 1
        self.metrics = self.agent.update(rollout, self._exact_values())
        self.update += 1
        if self._is_due(self.configs[0].visits_every_frames):
            self.visits = np.concatenate((self.visits, np.zeros_like(self.visits[:, :1])), 1)
        self.bonus_mean.take(self.agent.bonus_output.reward if len(self.agent.paid) else None)
        self.seconds["update"] += time.perf_counter() - begin

    def _has_exact(self, learner: int) -> bool:
        return self.configs[learner].values != "network"

    def _exact_values(self) -> Tensor | None:
        """Give the exact values of a rollout's states under the present policies; NaN for learners without."""
        wanted = torch.tensor([self._has_exact(learner) for learner in range(len(self.configs))])
        if not wanted.any():
            return None
        actions = self.rollouts.rollout.actions
        values = torch.full(actions.shape, torch.nan)
        tables = crossing_tables()
        every_view = torch.tensor(tables.observations, device=self.agent.device)
        for group in (group for group in self.groups if group.exact):
            shown = every_view.expand(group.learners.stop - group.learners.start, *every_view.shape)
            policy = self.agent.action_probabilities(shown, group.learners).cpu()
            states, steps_used = (
                torch.from_numpy(np.stack([each[t] for t in range(actions.shape[2])], -1)).view(len(shown), -1)
                for each in (group.states, group.steps_used)
            )
            for place, learner in enumerate(range(group.learners.start, group.learners.stop)):
                config, mine = self.configs[learner], policy[place]
                if config.values == "exact":
                    found = time_exact_values_at(tables, mine, config.a2c.discount, states[place], steps_used[place])
                elif config.values == "exact-stationary":
                    found = stationary_values(tables, mine, config.a2c.discount)[states[place]]
                else:
                    continue
                values[learner] = found.view(actions.shape[1:])
        return values.to(self.agent.device)

    def _collect(self) -> None:
        """Let every environment take the steps of a rollout. Groups take turns: one acts, the others are stepped."""
        shape = tuple(self.rollouts.rollout.actions.shape)
        drawn = [uniforms(config.seed, "actions", self.update, shape[1:]) for config in self.configs]
        noise = torch.from_numpy(np.stack(drawn)).to(self.agent.device)
        for t in range(shape[2]):
            for group in self.groups:
                if t > 0:
                    self._receive(group, t - 1)
                self._send(group, t, noise)
        for group in self.groups:
            self._receive(group, shape[2] - 1)
            self._show(group, shape[2])
        self.new_actions.append(self.rollouts.rollout.actions.to("cpu", torch.uint8).numpy())

    def _show(self, group: Group, t: int) -> Tensor:
        """Put what a group's environments show into the rollout, and give it as it lies there."""
        observations = self.rollouts.rollout.observations[group.learners, :, t]
        observations.copy_(torch.from_numpy(group.observations).view(observations.shape))
        return observations

    def _send(self, group: Group, t: int, noise: Tensor) -> None:
        begin = time.perf_counter()
        shown = self._show(group, t)
        if group.exact:
            group.states[t], group.steps_used[t] = group.exact.states.copy(), group.exact.steps_used.copy()
        positions = torch.from_numpy(group.positions).view(*shown.shape[:2], 2)
        self.rollouts.keep_positions(group.learners, t, positions)
        actions = self.agent.act(shown, noise[group.learners, :, t], group.learners)
        self.rollouts.rollout.actions[group.learners, :, t] = actions
        group.environments.send(actions.flatten().cpu().numpy())
        self.seconds["act"] += time.perf_counter() - begin

    def _receive(self, group: Group, t: int) -> None:
        begin = time.perf_counter()
        step = group.environments.receive()
        shape = (-1, self.rollouts.rollout.actions.shape[1])
        self.rollouts.keep(
            group.learners,
            t,
            rewards=torch.from_numpy(step.rewards).view(shape),
            terminated=torch.from_numpy(step.terminated).view(shape),
            truncated=torch.from_numpy(step.truncated).view(shape),
            arrived=torch.from_numpy(step.arrived).view(*shape, *step.arrived.shape[1:]),
        )
        self.episodes.take(group.learners, step.rewards, step.ended)
        if self.counts_visits:
            learner = np.repeat(np.arange(group.learners.start, group.learners.stop), shape[1])
            np.add.at(self.visits[:, -1], (learner, *step.arrived_positions.T), 1)
        group.observations, group.positions = step.observations, step.positions
        self.seconds["env"] += time.perf_counter() - begin

    def _is_due(self, every_frames: int) -> bool:
        return is_due(every_frames, frame=self.frame, step_frames=self.frames_per_update)

    def _write_rows(self, frames_per_s: float) -> None:
        metrics = {name: each.tolist() for name, each in self.metrics.items()}
        self._check_finite()
        bonus_mean = self.bonus_mean.of_row()
        shown = self.agent.bonus_output.diagnostics() if len(self.agent.paid) else {}
        diagnostics = {name: shown[name].tolist() for name in SHOWN_OF_BONUS if name in shown}
        paid = {learner: row for row, learner in enumerate(self.agent.paid.tolist())}
        for learner, directory in enumerate(self.directories):
            row: dict[str, Any] = {
                "frame": self.frame,
                "episodes": self.episodes.finished[learner],
                "return_mean": self.episodes.return_mean(learner),
                "success_rate": self.episodes.success_rate(learner),
                "bonus_mean": bonus_mean[learner],
            }
            # What is known of exact values is not for those who train beside.
            mine = {name: each for name, each in metrics.items() if self._has_exact(learner) or name not in OF_EXACT}
            row |= {name: each[learner] for name, each in mine.items()}
            # Where the reward is not conditioned on, a run has no columns for it.
            for name in SHOWN_OF_BONUS if self.configs[learner].a2c.bonus.name == "rcse" else BONUS_COLUMNS:
                has_it = learner in paid and name in diagnostics
                row[name] = diagnostics[name][paid[learner]] if has_it else math.nan
            directory.append_row("train.csv", row)
            directory.append_row(
                "timing.csv",
                {
                    "frame": self.frame,
                    "unix_time": time.time(),
                    "frames_per_s": frames_per_s,
                    "runs": len(self.configs),
                },
            )

    def _evaluate(self) -> None:
        """Play episodes with every policy and write what they gave."""
        episodes = self.configs[0].eval_episodes
        if episodes == 0:
            return
        settings: dict[str, Any] = {"frame": self.frame, "episodes": episodes, "threads": self.threads}
        sampled = play_grids(self.agent, self.configs, sampled=True, **settings)
        likeliest = play_grids(self.agent, self.configs, sampled=False, **settings)
        for directory, one, other in zip(self.directories, sampled, likeliest, strict=True):
            directory.append_row(
                "eval.csv",
                {
                    "frame": self.frame,
                    "episodes": episodes,
                    "return_mean": one.return_mean,
                    "success_rate": one.success_rate,
                    "argmax_return_mean": other.return_mean,
                    "argmax_success_rate": other.success_rate,
                },
            )

    def _check_finite(self) -> None:
        """Refuse to write down what has become NaN, so that the last checkpoint is still good."""
        if self.metrics:
            check_finite("gradient", self.metrics["gradient_norm"].tolist(), self.names, frame=self.frame)

    def save(self) -> None:
        """Write a checkpoint of every run."""
        self._check_finite()
        actions = np.stack(self.new_actions, 1) if self.new_actions else None  # [learners, updates, envs, steps]
        self.new_actions = []
        for learner, directory in enumerate(self.directories):
            if actions is not None:
                directory.append_log("actions.bin", actions[learner].astype(np.uint8))
            state = {
                "update": self.update,
                "agent": self.agent.learner_state(learner),
                "episodes": self.episodes.learner_state(learner),
                **self.bonus_mean.learner_state(learner),
                "observations": torch.from_numpy(self._observations(learner).copy()),
                "visits": torch.from_numpy(self.visits[learner].copy()),
            }
            if self.counts_visits:
                directory.write_array("visits.npy", self.visits[learner, :-1])
            directory.save_checkpoint(self.frame, state)

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what runs wrote after their checkpoints; without any, all."""
        frame = self.frames_per_update * states[0]["update"] if states else 0
        for directory in self.directories:
            directory.cut(frame, {"actions.bin": frame})  # a byte per action, and one action per frame

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint of every run, all at the same update, and replay the environments to there."""
        self.update = states[0]["update"]
        for learner, state in enumerate(states):
            with fitting(self.directories[learner].path):
                self.agent.load_learner_state(learner, state["agent"])
            self.episodes.load_learner_state(learner, state["episodes"])
            self.bonus_mean.load_learner_state(learner, state)
        self.visits = np.stack([state["visits"].numpy() for state in states])
        self._replay()
        for learner, state in enumerate(states):
            shown = torch.from_numpy(self._observations(learner))
            check_replayed(self.directories[learner].path, shown, state["observations"])

    def _replay(self) -> None:
        """Bring the environments, which cannot be saved, to where they were: the same actions from the start."""
        environments, steps = self.rollouts.rollout.actions.shape[1:]
        count = self.update * environments * steps
        taken = np.stack([directory.read_log("actions.bin", count, np.uint8) for directory in self.directories])
        taken = taken.reshape(len(taken), self.update, environments, steps)
        for update in range(self.update):
            for t in range(steps):
                for group in self.groups:
                    group.environments.send(taken[group.learners, update, :, t].reshape(-1).astype(np.int64))
                for group in self.groups:
                    step = group.environments.receive()
                    group.observations, group.positions = step.observations, step.positions

    def _observations(self, learner: int) -> Observations:
        for group in self.groups:
            if group.learners.start <= learner < group.learners.stop:
                environments = self.rollouts.rollout.actions.shape[1]
                start = (learner - group.learners.start) * environments
                return group.observations[start : start + environments]
        raise IndexError(learner)

    def _make_groups(self) -> list[Group]:
        """Make a group per task; a single task is cut in two, so that one half acts while the other is stepped."""
        tasks = [config.task for config in self.configs]
        bounds = [0, *(i for i in range(1, len(tasks)) if tasks[i] != tasks[i - 1]), len(tasks)]
        if len(set(tasks)) < len(bounds) - 1:
            raise ValueError("runs of one task must stand side by side in a cohort")
        if len(bounds) == 2 and len(tasks) > 1:
            bounds.insert(1, len(tasks) // 2)
        threads = max(1, 2 * self.threads // (len(bounds) - 1))  # half of the groups act while the others are stepped
        groups = []
        for start, stop in itertools.pairwise(bounds):
            mine = self.configs[start:stop]
            seeds = [
                config.seed + ENVIRONMENT_SEED_STRIDE * environment
                for config in mine
                for environment in range(config.a2c.environments)
            ]
            backend: Backend = mine[0].backend  # type: ignore[assignment]
            environments = make_environments(mine[0].task, seeds, backend=backend, threads=threads)
            groups.append(Group(slice(start, stop), environments))
        return groups

    def _status(self, frames: int, frames_per_s: float) -> Status:
        rates = [self.episodes.success_rate(learner) for learner in range(len(self.configs))]
        return Status(
            self.frame,
            frames,
            len(self.configs),
            frames_per_s,
            by_method(self.configs, rates),
            by_method(self.configs, self.bonus_mean.of_last_row),
        )
