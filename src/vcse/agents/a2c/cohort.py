"""How runs of A2C train: rollouts of many environments, in lockstep."""

import itertools
import math
from collections.abc import Hashable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.exact_values import METRICS as OF_EXACT_VALUES
from vcse.agents.a2c.exact_values import ExactValues
from vcse.agents.a2c.player import A2CPlayer
from vcse.agents.a2c.settings import A2CSettings
from vcse.agents.entry import Policies
from vcse.agents.lockstep import Lockstep
from vcse.agents.presets import MEAN_ZERO
from vcse.agents.value_permutation import ValuePermutation
from vcse.envs.interface import Environments, Making, Observations, Positions, SeededEpisodes
from vcse.envs.tasks import make_environments, observation_kind, task_spec
from vcse.nets.observers import make_encoder
from vcse.replay.rollouts import Rollouts
from vcse.runs.checkpoint import fitting
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.metrics import BONUS_COLUMNS, SHOWN_OF_BONUS
from vcse.runs.schedule import EAGER_UPDATES, is_due
from vcse.streams import uniforms

ENVIRONMENT_SEED_STRIDE = 10_000  # environment i of a run has seed + 10,000 i, as in the release
MAP_SIDE = 25  # no MiniGrid is larger
# Not in the tasks of the paper, where this is what is reproduced.
RAW_BONUS = (
    f"where states repeat, the bonus of the reading {{}} is negative, so that ending an episode pays; {MEAN_ZERO}"
)
BLIND_TO_THE_GOAL = (
    "which thing is the goal changes from episode to episode and is given by the mission alone, which the agent does "
    "not observe: it can only guess"
)


def check(config: RunConfig) -> None:
    """Refuse maps that are too small for the encoder, and settings that do not fit the task."""
    spec, settings = task_spec(config.task), A2CSettings.of(config.settings)
    make_encoder(observation_kind(config.task), spec.observation_shape, [torch.Generator()])  # which may refuse it
    shows_no_map = spec.is_foreign or observation_kind(config.task) == "state"
    if shows_no_map and (settings.bonus_features == "position" or config.visits_every_frames > 0):
        asked = "visits_every_frames" if config.visits_every_frames > 0 else "bonus_features position"
        raise ValueError(f"{asked} needs the agent's position on a map, which {config.task} does not have")
    if settings.bonus.needs_rewards and spec.rewards_only_the_goal:
        raise ValueError(
            f"bonus {settings.bonus.name} conditions on the reward, which {config.task} gives only at the goal: nearly "
            "every batch would hold nothing but zeros"
        )
    if settings.has_exact_values and not config.task.startswith("minigrid-table/"):
        raise ValueError(
            f"values {settings.values} needs a task that is enumerated, minigrid-table/..., not {config.task}"
        )


def warning(config: RunConfig) -> str:
    """Return why a run may not learn the task: it does not see its goal, or its bonus rewards ending episodes."""
    if task_spec(config.task).mission == "chooses":
        return BLIND_TO_THE_GOAL
    bonus = A2CSettings.of(config.settings).bonus
    is_raw = bonus.name in ("vcse", "se-matched", "rcse") and bonus.scaling == "raw"
    return RAW_BONUS.format(config.reading) if is_raw and config.task.startswith("gymnasium") else ""


def in_common(config: RunConfig) -> tuple[Hashable, ...]:
    """Return what runs must have in common: what they see and can do, and what learners of one stack share."""
    spec, kind = task_spec(config.task), observation_kind(config.task)
    return kind, spec.observation_shape, spec.actions, *(getattr(config.settings, name) for name in A2C.SHARED_SETTINGS)


class Group:
    """Learners of one task, whose environments are stepped together while other groups choose their actions."""

    def __init__(self, learners: slice, environments: Environments) -> None:
        self.learners = learners
        self.environments = environments
        self.observations = environments.reset()
        self.positions: Positions | None = getattr(environments, "positions", None)  # on the map, where there is one


class A2CCohort(Lockstep[A2CSettings]):
    """Runs of A2C that are trained in lockstep. Runs of one task must be adjacent."""

    rows_show_evaluations = False
    evaluates_at_start = False
    knows_success = True
    must_be_finite = ("gradient_norm",)

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        del replay_place  # a rollout takes little memory
        super().__init__(directories, A2CSettings, device=device, threads=threads)
        shape, environments = self.spec.observation_shape, self.common.environments
        kind = observation_kind(self.configs[0].task)
        self.agent = A2C(A2CSpec(shape, self.spec.actions, kind), self.settings, self.seeds, device=device)
        learners = len(self.configs)
        self.rollouts = Rollouts(
            learners=learners,
            environments=environments,
            steps=self.common.rollout_steps,
            observation_shape=shape,
            keep_next_observations=self.agent.needs_next_observations,
            device=self.agent.device,
            dtype=torch.float32 if kind == "state" else torch.uint8,
        )
        self.keeps_success = self.spec.has_success or self.spec.is_foreign
        self.update = 0
        self.step_frames = self.common.frames_per_update
        self.timing_every_frames = self.configs[0].row_every_frames
        self.count_episodes(self.agent.with_bonus, environments=environments)
        self.visits = np.zeros((learners, 1, MAP_SIDE, MAP_SIDE), dtype=np.int64)  # the last slice is being counted
        self.visits_every_frames = self.configs[0].visits_every_frames
        self.new_actions: list[np.ndarray] = []
        self.captures = self.agent.device.type == "cuda"
        self.groups = self._make_groups()
        sources, states = [each.values for each in self.settings], self.common.frames_per_update
        self.value_permutation = ValuePermutation(sources, self.seeds, states, self.agent.device)
        self.exact_values = ExactValues(self.settings, [(each.learners, each.environments) for each in self.groups])

    @property
    def frame(self) -> int:
        """Frames that every run has had so far."""
        return self.update * self.step_frames

    def begin(self) -> None:
        """Do nothing: the environments are reset when they are made."""

    def close(self) -> None:
        """End the simulators."""
        for group in self.groups:
            group.environments.close()

    def step(self) -> None:
        """Collect one rollout and learn from it."""
        self._collect()
        self.timer.start()
        rollout, order = self.rollouts.complete(), self.value_permutation.of_update(self.update)
        if self.captures and self.eager_updates >= EAGER_UPDATES and self.agent.can_be_captured:
            self.agent.capture(rollout, order)  # all that has to be loaded is, and shapes no longer change
        self.eager_updates += 1
        exact = self.exact_values.of_rollout(self.agent, rollout.actions)
        self.output = self.agent.update(rollout, exact, order)
        self.update += 1
        if is_due(self.visits_every_frames, frame=self.frame, step_frames=self.step_frames):
            self.visits = np.concatenate((self.visits, np.zeros_like(self.visits[:, :1])), 1)
        self.bonus_mean.add(self.output.bonus)
        self.timer.lap("update")

    def _collect(self) -> None:
        """Step every environment through a rollout. Groups take turns: one acts while the others are stepped."""
        shape = tuple(self.rollouts.rollout.actions.shape)
        sampled = [uniforms(config.seed, "actions", self.update, shape[1:]) for config in self.configs]
        noise = torch.from_numpy(np.stack(sampled)).to(self.agent.device)
        for t in range(shape[2]):
            for group in self.groups:
                if t > 0:
                    self._receive(group, t - 1)
                self._send(group, t, noise)
        for group in self.groups:
            self._receive(group, shape[2] - 1)
            self._store_observations(group, shape[2])
        self.new_actions.append(self.rollouts.rollout.actions.to("cpu", torch.uint8).numpy())

    def _store_observations(self, group: Group, t: int) -> Tensor:
        """Store a group's observations in the rollout, and return them there."""
        observations = self.rollouts.rollout.observations[group.learners, :, t]
        observations.copy_(torch.from_numpy(group.observations).view(observations.shape))
        return observations

    def _send(self, group: Group, t: int, noise: Tensor) -> None:
        self.timer.start()
        observations = self._store_observations(group, t)
        self.exact_values.remember(group.learners, t)
        if group.positions is not None:
            positions = torch.from_numpy(group.positions).view(*observations.shape[:2], 2)
            self.rollouts.keep_positions(group.learners, t, positions)
        actions = self.agent.act(observations, noise[group.learners, :, t], group.learners)
        self.rollouts.rollout.actions[group.learners, :, t] = actions
        group.environments.send(actions.flatten().cpu().numpy())
        self.timer.lap("act")

    def _receive(self, group: Group, t: int) -> None:
        self.timer.start()
        step = group.environments.receive()
        shape = (-1, self.rollouts.rollout.actions.shape[1])
        positions = None if step.next_positions is None else torch.from_numpy(step.next_positions).view(*shape, 2)
        self.rollouts.keep(
            group.learners,
            t,
            rewards=torch.from_numpy(step.rewards).view(shape),
            terminated=torch.from_numpy(step.terminated).view(shape),
            truncated=torch.from_numpy(step.truncated).view(shape),
            next_observations=torch.from_numpy(step.next_observations).view(*shape, *step.next_observations.shape[1:]),
            next_positions=positions,
        )
        self.episodes.add(group.learners, step.rewards, step.ended, step.success, step.success_reported)
        if self.visits_every_frames > 0 and step.next_positions is not None:
            learner = np.repeat(np.arange(group.learners.start, group.learners.stop), shape[1])
            np.add.at(self.visits[:, -1], (learner, *step.next_positions.T), 1)
        group.observations, group.positions = step.observations, step.positions
        self.timer.lap("env")

    def rows(self, *, is_evaluated: bool) -> list[dict[str, Any]]:
        """Return a row of train.csv for every run."""
        del is_evaluated  # evaluations are in eval.csv alone
        self.check_finite()
        bonus_mean, latest = self.bonus_mean.of_row(), self.latest.of(*self.output)
        rows = []
        for learner, settings in enumerate(self.settings):
            row = self.episodes.row(self.frame, learner, bonus_mean[learner])
            # Columns of exact values are for the learners that condition on them.
            unknown = () if self.exact_values.conditions(learner) else OF_EXACT_VALUES
            metrics = [name for name in self.output.metrics if name not in unknown]
            # Where the reward is not conditioned on, a run has no columns for it.
            of_bonus = SHOWN_OF_BONUS if settings.bonus.needs_rewards else BONUS_COLUMNS
            row |= {name: latest[learner].get(name, math.nan) for name in (*metrics, *of_bonus)}
            rows.append(row)
        return rows

    def evaluate(self) -> list[dict[str, Any]]:
        """Play episodes with sampled and with greedy actions, and return a row of eval.csv for every run."""
        episodes = self.configs[0].eval_episodes
        policies = Policies(self.agent, self.configs, self.frame, [each.path for each in self.directories])
        sampled, greedy = A2CPlayer().evaluate(policies, episodes=episodes, threads=self.threads)
        return [
            {
                "frame": self.frame,
                "episodes": episodes,
                "return_mean": one.return_mean,
                "success_rate": one.success_rate,
                "argmax_return_mean": other.return_mean,
                "argmax_success_rate": other.success_rate,
            }
            for one, other in zip(sampled, greedy, strict=True)
        ]

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint of every run, once all actions are in its log."""
        self.check_finite()
        if self.new_actions:
            actions = np.stack(self.new_actions, 1)  # [learners, updates, envs, steps]
            for learner, directory in enumerate(self.directories):
                directory.append_log("actions.bin", actions[learner].astype(np.uint8))
        self.new_actions = []
        if self.visits_every_frames > 0:
            for learner, directory in enumerate(self.directories):
                directory.write_array("visits.npy", self.visits[learner, :-1])
        return [
            {
                "update": self.update,
                "agent": self.agent.learner_state(learner),
                **self.episode_state(learner),
                "observations": torch.from_numpy(self._observations(learner).copy()),
                "visits": torch.from_numpy(self.visits[learner].copy()),
                **self._environment_state(learner),
            }
            for learner in range(len(self.configs))
        ]

    def _environment_state(self, learner: int) -> dict[str, Any]:
        """Return what else there is of a task whose episodes have seeds of their own."""
        group, mine = self._place_of(learner)
        if not isinstance(group.environments, SeededEpisodes):
            return {}
        return {"progress": torch.from_numpy(group.environments.progress()[mine])}

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what runs wrote after their checkpoints; without any, all."""
        frame = self.step_frames * states[0]["update"] if states else 0
        for directory in self.directories:
            directory.cut(frame, {"actions.bin": frame})  # a byte per action, and one action per frame

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint of every run, all at the same update, and replay the environments to there."""
        self.update = states[0]["update"]
        for learner, state in enumerate(states):
            with fitting(self.directories[learner].path):
                self.agent.load_learner_state(learner, state["agent"])
            self.load_episode_state(learner, state)
        self.visits = np.stack([state["visits"].numpy() for state in states])
        self._replay(states)
        for learner, state in enumerate(states):
            self.check_replayed(learner, torch.from_numpy(self._observations(learner)), state["observations"])

    def _replay(self, states: Sequence[dict[str, Any]]) -> None:
        """Replay the environments, which cannot be saved, to where they were: the same actions from the same seeds."""
        environments, steps = self.rollouts.rollout.actions.shape[1:]
        count = self.update * environments * steps
        taken = np.stack([directory.read_log("actions.bin", count, np.uint8) for directory in self.directories])
        taken = taken.reshape(len(taken), self.update, environments, steps)
        from_the_start = [group for group in self.groups if not isinstance(group.environments, SeededEpisodes)]
        for group in self.groups:
            if isinstance(group.environments, SeededEpisodes):
                progress = np.concatenate([state["progress"].numpy() for state in states[group.learners]])
                actions = taken[group.learners].swapaxes(1, 2).reshape(len(progress), -1).astype(np.int64)
                group.observations = group.environments.restore(progress, actions)
        for update in range(self.update) if from_the_start else ():
            for t in range(steps):
                for group in from_the_start:
                    group.environments.send(taken[group.learners, update, :, t].reshape(-1).astype(np.int64))
                for group in from_the_start:
                    step = group.environments.receive()
                    group.observations, group.positions = step.observations, step.positions

    def _observations(self, learner: int) -> Observations:
        group, mine = self._place_of(learner)
        return group.observations[mine]

    def _place_of(self, learner: int) -> tuple[Group, slice]:
        """Return the group of a learner, and which of its environments are the learner's."""
        [group] = [each for each in self.groups if each.learners.start <= learner < each.learners.stop]
        environments = self.rollouts.rollout.actions.shape[1]
        start = (learner - group.learners.start) * environments
        return group, slice(start, start + environments)

    def _make_groups(self) -> list[Group]:
        """Make a group per task; a single task is cut in two, so that one half acts while the other is stepped."""
        tasks = [config.task for config in self.configs]
        bounds = [0, *(i for i in range(1, len(tasks)) if tasks[i] != tasks[i - 1]), len(tasks)]
        if len(set(tasks)) < len(bounds) - 1:
            raise ValueError("runs of one task must be adjacent in a cohort")
        if len(bounds) == 2 and len(tasks) > 1:
            bounds.insert(1, len(tasks) // 2)
        threads = max(1, 2 * self.threads // (len(bounds) - 1))  # half of the groups act while the others are stepped
        groups = []
        with ExitStack() as made:  # closes those of the groups before one that fails
            for start, stop in itertools.pairwise(bounds):
                mine = self.configs[start:stop]
                seeds = [
                    config.seed + ENVIRONMENT_SEED_STRIDE * environment
                    for config in mine
                    for environment in range(self.common.environments)
                ]
                making = Making(seeds=seeds, backend=mine[0].backend, threads=threads)
                environments = made.enter_context(closing(make_environments([mine[0].task] * len(seeds), making)))
                groups.append(Group(slice(start, stop), environments))
            made.pop_all()
        return groups
