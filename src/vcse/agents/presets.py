"""Settings of an agent as a reading asks for them, with deviations where they are named."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from vcse.bonuses.readings import NormalizerName
from vcse.bonuses.registry import BonusChoice, bonus_entry
from vcse.settings import AgentSettings, Reading, described

S = TypeVar("S", bound=AgentSettings)
# Settings of the bonus that every agent takes beside those of its own.
OF_BONUS = ("k", "log_offset", "value_normalization")
# What SE is divided by where there is a replay: the paper has a running mean, which the release gets wrong.
NORMALIZER_OF_SE: dict[str, NormalizerName | None] = {"release": None, "paper": "running-mean", "clean": "running-mean"}


class Preset(NamedTuple):
    """What a reading says of a bonus and of the settings of its agent; what it does not name has its default."""

    bonus_reading: str  # of the bare functions: paper, clean, release-a2c, ...
    k: int
    settings: Mapping[str, Any]
    normalizer: NormalizerName | None = None  # what the reward of SE is divided by; None: as the reading says


def with_deviations(settings: type[S], preset: Preset, bonus: str, deviations: Mapping[str, Any]) -> S:
    """Return a preset with deviations; those that the bonus does not heed are not recorded.

    Otherwise a run without a bonus would count as another run, whatever is asked of the bonuses beside it.

    Args:
        settings: The class.
        preset: What a reading says.
        bonus: Its name.
        deviations: By name; None is as the reading says.
    """
    known = [field.name for field in dataclasses.fields(settings) if field.name != "bonus"]
    for name in deviations:
        if name not in known and name not in OF_BONUS:
            raise ValueError(f"setting {name!r} does not exist; there are {', '.join([*OF_BONUS, *known])}")
    named = {name: value for name, value in deviations.items() if value is not None and heeds(bonus, name, settings)}
    choice = BonusChoice(
        name=bonus,
        reading=preset.bonus_reading,
        k=named.pop("k", preset.k),
        log_offset=named.pop("log_offset", None),
        value_normalization=named.pop("value_normalization", "batch"),
        normalizer=preset.normalizer,
    )
    return settings(bonus=choice, **{**preset.settings, **named})


def plain_settings(settings: type[S], *, k: int) -> Callable[..., S]:
    """Return `settings_for` of an agent whose settings do not follow from the reading, only how its bonus is computed.

    Nothing of such an agent was released: there `release`, which is what runs have if nothing is said, is the paper's.

    Args:
        settings: The class.
        k: Which neighbour bonuses look at, where they look at any.
    """

    def settings_for(bonus: str, reading: Reading = "release", *, task: str = "", **deviations: Any) -> S:
        del task  # nothing follows from it
        preset = Preset(bonus_reading="paper" if reading == "release" else reading, k=k, settings={})
        return with_deviations(settings, preset, bonus, deviations)

    return settings_for


def heeds(bonus: str, name: str, settings: type[AgentSettings]) -> bool:
    """Whether a setting makes a difference with a bonus."""
    entry = bonus_entry(bonus)
    if name in ("log_offset", "value_normalization"):
        return name in entry.heeds
    about = described(settings).get(name)
    heeded_by = "paying" if name == "k" else "all" if about is None else about.heeded_by
    return heeded_by == "all" or (entry.pays if heeded_by == "paying" else "values" in entry.needs)


def check_reading(agent: str, bonus: str, reading: str, readings: tuple[str, ...]) -> None:
    """Refuse a bonus that does not exist, and a reading that an agent does not have."""
    bonus_entry(bonus)
    if reading not in readings:
        raise ValueError(f"reading must be one of {', '.join(readings)} for {agent}, got {reading!r}")
