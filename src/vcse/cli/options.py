"""Options of `vcse train` that not every agent has, in groups by whose they are; a group is a box of the help."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from vcse.agents.a2c import Injection, TimeLimit
from vcse.agents.drqv2 import CuriosityPair, ReturnInjection
from vcse.cli.numbers import Frames, FramesIfGiven, NumberIfGiven, TemperatureIfGiven, WholeIfGiven
from vcse.envs.rendering import Rendering
from vcse.nets.pixels import Precision
from vcse.runs.config import ValueSource
from vcse.settings import ValueCritic


@dataclass(frozen=True)
class A2COptions:
    """Of a2c alone.

    Attributes:
        injection: Deviation from the reading: the bonus joins advantages and returns (after_gae) or the reward.
        time_limit: Deviation from the reading: a time limit ends the return (ends) or the value goes on (bootstraps).
        values: What vcse conditions on: the network's value, or exact values (minigrid-table/... only).
        bonus_features: What the bonus sees: a random encoder's features or the agent's position; auto is the position
            for minigrid-full/... and the encoder otherwise.
        keep_extrinsic_critic: Build the extrinsic critic without a bonus too, as the release does.
        environments: How many each run steps at once, 16 if not given. In the other agents it is one.
        backend: What simulates MiniGrid; auto is EnvPool where it is installed.
        visits_every_frames: Count visits of each cell, in slices of so many frames; 0 does not count.
    """

    injection: Injection | None = None
    time_limit: TimeLimit | None = None
    values: ValueSource = "network"
    bonus_features: Literal["auto", "encoder", "position"] = "auto"
    keep_extrinsic_critic: bool = False
    environments: WholeIfGiven = None
    backend: Literal["auto", "envpool", "minigrid"] = "auto"
    visits_every_frames: Frames = 0


@dataclass(frozen=True)
class OffPolicyOptions:
    """Of sac and drqv2.

    Attributes:
        value_critic: vcse conditions on the value of the target or of the online extrinsic critic. Without it the
            target in sac; in drqv2 online in release, and the target otherwise.
        hidden_units: Of each of the two hidden layers of every network, 1024 if not given.
        batch_size: Transitions of an update. Without it 1024 in sac; in drqv2 256, and 512 for walkers.
        seed_frames: Frames of random actions before the first update. Without it 5,000 in sac and 4,000 in drqv2.
        replay_capacity: Transitions that are kept: 600,000 in sac and 1,000,000 in drqv2 if not given; never more
            than the run has.
    """

    value_critic: ValueCritic | None = None
    hidden_units: WholeIfGiven = None
    batch_size: WholeIfGiven = None
    seed_frames: FramesIfGiven = None
    replay_capacity: WholeIfGiven = None


@dataclass(frozen=True)
class SACOptions:
    """Of sac alone.

    Attributes:
        temperature: Weight of the policy's entropy, or learned. Without it learned where there is no bonus, and 0.001
            with one, as in paper and release.
        extrinsic_entropy: Deviation from the reading: the extrinsic critic's target counts the policy's entropy. It
            does in paper, and does not in release and clean.
        updates_per_step: Updates of every step, 1 if not given; 0.5 is one at every other.
    """

    temperature: TemperatureIfGiven = None
    extrinsic_entropy: bool | None = None
    updates_per_step: NumberIfGiven = None


@dataclass(frozen=True)
class DrQv2Options:
    """Of drqv2 alone.

    Attributes:
        rendering: Quality of pictures: faithful (what everyone draws, if not given), light (nearly the same, several
            times faster) or fast (no shadows, reflections or smooth edges).
        n_step: Steps of a return; 3, and 1 for walkers, if not given.
        action_noise: Standard deviation of actions. Without it 0.2 with a bonus and in Meta-World; else it falls
            from 1 to 0.1.
        return_injection: Deviation from the reading: the bonus joins an n-step return once, as in release, or at
            every_step.
        curiosity_pair: Deviation from the reading: the curiosity module, whose features the bonus sees, looks one step
            ahead or, as in release, n.
        bonus_batch_size: States among which the bonus looks for neighbours, if more than those of a batch.
        beta_decay: Share of its weight that the bonus loses at every step.
        normalize_reward: Divide the task's reward by a running mean of its size; so it is in Meta-World.
        encoder_precision: What the encoder's convolutions multiply: float32, if not given, or bfloat16, which is for
            GPUs.
    """

    rendering: Rendering | None = None
    n_step: WholeIfGiven = None
    action_noise: NumberIfGiven = None
    return_injection: ReturnInjection | None = None
    curiosity_pair: CuriosityPair | None = None
    bonus_batch_size: WholeIfGiven = None
    beta_decay: NumberIfGiven = None
    normalize_reward: bool | None = None
    encoder_precision: Precision | None = None


def given(options: A2COptions | OffPolicyOptions | SACOptions | DrQv2Options) -> Iterator[str]:
    """Name the options of a group that are not as they are without."""
    for field in dataclasses.fields(options):
        if getattr(options, field.name) != field.default:
            yield flag(field.name)


def flag(name: str) -> str:
    """Give an option as it is written."""
    return f"--{name.replace('_', '-')}"


@contextmanager
def naming_options(names: Iterable[str]) -> Iterator[None]:
    """Let errors of settings, which name a field, name the option that it comes from.

    Args:
        names: Of the options, as arguments.
    """
    try:
        yield
    except ValueError as error:
        # A name of one word may be a word of the sentence: it is the option's where the sentence begins with it.
        known = "|".join(names)
        told = re.sub(rf"^({known})(?=[ =])|\b(?=\w+_)({known})\b", lambda found: flag(found[0]), str(error))
        raise ValueError(told) from error
