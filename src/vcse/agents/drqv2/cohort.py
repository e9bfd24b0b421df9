"""How a run of DrQ-v2 trains: alone, as its networks fill a GPU by themselves.

Every step is one action and two frames: the learner acts, learns from the replay, and only then receives what its
action led to, so that the simulator renders while the networks learn. This is the order of the release too. An update
begins one step before its policy acts, so that a GPU has that step for it: the next action is still that of the policy
before, and the newest transition is not in the replay yet.

The simulator takes longest, and can begin as soon as there is an action: what an action led to is stored, and the next
update begun, once the next action has been sent. If a GPU is still busy with an update when it should choose that
action, it would choose it after the update and then be idle: the next update is queued first. Which of the two comes
first changes nothing but the time that a step takes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.costs import capacity_of
from vcse.agents.drqv2.player import DrQv2Player
from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE, DrQv2Settings
from vcse.agents.drqv2.transfer import BatchTransfer, UpdateInputs
from vcse.agents.image_cohort import ImageCohort
from vcse.agents.image_environments import gl_backend, most_steps, steps_of
from vcse.agents.step_log import Outcome
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import STACK, Chosen, ImageReplay
from vcse.replay.transitions import distinct_places, uniforms_for
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.formatting import counted
from vcse.runs.noise import ActionNoiseStream
from vcse.runs.schedule import EAGER_UPDATES, few_transitions, nothing_learned
from vcse.streams import numbers


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


class DrQv2Cohort(ImageCohort[DrQv2Settings, ImageReplay]):
    """One run of DrQ-v2."""

    step_frames = ACTION_REPEAT
    agent: DrQv2
    player = DrQv2Player()
    must_be_finite = ("critic_loss", "extrinsic_critic_loss", "actor_loss", "curiosity_loss")

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        super().__init__(directories, DrQv2Settings, device=device, threads=threads)
        self.seed_frames = self.common.seed_frames
        check(self.config)
        self.make_replay(
            ImageReplay,
            replay_place,
            capacity=capacity_of(self.config),
            n_step=self.common.n_step,
            discount=self.common.discount,
            with_one_step=self.common.has_bonus and self.common.curiosity_pair == "one-step",
            with_between=self.common.has_bonus and self.common.return_injection == "every_step",
        )
        self.agent = DrQv2(
            DrQv2Spec(STACK * IMAGE_SHAPE[0], self.action_size), self.common, self.config.seed, device=device
        )
        self.transfer = BatchTransfer(self.replay, self.agent.device)
        self.inputs: UpdateInputs | None = None  # of the update in progress, whose memory it still reads
        self.action_noise_stream = ActionNoiseStream(self.seeds, self.action_size, self.agent.device)
        self.make_environment()
        self.observation = torch.zeros(STACK * IMAGE_SHAPE[0], *IMAGE_SHAPE[1:], dtype=torch.uint8)

    def describe(self) -> str:
        """Return what renders the images, when evaluations are, and whether a precision is slow on this device."""
        rendered_by = gl_backend(self.environment)
        text = f"images: {self.config.image_quality}, rendered by {rendered_by}" if rendered_by else "images: 84 x 84"
        every, episodes = self.config.eval_every_frames, self.config.eval_episodes
        if every and episodes:
            first = "first, and " if self.frame == 0 else ""
            text += f"; {counted(episodes, 'episode')} of evaluation {first}every {every:,} frames"
        # Measured on a CPU without instructions for it: convolutions and their gradients took 2.3 times as long.
        if self.common.encoder_precision == "bfloat16" and self.device == "cpu":
            text += "\nbfloat16 is for GPUs: on a CPU it is slower than float32"
        return text

    def observe(self, image: UInt8[Tensor, "c h w"], *, is_first: bool) -> None:
        """Put a new image on the stack; the first one of an episode fills it."""
        repeated = image.repeat(STACK, 1, 1)
        self.observation = repeated if is_first else torch.cat((self.observation[IMAGE_SHAPE[0] :], image))

    def step(self) -> None:
        """Act, learn from the past, and see what the action led to."""
        self.timer.start()
        action_on_device = self._act()
        begins_update = self.common.learns_at(self.step_count + 1)
        applies_update = self.common.learns_at(self.step_count)
        self.timer.lap("act")
        if begins_update and not applies_update and self.updating.is_busy and self.transfer.is_asynchronous:
            self._store_pending()
            self.timer.lap("env")
            self._begin_update()
            begins_update = False
            self.timer.lap("update")
        action = action_on_device.cpu()
        self._send(action)
        if applies_update:
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
        """Begin the update that is due at the next step, on all that is stored; on a GPU it runs in parallel."""
        if self.replay.size < 1:
            return
        chosen, noise, shifts = self._choose()
        if self.eager_updates == EAGER_UPDATES and self.agent.device.type == "cuda" and self.agent.bonus.is_capturable:
            self.inputs = self.transfer.gather_in_place(chosen, noise, shifts)
            self.agent.capture(*self.inputs)
        else:
            self.inputs = self.transfer.gather(chosen, noise, shifts)
        self.eager_updates += 1
        with self.updating:
            self.output = self.agent.update_networks(*self.inputs, step=self.step_count + 1)
            self.bonus_mean.add(self.output.bonus)

    def store(self, outcome: Outcome, *, ended: bool) -> None:
        """Add what an action led to to the replay."""
        del ended
        self.replay.add(*outcome)

    def observation_state(self) -> dict[str, Any]:
        """Return the stack of images."""
        return {"observation": self.observation.clone()}

    def load_observation(self, state: dict[str, Any]) -> UInt8[Tensor, "c h w"]:
        """Load the stack of images, and return the newest."""
        self.observation = state["observation"]
        return self.observation[-IMAGE_SHAPE[0] :]
