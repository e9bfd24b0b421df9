"""How a run of Masked World Models trains: alone, as its networks fill a GPU by themselves.

Random actions come first, then updates of the autoencoder alone, during which no frame goes by. From then on, every few
steps both the autoencoder and all else learn from what was seen so far. A GPU makes such an update while the simulator
goes on: until the next one is begun, actions are those of the policy before.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vcse.agents.image_environments import gl_backend, make_images, replay_episode, spins
from vcse.agents.lockstep import OffPolicy
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.costs import capacity_of, most_steps, needs, steps_of
from vcse.agents.mwm.networks import PolicyState
from vcse.agents.mwm.player import MWMPlayer
from vcse.agents.mwm.settings import ACTION_REPEAT, MWMSettings
from vcse.agents.output import UpdateOutput
from vcse.agents.step_log import Outcome, StepLog
from vcse.envs.tasks import task_spec
from vcse.nets.cuda.side_stream import SideStream
from vcse.replay.sequences import SequenceBatch, SequenceReplay
from vcse.runs.checkpoint import fitting, naming
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.formatting import counted
from vcse.runs.resources import DISK, find_room
from vcse.runs.schedule import EAGER_UPDATES, nothing_learned
from vcse.streams import episode_seed, numbers


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


class MWMCohort(OffPolicy[MWMSettings]):
    """One run of MWM."""

    evaluates_at_start = True
    step_frames = ACTION_REPEAT
    agent: MWM
    player = MWMPlayer()
    must_be_finite = (
        *("autoencoder_loss", "autoencoder_reward_loss"),
        *("feature_loss", "kl_loss", "reward_loss", "intrinsic_loss"),
        *("critic_loss", "extrinsic_critic_loss", "actor_loss"),
    )
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
            raise ValueError(f"a run of mwm trains alone, got {len(directories)}")
        super().__init__(directories, MWMSettings, device=device, threads=threads)
        [self.directory], [self.config] = self.directories, self.configs
        self.seed_frames = self.common.seed_frames
        self.action_size, self.knows_success = self.spec.action_size, self.spec.has_success
        self.image_shape = (3, self.common.image_size, self.common.image_size)
        check(self.config)
        path = self.directory.path
        place = replay_place or find_room([needs(self.config)], path, device=device, jobs=1).place
        self.agent = MWM(MWMSpec(self.action_size), self.common, self.config.seed, device=device)
        scratch = path / "replay.scratch"
        with naming(scratch):
            self.replay = SequenceReplay(
                capacity=capacity_of(self.config),
                most_steps=most_steps(self.config),
                image_shape=self.image_shape,
                action_size=self.action_size,
                device=device,
                storage_device="cpu" if place == DISK else place,
                path=scratch if place == DISK else None,
                sampling=self.common.sequence_sampling,
            )
        self.step_count = 0
        self.keep_account(torch.zeros(1, dtype=torch.int64, device=self.agent.device))
        self.episode_begin = 0  # the step at which the present episode began
        self.unstored: Outcome | None = None  # of the last action, until the next one is on its way
        self.log = StepLog(self.directory, self.image_shape, self.action_size)
        self.updating = SideStream(self.agent.device)
        self.eager_autoencoder_updates = 0
        self.batches: tuple[SequenceBatch, ...] = ()  # of the update that is being made, whose memory it still reads
        self.environment = make_images(
            self.config,
            1,
            image_size=self.common.image_size,
            action_repeat=ACTION_REPEAT,
            device=device,
            processes=1,
            spins=spins(device, threads),
        )
        self.directory.add_to_meta("drawn_by", gl_backend(self.environment))
        self.image = torch.zeros(self.image_shape, dtype=torch.uint8)
        self.policy_state = self.agent.acting_policy.initial_state(1)

    @property
    def frame(self) -> int:
        """Frames that the run has had so far."""
        return ACTION_REPEAT * self.step_count

    def describe(self) -> str:
        """Return what renders, and what is learned before anything else."""
        settings = self.common
        renders = gl_backend(self.environment)
        said = f"images: {settings.image_size} x {settings.image_size}, {self.config.image_quality}"
        said += f", rendered by {renders}" if renders else ""
        if settings.pretraining_updates and self.agent.autoencoder_updates < settings.pretraining_updates:
            updates = counted(settings.pretraining_updates, "update")
            said += f"; at frame {settings.seed_frames:,}, {updates} of the autoencoder alone"
        if settings.precision == "bfloat16" and self.device == "cpu":
            said += "\nbfloat16 is for GPUs: on most CPUs it is slower than float32"
        return said

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
        self.image, self.policy_state = image, self.agent.acting_policy.initial_state(1)

    def step(self) -> None:
        """Act, learn from the past where that is due, and see what the action led to; or pretrain, without acting."""
        if self._is_pretraining:
            self._store()
            self._update_autoencoder(self._sample_for_autoencoder())
            return
        self.timer.start()
        action = self._act().cpu()
        if not np.isfinite(action.numpy()).all():
            self._finish_update()  # which names the loss that it comes from; if there is none, the simulator refuses it
        self.environment.send(action[None].numpy())
        self.timer.lap("act")
        self._store()
        self.timer.lap("env")
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
        drawn = torch.from_numpy(uniforms)
        if self.frame < self.seed_frames:
            return 2 * drawn[0, variables:] - 1
        actions, self.policy_state = self.agent.act(
            self.image[None], self.policy_state, drawn[:, :variables], drawn[:, variables:].contiguous()
        )
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
        """Begin an update of everything, which a GPU makes beside other work."""
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
            self.bonus_mean.take(bonus)

    def _receive(self, action: Float[Tensor, " a"]) -> None:
        """See what the action led to, and begin a new episode where one ended."""
        step = self.environment.receive()
        if step.terminated[0]:
            raise ValueError(f"mwm does not predict where episodes end, as one of {self.config.task} did")
        image = torch.from_numpy(step.next_observations[0])
        self.unstored = Outcome(action, float(step.rewards[0]), False, image)
        self.image = image
        self.step_count += 1
        self.episodes.take(slice(None), step.rewards, step.ended, step.success, step.success_said)
        if step.ended[0]:
            self._store(ended=True)
            self.begin()

    def _store(self, *, ended: bool = False) -> None:
        """Add what the last action led to, if that was not done yet, to the replay and to what the run's files get."""
        outcome, self.unstored = self.unstored, None
        if outcome is not None:
            self.replay.add(outcome.action, outcome.reward, outcome.frame, ended=ended)
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
                "image": self.image.clone(),
                "memory": [each.cpu().clone() for each in self.policy_state],
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
        images, steps = self.log.read(state["frames_kept"])
        self.replay.restore(images, steps)
        self.policy_state = PolicyState(*(each.to(self.agent.device) for each in state["memory"]))
        self.image = state["image"]
        taken = self.step_count - self.episode_begin
        actions = steps["action"][len(steps) - taken :]
        shown = replay_episode(self.environment, episode_seed(self.config.seed, self.episode_begin), actions)
        self.check_replayed(0, shown, self.image, other_cause=", or does another library render now")
