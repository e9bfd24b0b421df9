"""How a run of Masked World Models trains: alone, as its networks fill a GPU by themselves.

Random actions come first, then updates of the autoencoder alone, during which the environment is not stepped. From
then on, every few steps both the autoencoder and all other networks learn from the replay. A GPU makes such an update
while the simulator continues: until the next one begins, actions are those of the previous policy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vcse.agents.image_cohort import ImageCohort
from vcse.agents.image_environments import gl_backend, most_steps, steps_of
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.costs import capacity_of
from vcse.agents.mwm.networks import PolicyState
from vcse.agents.mwm.player import MWMPlayer
from vcse.agents.mwm.settings import ACTION_REPEAT, MWMSettings
from vcse.agents.output import UpdateOutput
from vcse.agents.step_log import Outcome
from vcse.envs.tasks import task_spec
from vcse.replay.sequences import SequenceBatch, SequenceReplay
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.formatting import counted
from vcse.runs.schedule import EAGER_UPDATES, nothing_learned
from vcse.streams import numbers


def check(config: RunConfig) -> None:
    """Refuse tasks whose episodes may end of themselves, and sequences that no episode or no replay has room for."""
    settings, most = MWMSettings.of(config.settings), most_steps(config) + 1
    if task_spec(config.task).is_foreign:
        raise ValueError(f"mwm does not predict where episodes end, as those of {config.task} may: train drqv2 there")
    lengths = {name: getattr(settings, name) for name in ("sequence_length", "autoencoder_sequence_length")}
    for name, length in lengths.items():
        if length > most:
            raise ValueError(f"{name} must be at most {most}, the images of an episode of {config.task}, got {length}")
    # Of fewer, none would be whole for most of the time, while the next one takes its place.
    two = 2 * most_steps(config)
    if settings.sequence_sampling == "ends" and settings.replay_capacity < min(two, steps_of(config)):
        raise ValueError(
            f"replay_capacity must be at least {two}, two episodes of {config.task}, where sequences are of complete "
            f"episodes alone, got {settings.replay_capacity}"
        )


def warning(config: RunConfig) -> str:
    """Return, of runs that are too short, that they learn nothing."""
    settings, every = MWMSettings.of(config.settings), MWMSettings.of(config.settings).steps_per_update
    # Sequences of the ends of episodes are of complete ones; others have an image more than steps.
    longest = max(settings.sequence_length, settings.autoencoder_sequence_length)
    needed = most_steps(config) if settings.sequence_sampling == "ends" else longest - 1
    ready = max(-(-settings.seed_frames // ACTION_REPEAT), needed)
    adopted = (-(-ready // every) + 1) * every + 1
    if steps_of(config) >= adopted:
        return ""
    return nothing_learned(config.frames, ACTION_REPEAT * adopted, settings.seed_frames)


class MWMCohort(ImageCohort[MWMSettings, SequenceReplay]):
    """One run of MWM."""

    step_frames = ACTION_REPEAT
    agent: MWM
    player = MWMPlayer()
    must_be_finite = (
        *("autoencoder_loss", "autoencoder_reward_loss"),
        *("feature_loss", "kl_loss", "reward_loss", "intrinsic_loss"),
        *("critic_loss", "extrinsic_critic_loss", "actor_loss"),
    )

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        super().__init__(directories, MWMSettings, device=device, threads=threads)
        self.seed_frames = self.common.seed_frames
        check(self.config)
        self.make_replay(
            SequenceReplay,
            replay_place,
            capacity=capacity_of(self.config),
            sampling=self.common.sequence_sampling,
        )
        self.agent = MWM(MWMSpec(self.action_size), self.common, self.config.seed, device=device)
        self.eager_autoencoder_updates = 0
        self.batches: tuple[SequenceBatch, ...] = ()  # of the update in progress, whose memory it still reads
        self.make_environment()
        self.image = torch.zeros(self.image_shape, dtype=torch.uint8)
        self.policy_state = self.agent.acting_policy.initial_state(1)

    def describe(self) -> str:
        """Return what renders, and what is learned before anything else."""
        settings = self.common
        renders = gl_backend(self.environment)
        text = f"images: {settings.image_size} x {settings.image_size}, {self.config.image_quality}"
        text += f", rendered by {renders}" if renders else ""
        if settings.pretraining_updates and self.agent.autoencoder_updates < settings.pretraining_updates:
            updates = counted(settings.pretraining_updates, "update")
            text += f"; at frame {settings.seed_frames:,}, {updates} of the autoencoder alone"
        if settings.precision == "bfloat16" and self.device == "cpu":
            text += "\nbfloat16 is for GPUs: on most CPUs it is slower than float32"
        return text

    def observe(self, image: UInt8[Tensor, "c h w"], *, is_first: bool) -> None:
        """Keep a new image; where an episode begins, so does the policy's state."""
        self.image = image
        if is_first:
            self.policy_state = self.agent.acting_policy.initial_state(1)

    def step(self) -> None:
        """Act, learn from the past where that is due, and see what the action led to; or pretrain, without acting."""
        if self._is_pretraining:
            self._store_pending()
            self._update_autoencoder(self._sample_for_autoencoder())
            return
        self.timer.start()
        action = self._act().cpu()
        self._send(action)
        if self.common.learns_at(self.step_count) and self._has_sequences:
            self.updating.wait()
            self.agent.update_acting_policy()
            self._begin_update()
        self.timer.lap("update")
        self._receive(action)
        self.timer.lap("env")

    @property
    def _is_pretraining(self) -> bool:
        """Whether the autoencoder is to learn alone before the next action."""
        done = self.agent.autoencoder_updates >= self.common.pretraining_updates
        return not done and self.frame >= self.seed_frames and self._has_sequences

    @property
    def _has_sequences(self) -> bool:
        lengths = self.common.sequence_length, self.common.autoencoder_sequence_length
        return all(self.replay.size_of(length) > 0 for length in lengths)

    def _act(self) -> Float[Tensor, " a"]:
        """Choose an action, perhaps on a GPU: random ones at first, then those of the policy."""
        variables = self.common.variables
        uniforms = numbers(self.config.seed, "actions", self.step_count).random(
            (1, variables + self.action_size), dtype=np.float32
        )
        latent, action = torch.split(torch.from_numpy(uniforms), [variables, self.action_size], 1)
        if self.frame < self.seed_frames:
            random: Tensor = 2 * action[0] - 1
            return random
        actions, self.policy_state = self.agent.act(self.image[None], self.policy_state, latent, action.contiguous())
        return actions[0]

    def _sample(self, count: int, length: int, index: int) -> SequenceBatch:
        """Sample sequences, which depend on run, update and what is kept alone."""
        uniforms = numbers(self.config.seed, "updates", index).random((count, 2))
        return self.replay.sample(uniforms, length)

    def _sample_for_autoencoder(self) -> SequenceBatch:
        settings, updates = self.common, self.agent.autoencoder_updates
        return self._sample(settings.autoencoder_batch_size, settings.autoencoder_sequence_length, 2 * updates)

    def _update_autoencoder(self, batch: SequenceBatch) -> None:
        """Update the autoencoder, and keep its metrics for the log."""
        if self.eager_autoencoder_updates == EAGER_UPDATES and self.agent.device.type == "cuda":
            self.agent.capture_autoencoder(batch)
        self.eager_autoencoder_updates += 1
        metrics = self.agent.update_autoencoder(batch)
        self.output = UpdateOutput({**self.output.metrics, **metrics}, self.output.bonus)

    def _begin_update(self) -> None:
        """Begin an update of everything; on a GPU it runs in parallel."""
        settings = self.common
        of_autoencoder = self._sample_for_autoencoder()
        batch = self._sample(settings.batch_size, settings.sequence_length, 2 * self.agent.updates + 1)
        can_be_captured = self.agent.device.type == "cuda" and self.agent.bonus.is_capturable
        if self.eager_updates == EAGER_UPDATES and can_be_captured:
            self.agent.capture(batch)
        self.eager_updates += 1
        self.batches = of_autoencoder, batch
        with self.updating:
            self._update_autoencoder(of_autoencoder)
            metrics, bonus = self.agent.update_networks(batch)
            self.output = UpdateOutput({**self.output.metrics, **metrics}, bonus)
            self.bonus_mean.add(bonus)

    def store(self, outcome: Outcome, *, ended: bool) -> None:
        """Add what an action led to to the replay."""
        if outcome.terminated:
            raise ValueError(f"mwm does not predict where episodes end, as one of {self.config.task} did")
        self.replay.add(outcome.action, outcome.reward, outcome.image, ended=ended)

    def observation_state(self) -> dict[str, Any]:
        """Return the last image, and the policy's state."""
        return {"image": self.image.clone(), "memory": [each.cpu().clone() for each in self.policy_state]}

    def load_observation(self, state: dict[str, Any]) -> UInt8[Tensor, "c h w"]:
        """Load the last image and the policy's state, and return the image."""
        self.image = state["image"]
        self.policy_state = PolicyState(*(each.to(self.agent.device) for each in state["memory"]))
        return self.image
