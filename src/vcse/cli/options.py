"""Options of `vcse train` that not every agent has, in groups by whose they are; a group is a box of the help."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from vcse.agents.a2c.agent import Injection, TimeLimit
from vcse.agents.drqv2.agent import CuriosityPair, ReturnInjection
from vcse.agents.drqv2.networks import Precision
from vcse.agents.entry import AgentSettings
from vcse.cli.option_types import (
    CountIfGiven,
    Frames,
    FramesIfGiven,
    NoiseIfGiven,
    NumberIfGiven,
    TemperatureIfGiven,
    TruthIfGiven,
    WholeIfGiven,
    if_given,
    number_of,
    one_of,
    whole_of,
)
from vcse.envs.mujoco.rendering import Rendering
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

    injection: Annotated[Injection | None, one_of(Injection), if_given()] = None
    time_limit: Annotated[TimeLimit | None, one_of(TimeLimit), if_given()] = None
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
        replay_capacity: Transitions that are kept: 600k in sac and 1M in drqv2 if not given; never more than the run
            has.
        keep_replay: Keep the files of the replay when a run is done. Without them it takes far less of the disk, and
            cannot be made longer.
    """

    value_critic: Annotated[ValueCritic | None, one_of(ValueCritic), if_given()] = None
    hidden_units: WholeIfGiven = None
    batch_size: WholeIfGiven = None
    seed_frames: FramesIfGiven = None
    replay_capacity: CountIfGiven = None
    keep_replay: bool = True


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
    extrinsic_entropy: TruthIfGiven = None
    updates_per_step: NumberIfGiven = None


@dataclass(frozen=True)
class DrQv2Options:
    """Of drqv2 alone.

    Attributes:
        rendering: Quality of pictures: faithful (what everyone draws), light (nearly the same, several times faster) or
            fast (no shadows, reflections or smooth edges). Without it faithful.
        goal_marker: Show a dot where the goal is, in pictures of metaworld/...; so it is in Meta-World.
        n_step: Steps of a return; 3, and 1 for walkers, if not given.
        action_noise: Standard deviation of actions, such as 0.2; or one that goes from a number to another over so many
            steps, such as 1 0.1 500k. Without it 0.2 with a bonus and in Meta-World; else it falls from 1 to 0.1, over
            100k, 500k or 2M steps by task.
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

    rendering: Annotated[Rendering | None, one_of(Rendering), if_given()] = None
    goal_marker: TruthIfGiven = None
    n_step: WholeIfGiven = None
    action_noise: NoiseIfGiven = None
    return_injection: Annotated[ReturnInjection | None, one_of(ReturnInjection), if_given()] = None
    curiosity_pair: Annotated[CuriosityPair | None, one_of(CuriosityPair), if_given()] = None
    bonus_batch_size: WholeIfGiven = None
    beta_decay: NumberIfGiven = None
    normalize_reward: TruthIfGiven = None
    encoder_precision: Annotated[Precision | None, one_of(Precision), if_given()] = None


class AgentOptions(NamedTuple):
    """All groups."""

    a2c: A2COptions
    sac_and_drqv2: OffPolicyOptions
    sac: SACOptions
    drqv2: DrQv2Options

    @property
    def names(self) -> list[str]:
        """Of the options, as fields."""
        return [field.name for group in self for field in dataclasses.fields(group)]

    @property
    def whose(self) -> dict[str, tuple[str, ...]]:
        """The agents of each option, as a field, that is not as it is without."""
        return {
            field.name: tuple(title.split("_and_"))
            for title, group in self._asdict().items()
            for field in dataclasses.fields(group)
            if getattr(group, field.name) != field.default
        }

    def settings(self, agent: str) -> dict[str, Any]:
        """Give what an agent's settings deviate in, by their names there."""
        if agent == "a2c":
            return self._a2c_settings()
        off_policy = dataclasses.asdict(self.sac_and_drqv2)
        del off_policy["keep_replay"]  # which the run's directory heeds
        if agent == "sac":
            return {**off_policy, **dataclasses.asdict(self.sac)}
        drqv2 = dataclasses.asdict(self.drqv2)
        del drqv2["rendering"], drqv2["goal_marker"]  # which the environment heeds
        drqv2["normalizes_reward"] = drqv2.pop("normalize_reward")
        return {**off_policy, **drqv2}

    def _a2c_settings(self) -> dict[str, Any]:
        mine = self.a2c
        return {
            "injection": mine.injection,
            "time_limit": mine.time_limit,
            "keeps_extrinsic_critic": mine.keep_extrinsic_critic,
            "environments": 16 if mine.environments is None else mine.environments,
            **({} if mine.bonus_features == "auto" else {"position_features": mine.bonus_features == "position"}),
        }


def with_numbers(settings: AgentSettings, texts: Iterable[str], options: Iterable[str], *, agent: str) -> AgentSettings:
    """Set numbers of an agent by their names.

    Args:
        settings: Of the agent.
        texts: Such as discount=0.97.
        options: Names that have an option of their own, which alone sets them.
        agent: Its name.
    """
    fields = dataclasses.fields(settings)
    numbers = {field.name: field.default for field in fields if type(field.default) in (int, float)}
    free = [name for name in numbers if name not in options]
    asked: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number:
            raise ValueError(f"--set must be NAME=NUMBER, got {text!r}")
        if name in numbers and name not in free:
            raise ValueError(f"--set {text}: {name} has an option of its own, {flag(name)}")
        if name not in free:
            raise ValueError(f"--set {text}: the agent {agent} has no {name}; it has {', '.join(free)}")
        if name in asked:
            raise ValueError(f"--set has {name} more than once")
        try:
            asked[name] = (whole_of if isinstance(numbers[name], int) else number_of)(number)
        except ValueError as error:
            raise ValueError(f"--set {text}: {error}") from None
    changes: dict[str, Any] = asked
    return dataclasses.replace(settings, **changes)


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
