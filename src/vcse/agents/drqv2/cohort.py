"""How a run of DrQ-v2 trains: alone, as its networks fill a GPU by themselves.

Every step is one action and two frames: the learner acts, learns from what it has seen so far, and only then sees what
its action led to, so that the simulator renders while the networks learn. This is the order of the release too. An
update is begun one step before the policy that it leads to is due, so that a GPU has that step to make it in: the next
action is still that of the policy before, and the newest transition is not among what the update learns from.

The simulator takes longest, and can begin as soon as there is an action: what an action led to is stored, and the next
update begun, once the next action is on its way. Where a GPU is still busy with an update when it is asked for that
action, it would answer after the update and then stand still: it is given the next update first. Which of the two it
is changes nothing but the time that a step takes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.costs import capacity_of, most_steps, needs, steps_of
from vcse.agents.drqv2.player import DrQv2Player
from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE, DrQv2Settings
from vcse.agents.drqv2.transfer import Delivered, Delivery
from vcse.agents.image_environments import gl_backend, make_images, replay_episode, spins
from vcse.agents.lockstep import OffPolicy
from vcse.agents.step_log import Outcome, StepLog
from vcse.nets.cuda.side_stream import SideStream
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import STACK, Chosen, ImageReplay
from vcse.replay.transitions import distinct_places, uniforms_for
from vcse.runs.checkpoint import fitting, naming
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.formatting import counted
from vcse.runs.noise import ActionNoiseStream
from vcse.runs.resources import DISK, find_room
from vcse.runs.schedule import EAGER_UPDATES, few_transitions, nothing_learned
from vcse.streams import episode_seed, numbers


def check(config: RunConfig) -> None:
    """Refuse transitions that are longer than the episodes of a task: none would ever be complete."""
    most, n_step = most_steps(config), DrQv2Settings.of(config.settings).n_step
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
    episodes = -(-kept // most_steps(config))  # the last steps of each begin no transition
    return few_transitions(kept - episodes * settings.n_step, settings.sampled_transitions)


class DrQv2Cohort(OffPolicy[DrQv2Settings]):
    """One run of DrQ-v2."""

    evaluates_at_start = True
    step_frames = ACTION_REPEAT
    agent: DrQv2
    player = DrQv2Player()
    must_be_finite = ("critic_loss", "extrinsic_critic_loss", "actor_loss", "curiosity_loss")
    shown_of_evaluations = ("return_mean", "success_rate")

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        if len(directories) != 1:
            raise ValueError(f"a run that learns from images trains alone, got {len(directories)}")
        super().__init__(directories, DrQv2Settings, device=device, threads=threads)
        [self.directory], [self.config] = self.directories, self.configs
        self.seed_frames = self.common.seed_frames
        self.action_size, self.knows_success = self.spec.action_size, self.spec.has_success or self.spec.is_foreign
        check(self.config)
        path = self.directory.path
        place = replay_place or find_room([needs(self.config)], path, device=device, jobs=1).place
        self.agent = DrQv2(
            DrQv2Spec(STACK * IMAGE_SHAPE[0], self.action_size), self.common, self.config.seed, device=device
        )
        scratch = path / "replay.scratch"
        with naming(scratch):
            self.replay = ImageReplay(
                capacity=capacity_of(self.config),
                most_steps=most_steps(self.config),
                image_shape=IMAGE_SHAPE,
                action_size=self.action_size,
                n_step=self.common.n_step,
                discount=self.common.discount,
                device=device,
                storage_device="cpu" if place == DISK else place,
                path=scratch if place == DISK else None,
                gives_next=self.common.needs_next,
                gives_between=self.common.needs_between,
            )
        self.step_count = 0
        self.keep_account(torch.zeros(1, dtype=torch.int64, device=self.agent.device))
        self.episode_begin = 0  # the step at which the present episode began
        self.unstored: Outcome | None = None  # of the last action, until the next one is on its way
        self.log = StepLog(self.directory, IMAGE_SHAPE, self.action_size)
        self.delivery = Delivery(self.replay, self.agent.device)
        self.delivered: Delivered | None = None  # what the update that is being made learns from
        self.updating = SideStream(self.agent.device)
        self.action_noise_stream = ActionNoiseStream(self.seeds, self.action_size, self.agent.device)
        self.environment = make_images(
            self.config,
            1,
            image_size=IMAGE_SHAPE[-1],
            action_repeat=ACTION_REPEAT,
            device=device,
            processes=1,
            spins=spins(device, threads),
        )
        self.directory.add_to_meta("drawn_by", gl_backend(self.environment))
        self.observation = torch.zeros(STACK * IMAGE_SHAPE[0], *IMAGE_SHAPE[1:], dtype=torch.uint8)

    @property
    def frame(self) -> int:
        """Frames that the run has had so far."""
        return ACTION_REPEAT * self.step_count

    def describe(self) -> str:
        """Return what renders, when nothing but evaluations goes on, and that a precision is not for this device."""
        rendered_by = gl_backend(self.environment)
        said = f"images: {self.config.image_quality}, rendered by {rendered_by}" if rendered_by else "images: 84 x 84"
        every, episodes = self.config.eval_every_frames, self.config.eval_episodes
        if every and episodes:
            first = "first, and " if self.frame == 0 else ""
            said += f"; {counted(episodes, 'episode')} of evaluation {first}every {every:,} frames"
        # Measured on a CPU without instructions for it: convolutions and their gradients took 2.3 times as long.
        if self.common.encoder_precision == "bfloat16" and self.device == "cpu":
            said += "\nbfloat16 is for GPUs: on a CPU it is slower than float32"
        return said

    def close(self) -> None:
        """End the simulators."""
        self.environment.close()
        super().close()

    def begin(self) -> None:
        """Begin an episode, whose seed follows from the run's and the step."""
        self.episode_begin = self.step_count
        frame = torch.from_numpy(self.environment.reset([episode_seed(self.config.seed, self.episode_begin)])[0])
        self.replay.begin(frame)
        self.log.add(Outcome(torch.zeros(self.action_size), 0.0, False, frame), self.replay.position)
        self.observation = frame.repeat(STACK, 1, 1)

    def step(self) -> None:
        """Act, learn from the past, and see what the action led to."""
        self.timer.start()
        asked = self._act()
        begins_update = self.common.learns_at(self.step_count + 1)
        adopts_update = self.common.learns_at(self.step_count)
        self.timer.lap("act")
        if begins_update and not adopts_update and self.updating.is_busy and self.delivery.is_instant:
            self._store()
            self.timer.lap("env")
            self._begin_update()
            begins_update = False
            self.timer.lap("update")
        action = asked.cpu()
        if not np.isfinite(action.numpy()).all():
            self._finish_update()  # which names the loss that it comes from; if there is none, the simulator refuses it
        self.environment.send(action[None].numpy())
        self.timer.lap("act")
        self._store()
        self.timer.lap("env")
        if adopts_update:
            self.updating.wait()
            self.agent.update_acting_policy()
        if begins_update:
            self._begin_update()
        self.timer.lap("update")
        self._receive(action)
        self.timer.lap("env")

    def _act(self) -> Float[Tensor, " a"]:
        """Choose an action, perhaps on a GPU: random ones at first, then those of the policy."""
        noise = self.action_noise_stream.of_step(self.step_count)
        if self.frame < self.seed_frames:
            return noise.actions[0]
        return self.agent.act(self.observation[None], noise.noise, step=self.step_count)[0]

    def _choose(self) -> tuple[Chosen, Float[Tensor, "d n a"], Int[Tensor, "s m 2"]]:
        """Choose what the next update learns from, with its noise and shifts, which depend on run and update alone."""
        settings = self.common
        generator = numbers(self.config.seed, "updates", self.agent.updates)
        uniforms = torch.from_numpy(generator.random((1, uniforms_for(settings.sampled_transitions))))
        shape = (NOISE_SAMPLES, settings.batch_size, self.action_size)
        noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
        shifts = torch.from_numpy(generator.integers(SHIFTS, size=(SHIFT_SAMPLES, settings.sampled_transitions, 2)))
        return (
            self.replay.choose(distinct_places(uniforms, self.replay.size, settings.sampled_transitions)[0]),
            noise,
            shifts,
        )

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
            self.output = self.agent.update_networks(*self.delivered, step=self.step_count + 1)
            self.bonus_mean.take(self.output.bonus)

    def _receive(self, action: Float[Tensor, " a"]) -> None:
        """See what the action led to, and begin a new episode where one ended."""
        step = self.environment.receive()
        frame = torch.from_numpy(step.next_observations[0])
        self.unstored = Outcome(action, float(step.rewards[0]), bool(step.terminated[0]), frame)
        self.observation = torch.cat((self.observation[IMAGE_SHAPE[0] :], frame))
        self.step_count += 1
        self.episodes.take(slice(None), step.rewards, step.ended, step.success, step.success_said)
        if step.ended[0]:
            self._store()
            self.begin()

    def _store(self) -> None:
        """Add what the last action led to, if that was not done yet, to the replay and to what the run's files get."""
        outcome, self.unstored = self.unstored, None
        if outcome is not None:
            self.replay.add(*outcome)
            self.log.add(outcome, self.replay.position)

    def _finish_update(self) -> None:
        """Wait for the last update, and refuse one that has become NaN: the last checkpoint is still good."""
        self.updating.wait()
        self.check_finite()

    def settle(self) -> None:
        """Wait for the last update, and write all that happened to the logs."""
        self._finish_update()
        self._store()
        self.log.flush()

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint, once all images and steps are in the logs."""
        self.settle()
        return [
            {
                "step": self.step_count,
                "frames_kept": self.replay.count,
                "agent": self.agent.state_dict(),
                "episodes": self.episodes.learner_state(0),
                "episode_begin": self.episode_begin,
                **self.episodes.success_state(0),
                **self.bonus_mean.learner_state(0),
                "latest": self.latest.of(*self.output)[0],
                "observation": self.observation.clone(),
            }
        ]

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what the run wrote after its checkpoint; without one, or at the beginning, also the first evaluation."""
        frame, kept = -1, 0
        if states and states[0]["step"] > 0:
            frame, kept = ACTION_REPEAT * states[0]["step"], states[0]["frames_kept"]
        self.log.cut(frame, kept)

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint, and replay the episode that had begun."""
        state = states[0]
        self.step_count, self.episode_begin = state["step"], state["episode_begin"]
        self.latest.loaded = [state["latest"]]
        with fitting(self.directory.path):
            self.agent.load_state_dict(state["agent"])
        self.episodes.load_learner_state(0, state["episodes"])
        self.episodes.load_success_state(0, state)
        self.bonus_mean.load_learner_state(0, state)
        frames, steps = self.log.read(state["frames_kept"])
        self.replay.restore(frames, steps)
        taken = self.step_count - self.episode_begin
        actions = steps["action"][len(steps) - taken :]
        image = replay_episode(self.environment, episode_seed(self.config.seed, self.episode_begin), actions)
        self.observation = state["observation"]
        newest = self.observation[-IMAGE_SHAPE[0] :]
        other_cause = ", or does another library draw now"
        self.check_replayed(0, image, newest, other_cause=other_cause)
