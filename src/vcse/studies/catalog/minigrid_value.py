"""What the value adds to the bonus in MiniGrid, once mean and scale of the bonus are held equal. Pre-registered."""

from dataclasses import replace
from functools import partial
from typing import Any

from vcse.studies.catalog.methods import MATCHED, NONE, VCSE, our_claim
from vcse.studies.catalog.minigrid import PAPER_STUDIES
from vcse.studies.study import Method, Study, Task

FIRST_SEED, SEEDS = 100, 56  # fresh: no run of this agent before them has any of these
DOORKEY_FRAMES = 1_000_000  # of DoorKey-8x8, a third of its length in the study minigrid
STEP_COST = 0.02
LAVA = "minigrid/LavaGapS7"

_CENTERED = {"scaling": "centered"}
_STANDARDIZED = {"scaling": "standardized", "log_offset": 1.0, "beta": 0.02}
_COST = {"step_cost": STEP_COST}

_claim = partial(our_claim, paired=True)
_ALIKE: dict[str, Any] = {"within": 0.02}


def _task(task: Task) -> Task:
    """Return a task of the study minigrid as it is here."""
    if not task.name.endswith("DoorKey-8x8"):
        return task
    return replace(task, frames=DOORKEY_FRAMES, table_frames=(DOORKEY_FRAMES // 2,))


def _standardized(name: str, what: str, label: str, **values: str) -> Method:
    """Return a bonus with log(1 + ε) and of scale 1, and whose values it looks at where these are not the critic's."""
    bonus, _, _ = name.rpartition("-")
    settings = {**_STANDARDIZED, **values}
    return Method(name, bonus, f"{what} with log(1 + ε), standardized", settings=settings, label=label)


_PRIMARY = tuple(
    claim
    for how, with_value, without in (
        ("mean 0", "vcse-centered", "se-matched-centered"),
        ("mean 0 and scale 1", "vcse-standardized", "se-matched-standardized"),
    )
    for claim in (
        _claim(f"Primary: conditioning on the value helps, with bonuses of {how}.", with_value, without),
        _claim(
            f"Primary: conditioning on the value makes no difference of 2 points, with bonuses of {how}.",
            with_value,
            without,
            **_ALIKE,
        ),
    )
)
_SECONDARY = (
    _claim("VCSE is more than a step cost: better than A2C with a step cost alone.", "vcse", "none-cost"),
    _claim("A step cost alone helps.", "none-cost", "none"),
    _claim("A step cost alone helps on LavaGapS7.", "none-cost", "none", tasks=(LAVA,)),
    _claim("Mean 0 and an explicit step cost give back what VCSE has.", "vcse-centered-cost", "vcse", **_ALIKE),
    _claim("The values of other states do as well.", "vcse-permuted", "vcse-standardized", **_ALIKE),
    _claim("A critic that is never trained does as well.", "vcse-frozen", "vcse-standardized", **_ALIKE),
    _claim("VCSE is better than SE with ten times its weight.", "vcse", "se-beta-0.05"),
)

STUDY = Study(
    name="minigrid-value",
    title="What the value adds, at equal mean and scale",
    source="ours, pre-registered: docs/explanation/minigrid-value.md",
    agent="a2c",
    metric="success_rate",
    tasks=tuple(map(_task, PAPER_STUDIES[0].tasks)),
    methods=(
        NONE,
        Method(
            "none-cost",
            "none",
            "no bonus, a step cost of 0.02 in the reward",
            settings=_COST,
            label="no bonus, step cost",
        ),
        Method(
            "se-beta-0.05",
            "se",
            "SE with ten times its weight, β = 0.05",
            settings={"beta": 0.05},
            label="SE, ten times its weight",
        ),
        replace(VCSE, explanation="VCSE as released"),
        Method("vcse-centered", "vcse", "VCSE less its mean", settings=_CENTERED),
        Method(
            "vcse-centered-cost",
            "vcse",
            "VCSE less its mean, a step cost of 0.02 off the advantage",
            settings=_CENTERED | _COST,
            label="VCSE less its mean, step cost",
        ),
        replace(MATCHED, explanation="VCSE without value"),
        Method("se-matched-centered", "se-matched", "VCSE without value, less its mean", settings=_CENTERED),
        _standardized("vcse-standardized", "VCSE", "VCSE, standardized"),
        _standardized("se-matched-standardized", "VCSE without value,", "VCSE without value, standardized"),
        _standardized(
            "vcse-permuted", "VCSE with the values of other states,", "VCSE, values of other states", values="permuted"
        ),
        _standardized(
            "vcse-frozen",
            "VCSE with the values of a critic that is never trained,",
            "VCSE, critic never trained",
            values="frozen",
        ),
    ),
    seeds=SEEDS,
    first_seed=FIRST_SEED,
    claims=(*_PRIMARY, *_SECONDARY),
    notes=(
        "Question, arms, outcomes and what would count as what are in docs/explanation/minigrid-value.md, written "
        "before any of these runs.",
    ),
)
