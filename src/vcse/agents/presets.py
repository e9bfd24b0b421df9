"""Settings of an agent as a reading asks for them, with deviations where they are named."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from vcse.bonuses.readings import NormalizerName
from vcse.bonuses.registry import BonusChoice, bonus_entry
from vcse.bonuses.scaling import ScalingName
from vcse.settings import AgentSettings, Reading, described

S = TypeVar("S", bound=AgentSettings)
# Settings of the bonus that every agent accepts in addition to its own.
OF_BONUS = ("k", "log_offset", "value_normalization", "scaling")
# What SE is divided by where there is a replay: the paper has a running mean, which the release gets wrong.
NORMALIZER_OF_SE: dict[str, NormalizerName | None] = {
    "release": None,
    "paper": "running-mean",
    "clean": "running-mean",
    "recommended": "none",  # but for the scaling of every bonus
}
RECOMMENDED_BETA = 0.02  # one standard deviation of a bonus, in units of the task's reward
MEAN_ZERO = "--reading recommended (or --scaling standardized) has a mean of 0"  # against a bonus that pays for ending


class Preset(NamedTuple):
    """A reading's choices for a bonus and for the settings of its agent; the others have their defaults."""

    bonus_reading: str  # of the bare functions: paper, clean, release-a2c, ...
    k: int
    settings: Mapping[str, Any]
    normalizer: NormalizerName | None = None  # what the reward of SE is divided by; None: as in the reading
    log_offset: float | None = None  # of bonuses that use it; None: as in the reading
    scaling: ScalingName = "raw"  # mean and scale of the reward


def of_reading(reading: Reading, *, release: str) -> dict[str, Any]:
    """Return a reading's choices for every bonus, whatever the agent: fields of a `Preset`.

    The recommended one is the textbook's, in which a duplicate earns log(0 + 1) = 0, and the mean of all rewards
    is 0 and their scale 1: so neither ending an episode nor continuing it is rewarded.

    Args:
        reading: As it is chosen.
        release: What the agent's release is called among the readings of the bare functions.
    """
    if reading == "recommended":
        return {"bonus_reading": "clean", "log_offset": 1.0, "scaling": "standardized"}
    return {"bonus_reading": release if reading == "release" else reading}


def with_deviations(settings: type[S], preset: Preset, bonus: str, deviations: Mapping[str, Any]) -> S:
    """Return a preset with deviations; those that do not affect the bonus are not recorded.

    Otherwise a run without a bonus would count as a different run, depending on settings of other bonuses.

    Args:
        settings: The class.
        preset: A reading's choices.
        bonus: Its name.
        deviations: By name; None is as in the reading.
    """
    known = [field.name for field in dataclasses.fields(settings) if field.name != "bonus"]
    for name in deviations:
        if name not in known and name not in OF_BONUS:
            raise ValueError(f"setting {name!r} does not exist; there are {', '.join([*OF_BONUS, *known])}")
    named = {name: value for name, value in deviations.items() if value is not None}
    others = [name for name, value in named.items() if value]
    named = {name: value for name, value in named.items() if has_effect(bonus, name, settings, others=others)}
    entry = bonus_entry(bonus)
    choice = BonusChoice(
        name=bonus,
        reading=preset.bonus_reading,
        k=named.pop("k", preset.k if entry.has_neighbors else 1),
        log_offset=named.pop("log_offset", preset.log_offset if "log_offset" in entry.uses else None),
        value_normalization=named.pop("value_normalization", "batch"),
        normalizer=preset.normalizer,
        scaling=named.pop("scaling", preset.scaling if entry.pays else "raw"),
    )
    return settings(bonus=choice, **{**preset.settings, **named})


def plain_settings(settings: type[S], *, k: int) -> Callable[..., S]:
    """Return `settings_for` of an agent whose settings do not follow from the reading, only how its bonus is computed.

    Nothing of such an agent was released: there `release`, the default of runs, is the paper's.

    Args:
        settings: The class.
        k: Which neighbour bonuses look at, where they look at any.
    """

    def settings_for(bonus: str, reading: Reading = "release", *, task: str = "", **deviations: Any) -> S:
        del task  # nothing follows from it
        normalizer = NORMALIZER_OF_SE["recommended"] if bonus == "se" and reading == "recommended" else None
        preset = Preset(k=k, settings={}, normalizer=normalizer, **of_reading(reading, release="paper"))
        return with_deviations(settings, preset, bonus, deviations)

    return settings_for


def has_effect(bonus: str, name: str, settings: type[AgentSettings], *, others: Collection[str] = ()) -> bool:
    """Whether a setting has an effect with a bonus, where others are set too."""
    entry = bonus_entry(bonus)
    if name in ("log_offset", "value_normalization"):
        return name in entry.uses
    if name == "k":
        return entry.pays and entry.has_neighbors
    about = described(settings).get(name)
    if about is not None and about.affects_with in others:
        return True
    affected = "any bonus" if name == "scaling" else "all" if about is None else about.affects
    return affected == "all" or (entry.pays if affected == "any bonus" else "values" in entry.needs)


def check_reading(agent: str, bonus: str, reading: str, readings: tuple[str, ...]) -> None:
    """Refuse a bonus that does not exist, and a reading that an agent does not have."""
    bonus_entry(bonus)
    if reading not in readings:
        raise ValueError(f"reading must be one of {', '.join(readings)} for {agent}, got {reading!r}")
