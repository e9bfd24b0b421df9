"""How a run of DrQ-v2 trains: alone, as its networks fill a GPU by themselves.

Every step is one action and two frames: the learner acts, learns from what it has seen so far, and only then sees what
its action led to, so that the simulator draws while the networks learn. This is the order of the release too. An update
is begun one step before the policy that it leads to is due, so that a GPU has that step to make it in: the next action
is still that of the policy before, and the newest transition is not among what the update learns from.

The simulator takes longest, and can begin as soon as there is an action: what an action led to is stored, and the next
update begun, once the next action is on its way. Where a GPU is still busy with an update when it is asked for that
action, it would answer after the update and then stand still: it is given the next update first. Which of the two it
is changes nothing but the time that a step takes.
"""

import math
import time
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vcse.agents.drqv2.agent import NOISE_DRAWS, SHIFT_DRAWS, DrQv2, DrQv2Spec
from vcse.agents.drqv2.costs import capacity_of, needs, steps_of
from vcse.agents.drqv2.player import play_images
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.drqv2.transfer import Delivered, Delivery
from vcse.envs.mujoco.pixels import ACTION_REPEAT, Pixels, pixel_spec
from vcse.nets.cuda.side_stream import Beside
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import STACK, Chosen, FrameReplay, step_record
from vcse.replay.transitions import distinct_places, uniforms_for
from vcse.runs.checkpoint import check_replayed, fitting, naming
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.divergence import check_finite
from vcse.runs.formatting import counted
from vcse.runs.metrics import SHOWN_OF_BONUS, BonusMean, Episodes
from vcse.runs.noise import ActionDraws
from vcse.runs.progress import Score, Status
from vcse.runs.resources import DISK, find_room
from vcse.runs.schedule import EAGER_UPDATES, TIMING_FRAMES, few_transitions, nothing_learned
from vcse.streams import episode_seeds, numbers

RECENT_EPISODES = 10
MOST_UNWRITTEN = 1000  # pictures, 21 MB, that wait in memory for the run's files
LEAST_CORES_TO_SPIN = 3  # for each run: one that learns, one that simulates, and one for all else
FRAME_BYTES = math.prod(Pixels.frame_shape)


class Outcome(NamedTuple):
    """What an action led to."""

    action: Float[Tensor, " a"]
    reward: float
    terminated: bool
    frame: UInt8[Tensor, "c h w"]


def check(config: RunConfig) -> None:
    """Refuse transitions that are longer than the episodes of a task: none would ever be complete."""
    most, n_step = pixel_spec(config.task).most_steps, DrQv2Settings.of(config.settings).n_step
    if n_step > most:
        raise ValueError(f"n_step must be at most {most}, the steps of an episode of {config.task}, got {n_step}")


def warning(config: RunConfig) -> str:
    """Return, of runs that are too short, that they learn nothing, or from few transitions again and again."""
    settings, steps = DrQv2Settings.of(config.settings), steps_of(config)
    every = settings.steps_per_update
    # A transition is complete after n steps, and is chosen while the next one is played.
    ready = max(-(-settings.seed_frames // ACTION_REPEAT), settings.n_step + 1)
    updated = -(-ready // every) * every + 1  # steps when the first update was adopted
    if steps < updated:
        return nothing_learned(config.frames, ACTION_REPEAT * updated, settings.seed_frames)
    kept = capacity_of(config)
    episodes = -(-kept // pixel_spec(config.task).most_steps)  # the last steps of each begin no transition
    return few_transitions(kept - episodes * settings.n_step, settings.drawn)


def in_common(config: RunConfig) -> tuple[Hashable, ...]:
    """Return the run's name: it trains alone."""
    return (config.name,)


class DrQv2Cohort:
    """One run of DrQ-v2."""

    rows_show_evaluations = True
    evaluates_at_start = True
    timing_every_frames = TIMING_FRAMES
    step_frames = ACTION_REPEAT

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        if len(directories) != 1:
            raise ValueError(f"a run that learns from pictures trains alone, got {len(directories)}")
        self.directories = list(directories)
        self.directory = directories[0]
        self.config = self.directory.config
        self.settings = DrQv2Settings.of(self.config.settings)
        self.threads = threads
        self.device = device
        spec = pixel_spec(self.config.task)
        self.action_size, self.has_success = spec.action_size, spec.has_success
        self.step_record = step_record(spec.action_size)
        check(self.config)
        path = self.directory.path
        place = replay_place or find_room([needs(self.config)], path, device=device, jobs=1).place
        self.agent = DrQv2(
            DrQv2Spec(STACK * Pixels.frame_shape[0], spec.action_size), self.settings, self.config.seed, device=device
        )
        scratch = path / "replay.scratch"
        with naming(scratch):
            self.replay = FrameReplay(
                capacity=capacity_of(self.config),
                most_steps=spec.most_steps,
                frame_shape=Pixels.frame_shape,
                action_size=spec.action_size,
                n_step=self.settings.n_step,
                discount=self.settings.discount,
                device=device,
                storage_device="cpu" if place == DISK else place,
                path=scratch if place == DISK else None,
                gives_next=self.settings.needs_next,
                gives_between=self.settings.needs_between,
            )
        self.step_count = 0
        self.episodes = Episodes(1, 1, recent=RECENT_EPISODES)
        self.episode_begin = 0  # the step at which the present episode began
        self.unstored: Outcome | None = None  # of the last action, until the next one is on its way
        self.new_frames: list[np.ndarray] = []  # that are not on disk yet
        self.new_steps: list[np.ndarray] = []
        self.bonus_mean = BonusMean(1, torch.zeros(1, dtype=torch.int64, device=self.agent.device))
        self.evaluation: dict[str, float] = {}
        self.metrics: dict[str, Tensor] = {}
        self.loaded_latest: dict[str, float] = {}
        self.eager_updates = 0
        self.delivery = Delivery(self.replay, self.agent.device)
        self.delivered: Delivered | None = None  # what the update that is being made learns from
        self.updating = Beside(self.agent.device)
        self.action_draws = ActionDraws([self.config.seed], self.action_size, self.agent.device)
        self.environment = self._environments(1, processes=1, spins=_spins(self.agent.device, threads))
        self.directory.add_to_meta("drawn_by", self.environment.gl_backend)
        self.evaluation_environments: Pixels | None = None
        self.observation = torch.zeros(STACK * Pixels.frame_shape[0], *Pixels.frame_shape[1:], dtype=torch.uint8)
        self.seconds = dict.fromkeys(("env", "act", "update"), 0.0)
        self.clock = 0.0

    def _environments(self, count: int, *, processes: int, spins: bool = False) -> Pixels:
        """Make environments of the run's task, as it sees them."""
        return Pixels(
            [self.config.task] * count,
            rendering=self.config.image_quality,
            goal_marker=self.config.shows_goal,
            device=self.device,
            processes=processes,
            spins=spins,
        )

    @property
    def frame(self) -> int:
        """Frames that the run has had so far."""
        return ACTION_REPEAT * self.step_count

    def describe(self) -> str:
        """Return what draws, when nothing but evaluations goes on, and that a precision is not for this device."""
        said = f"pictures: {self.config.image_quality}, drawn by {self.environment.gl_backend}"
        every, episodes = self.config.eval_every_frames, self.config.eval_episodes
        if every and episodes:
            first = "first, and " if self.frame == 0 else ""
            said += f"; {counted(episodes, 'episode')} of evaluation {first}every {every:,} frames"
        # Measured on a CPU without instructions for it: convolutions and their gradients took 2.3 times as long.
        if self.settings.encoder_precision == "bfloat16" and self.device == "cpu":
            said += "\nbfloat16 is for GPUs: on a CPU it is slower than float32"
        return said

    def close(self) -> None:
        """End the simulators."""
        self.environment.close()
        if self.evaluation_environments is not None:
            self.evaluation_environments.close()

    def begin(self) -> None:
        """Begin an episode, whose seed follows from the run's and the step."""
        self.episode_begin = self.step_count
        frame = torch.from_numpy(self.environment.reset([self._episode_seed()])[0])
        self.replay.begin(frame)
        self._log(Outcome(torch.zeros(self.action_size), 0.0, False, frame))
        self.observation = frame.repeat(STACK, 1, 1)

    def step(self) -> None:
        """Act, learn from the past, and see what the action led to."""
        self.clock = time.perf_counter()
        asked = self._act()
        begins_update = self._learns_at(self.step_count + 1)
        adopts_update = self._learns_at(self.step_count)
        self._spent("act")
        if begins_update and not adopts_update and self.updating.is_busy and self.delivery.is_instant:
            self._store()
            self._spent("env")
            self._begin_update()
            begins_update = False
            self._spent("update")
        action = asked.cpu()
        if not np.isfinite(action.numpy()).all():
            self._finish_update()  # which names the loss that it comes from; if there is none, the simulator refuses it
        self.environment.send(action[None].numpy())
        self._spent("act")
        self._store()
        self._spent("env")
        if adopts_update:
            self.updating.wait()
            self.agent.adopt()
        if begins_update:
            self._begin_update()
        self._spent("update")
        self._receive(action)
        self._spent("env")

    def _spent(self, part: str) -> None:
        """Count the time since this was last called."""
        before, self.clock = self.clock, time.perf_counter()
        self.seconds[part] += self.clock - before

    def _act(self) -> Float[Tensor, " a"]:
        """Choose an action, perhaps on a GPU: random ones at first, then those of the policy."""
        drawn = self.action_draws.of_step(self.step_count)
        if self.frame < self.settings.seed_frames:
            return drawn.actions[0]
        return self.agent.act(self.observation[None], drawn.noise, step=self.step_count)[0]

    def _learns_at(self, step: int) -> bool:
        """Whether an update is due at a step: actions after it follow from it."""
        return ACTION_REPEAT * step >= self.settings.seed_frames and step % self.settings.steps_per_update == 0

    def _choose(self) -> tuple[Chosen, Float[Tensor, "d n a"], Int[Tensor, "s m 2"]]:
        """Choose what the next update learns from, with its noise and shifts, which depend on run and update alone."""
        settings = self.settings
        generator = numbers(self.config.seed, "updates", self.agent.updates)
        uniforms = torch.from_numpy(generator.random((1, uniforms_for(settings.drawn))))
        shape = (NOISE_DRAWS, settings.batch_size, self.action_size)
        noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
        shifts = torch.from_numpy(generator.integers(SHIFTS, size=(SHIFT_DRAWS, settings.drawn, 2)))
        return self.replay.choose(distinct_places(uniforms, self.replay.size, settings.drawn)[0]), noise, shifts

    def _begin_update(self) -> None:
        """Begin the update that is due at the next step, on all that is stored; a GPU makes it beside other work."""
        if self.replay.size < 1:
            return
        chosen, noise, shifts = self._choose()
        if self.eager_updates == EAGER_UPDATES and self.agent.device.type == "cuda" and self.agent.bonus.is_capturable:
            self.delivered = self.delivery.bring_to_stay(chosen, noise, shifts)
            self.agent.capture(*self.delivered)
        else:
            self.delivered = self.delivery.bring(chosen, noise, shifts)
        self.eager_updates += 1
        with self.updating:
            self.metrics = self.agent.learn(*self.delivered, step=self.step_count + 1)
            self.bonus_mean.take(self.agent.bonus_output.reward if self.settings.has_bonus else None)

    def _receive(self, action: Float[Tensor, " a"]) -> None:
        """See what the action led to, and begin a new episode where one ended."""
        step = self.environment.receive()
        frame = torch.from_numpy(step.arrived[0])
        self.unstored = Outcome(action, float(step.rewards[0]), bool(step.terminated[0]), frame)
        self.observation = torch.cat((self.observation[Pixels.frame_shape[0] :], frame))
        self.step_count += 1
        self.episodes.take(slice(None), step.rewards, step.ended, step.success if self.has_success else None)
        if step.ended[0]:
            self._store()
            self.begin()

    def _store(self) -> None:
        """Add what the last action led to, if that was not done yet, to the replay and to what the run's files get."""
        outcome, self.unstored = self.unstored, None
        if outcome is not None:
            self.replay.add(*outcome)
            self._log(outcome)

    def _log(self, outcome: Outcome) -> None:
        """Remember a frame for the run's files: what led to it, and its place in the episode."""
        self.new_frames.append(outcome.frame.numpy())
        step = (outcome.action.numpy(), outcome.reward, outcome.terminated, self.replay.position)
        self.new_steps.append(np.array(step, dtype=self.step_record))
        if len(self.new_frames) >= MOST_UNWRITTEN:
            self._write_new()

    def _episode_seed(self) -> int:
        return episode_seeds(numbers(self.config.seed, "episodes", self.episode_begin), 1)[0]

    def rows(self, *, is_evaluated: bool) -> list[dict[str, Any]]:
        """Return the row of train.csv."""
        self._finish_update()
        self._write_new()
        [bonus_mean] = self.bonus_mean.of_row()
        row = self.episodes.row(self.frame, 0, bonus_mean, knows_success=self.has_success)
        for name in ("return_mean", "success_rate"):
            row[f"eval_{name}"] = self.evaluation.get(name, math.nan) if is_evaluated else math.nan
        latest = self._latest()
        row |= {name: latest.get(name, math.nan) for name in (*self.agent.METRICS, *SHOWN_OF_BONUS)}
        return [row]

    def _latest(self) -> dict[str, float]:
        """Give what the last update showed, which may have been before a restart."""
        if not self.metrics:
            return self.loaded_latest
        latest = {name: float(each) for name, each in self.metrics.items()}
        if self.settings.has_bonus:
            shown = {name: float(each[0]) for name, each in self.agent.bonus_output.diagnostics().items()}
            latest |= {name: each for name, each in shown.items() if name in SHOWN_OF_BONUS and not math.isnan(each)}
        return latest

    def evaluate(self) -> list[dict[str, Any]]:
        """Play episodes with the mean of the policy, and return the row of eval.csv."""
        episodes = self.config.eval_episodes
        if self.evaluation_environments is None:
            self.evaluation_environments = self._environments(episodes, processes=min(self.threads, episodes))
        found = play_images(self.agent, self.config, self.evaluation_environments, frame=self.frame, sampled=False)
        success = found.success_rate if self.has_success else math.nan
        self.evaluation = {"return_mean": found.return_mean, "success_rate": success}
        return [{"frame": self.frame, "episodes": episodes, **self.evaluation}]

    def _finish_update(self) -> None:
        """Wait for the last update, and refuse one that has become NaN: the last checkpoint is still good."""
        self.updating.wait()
        for name, each in self.metrics.items():
            if name.endswith("_loss"):
                check_finite(name, [float(each)], [self.config.name], frame=self.frame)

    def _write_new(self) -> None:
        """Add the new frames and steps to the run's files."""
        self._store()
        if self.new_frames:
            self.directory.append_log("frames.bin", np.stack(self.new_frames))
            self.directory.append_log("steps.bin", np.stack(self.new_steps))
            self.new_frames, self.new_steps = [], []

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint, once all images and steps are in the logs."""
        self._finish_update()
        self._write_new()
        return [
            {
                "step": self.step_count,
                "frames_kept": self.replay.count,
                "agent": self.agent.state_dict(),
                "episodes": self.episodes.learner_state(0),
                "episode_begin": self.episode_begin,
                **self.episodes.success_state(0),
                **self.bonus_mean.learner_state(0),
                "latest": self._latest(),
                "observation": self.observation.clone(),
            }
        ]

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what the run wrote after its checkpoint; without one, or at the beginning, also the first evaluation."""
        frame, kept = -1, 0
        if states and states[0]["step"] > 0:
            frame, kept = ACTION_REPEAT * states[0]["step"], states[0]["frames_kept"]
        logs = {"frames.bin": kept * FRAME_BYTES, "steps.bin": kept * self.step_record.itemsize}
        self.directory.cut(frame, logs)

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint, and replay the episode that had begun."""
        state = states[0]
        self.step_count, self.episode_begin = state["step"], state["episode_begin"]
        self.loaded_latest = state["latest"]
        with fitting(self.directory.path):
            self.agent.load_state_dict(state["agent"])
        self.episodes.load_learner_state(0, state["episodes"])
        self.episodes.load_success_state(0, state)
        self.bonus_mean.load_learner_state(0, state)
        kept = state["frames_kept"]
        steps = self.directory.read_log("steps.bin", kept, self.step_record)
        path = self.directory.path / "frames.bin"
        frames = np.memmap(path, dtype=np.uint8, mode="r", shape=(kept, *Pixels.frame_shape))
        self.replay.restore(frames, steps)
        # The environment cannot be saved: the same actions from the same seed bring it to where it was.
        frame = self.environment.reset([self._episode_seed()])[0]
        taken = self.step_count - self.episode_begin
        for action in steps["action"][len(steps) - taken :]:
            self.environment.send(action[None])
            frame = self.environment.receive().arrived[0]
        self.observation = state["observation"]
        newest = self.observation[-Pixels.frame_shape[0] :]
        other_cause = ", or does another library draw now"
        check_replayed(self.directory.path, torch.from_numpy(frame), newest, other_cause=other_cause)

    def status(self, frames: int, frames_per_s: float) -> Status:
        """Return where the run is on its way to so many frames."""
        method = self.config.method
        score: Score = "success" if self.has_success else "return"
        known = self.episodes.success_rate(0) if self.has_success else self.episodes.return_mean(0)
        bonus = {method: self.bonus_mean.of_last_row[0]}
        learns = self.frame > self.settings.seed_frames
        return Status(self.frame, frames, 1, frames_per_s, {method: known}, bonus, score, learns)


def _spins(device: torch.device, threads: int) -> bool:
    """Whether learner and simulator wait for each other without sleeping: a CPU that learns needs all of its cores."""
    return device.type == "cuda" and threads >= LEAST_CORES_TO_SPIN
