"""Settings of an agent as a reading asks for them, with deviations where they are named."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from vcse.bonuses.readings import NormalizerName
from vcse.bonuses.registry import BonusChoice, bonus_entry
from vcse.settings import AgentSettings, Reading, described

S = TypeVar("S", bound=AgentSettings)
# Settings of the bonus that every agent accepts in addition to its own.
OF_BONUS = ("k", "log_offset", "value_normalization", "scaling")
# What the reward of SE is divided by, where a reading does not leave that to the bonus.
NORMALIZERS: dict[str, NormalizerName] = {"recommended": "none"}  # but for the scaling of every bonus
# Where there is a replay: the paper has a running mean, which the release gets wrong.
NORMALIZERS_OF_REPLAY: dict[str, NormalizerName] = {**NORMALIZERS, "paper": "running-mean", "clean": "running-mean"}
RECOMMENDED_BETA = 0.02  # one standard deviation of a bonus, in units of the task's reward
MEAN_ZERO = "--reading recommended (or --scaling standardized) has a mean of 0"  # against a bonus that pays for ending


def with_deviations(
    settings: type[S],
    bonus: str,
    reading: Reading,
    chosen: Mapping[str, Any],
    deviations: Mapping[str, Any],
    *,
    k: int,
    release: str,
    normalizers: Mapping[str, NormalizerName] = NORMALIZERS,
) -> S:
    """Return a reading's settings with deviations; those that do not affect the bonus are not recorded.

    Otherwise a run without a bonus would count as a different run, depending on settings of other bonuses.

    The recommended reading is the textbook's, in which a duplicate earns log(0 + 1) = 0, and the mean of all rewards
    is 0 and their scale 1: so neither ending an episode nor continuing it is rewarded.

    Args:
        settings: The class.
        bonus: Its name.
        reading: As it is asked for.
        chosen: What it says of settings; the others have their defaults.
        deviations: By name; None is as in the reading.
        k: What it says of the neighbour that bonuses look at, where they look at any.
        release: What the agent's release is called among the readings of the bare functions.
        normalizers: What the reward of SE is divided by, for some readings.
    """
    known = [field.name for field in dataclasses.fields(settings) if field.name != "bonus"]
    for name in deviations:
        if name not in known and name not in OF_BONUS:
            raise ValueError(f"setting {name!r} does not exist; there are {', '.join([*OF_BONUS, *known])}")
    named = {name: value for name, value in deviations.items() if value is not None}
    others = [name for name, value in named.items() if value]
    named = {name: value for name, value in named.items() if has_effect(bonus, name, settings, others=others)}
    entry, is_recommended = bonus_entry(bonus), reading == "recommended"
    choice = BonusChoice(
        name=bonus,
        reading={"release": release, "recommended": "clean"}.get(reading, reading),
        k=named.pop("k", k if entry.has_neighbors else 1),
        log_offset=named.pop("log_offset", 1.0 if is_recommended and "log_offset" in entry.uses else None),
        value_normalization=named.pop("value_normalization", "batch"),
        normalizer=normalizers.get(reading) if bonus == "se" else None,
        scaling=named.pop("scaling", "standardized" if is_recommended and entry.pays else "raw"),
    )
    return settings(bonus=choice, **{**chosen, **named})


def plain_settings(settings: type[S], *, k: int) -> Callable[..., S]:
    """Return `settings_for` of an agent whose settings do not follow from the reading, only how its bonus is computed.

    Nothing of such an agent was released: there `release`, the default of runs, is the paper's.

    Args:
        settings: The class.
        k: Which neighbour bonuses look at, where they look at any.
    """

    def settings_for(bonus: str, reading: Reading = "release", *, task: str = "", **deviations: Any) -> S:
        del task  # nothing follows from it
        return with_deviations(settings, bonus, reading, {}, deviations, k=k, release="paper")

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
