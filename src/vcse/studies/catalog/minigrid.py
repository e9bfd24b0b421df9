"""A2C on MiniGrid: the paper's studies, and two of our own."""

from functools import partial
from typing import Any

from vcse.envs.minigrid.crossing import map_number
from vcse.settings import Reading
from vcse.studies.catalog.methods import MATCHED, NONE, SE, VCSE, our_claim, weighted
from vcse.studies.study import Claim, Method, Study, Task, ZeroClaim

SIMPLE_CROSSING = "SimpleCrossingS9N1"
# The map of the visits: a wall in the middle that opens away from the start.
CROSSED_WALL = 4
CROSSED_MAP = map_number("vertical", CROSSED_WALL, 5)

_LENGTHS = "The paper's text does not say how long the runs are; the lengths are ours."
_SE_OF_POSITIONS = (
    "SE is the release's, which looks for neighbours among the last 10,000 states. Nearly every position occurs there "
    "many times over, so it pays next to nothing once learning is under way, and hardly differs from no bonus."
)
_MINIGRID_TASKS = (
    Task("minigrid/LavaGapS7", 200_000, (100_000,)),
    Task("minigrid/Empty-16x16", 250_000, (100_000,)),
    Task("minigrid/DoorKey-6x6", 500_000, (250_000,)),
    Task("minigrid/DoorKey-8x8", 3_000_000, (1_000_000,)),
    Task("minigrid/Unlock", 500_000, (250_000,)),
    Task(f"minigrid/{SIMPLE_CROSSING}", 500_000, (250_000,)),
)
_CROSSING = _MINIGRID_TASKS[-1:]
_SHORT_TASKS = tuple(task for task in _MINIGRID_TASKS if task.frames <= 500_000)


def _of_positions(name: str, explanation: str, label: str = "", **values: str) -> Method:
    """Return a bonus of the agent's positions, and whose values it looks at where these are not the critic's."""
    bonus, _, _ = name.partition("-")
    return Method(name, bonus, explanation, settings={**values, "bonus_features": "position"}, label=label)


def _in_the_reward(reading: Reading) -> tuple[Method, ...]:
    """Return VCSE in a reading where the bonus joins the reward, with a smaller weight, and joining the advantage."""
    variants: tuple[tuple[str, str, dict[str, Any], str], ...] = (
        ("", ": the bonus joins the reward, β = 0.005", {}, ""),
        ("-beta-0.00125", ": the bonus joins the reward, β = 0.00125", {"beta": 0.00125}, ", β = 0.00125"),
        ("-advantage", ", but the bonus joins the advantage", {"injection": "after_gae"}, ", in the advantage"),
    )
    return tuple(
        Method(
            f"vcse-{reading}{name}", "vcse", reading + explanation, reading, settings, label=f"VCSE, {reading}{label}"
        )
        for name, explanation, settings, label in variants
    )


_a2c_study = partial(Study, agent="a2c", metric="success_rate")  # unless it says otherwise

PAPER_STUDIES = (
    _a2c_study(
        name="minigrid",
        title="A2C on six MiniGrid tasks",
        source="Figure 2, Section 5.1",
        tasks=_MINIGRID_TASKS,
        methods=(NONE, SE, VCSE),
        seeds=16,
        claims=(
            Claim("VCSE solves the tasks faster than SE.", "vcse", "se"),
            Claim("VCSE solves the tasks faster than A2C alone.", "vcse", "none"),
            Claim(
                "On LavaGapS7 after 100K frames VCSE is ahead of SE; in the paper by 88.8 % to 13.9 %.",
                "vcse",
                "se",
                tasks=("minigrid/LavaGapS7",),
                at_frame=100_000,
            ),
            # The paper has no such control; it may be trained beside the study's own methods.
            our_claim("Conditioning on the value helps.", "vcse", "se-matched", where_run=True),
        ),
        beside=(
            Method(
                "vcse-reward",
                "vcse",
                "VCSE that joins the reward before advantages are computed",
                settings={"injection": "reward"},
                label="VCSE in the reward",
            ),
        ),
        notes=(_LENGTHS,),
    ),
    _a2c_study(
        name="minigrid-beta-se",
        title="State entropy with other weights",
        source="Figure 4, Section 5.1, on the weight of SE",
        tasks=_CROSSING,
        methods=(NONE, weighted("se", 0.05), weighted("se", 0.005), weighted("se", 0.0005), VCSE),
        seeds=8,
        claims=(
            Claim("A weight of 0.05 makes SE ignore the task.", "se-beta-0.005", "se-beta-0.05"),
            Claim("A weight of 0.0005 makes SE slower than 0.005.", "se-beta-0.005", "se-beta-0.0005"),
            Claim("No weight brings SE up to VCSE: 0.05.", "vcse", "se-beta-0.05"),
            Claim("No weight brings SE up to VCSE: 0.005.", "vcse", "se-beta-0.005"),
            Claim("No weight brings SE up to VCSE: 0.0005.", "vcse", "se-beta-0.0005"),
            Claim("At no weight is SE better than A2C alone: 0.05.", "none", "se-beta-0.05"),
            Claim("At no weight is SE better than A2C alone: 0.005.", "none", "se-beta-0.005"),
            Claim("At no weight is SE better than A2C alone: 0.0005.", "none", "se-beta-0.0005"),
        ),
        notes=("The paper shows SE alone; A2C without a bonus and VCSE are beside it here.", _LENGTHS),
    ),
    _a2c_study(
        name="minigrid-beta-vcse",
        title="VCSE with other weights",
        source="Figure 16, appendix, on the weight of VCSE",
        tasks=_CROSSING,
        methods=(NONE, weighted("vcse", 0.05), weighted("vcse", 0.005), weighted("vcse", 0.0005)),
        seeds=8,
        claims=(
            Claim("VCSE is better than A2C alone for every weight: 0.05.", "vcse-beta-0.05", "none"),
            Claim("VCSE is better than A2C alone for every weight: 0.005.", "vcse-beta-0.005", "none"),
            Claim("VCSE is better than A2C alone for every weight: 0.0005.", "vcse-beta-0.0005", "none"),
            Claim("The weight hardly matters: 0.05 or 0.005.", "vcse-beta-0.005", "vcse-beta-0.05", within=0.0),
            Claim("The weight hardly matters: 0.005 or 0.0005.", "vcse-beta-0.005", "vcse-beta-0.0005", within=0.0),
        ),
        notes=("The paper does not list its weights; these are those of its figure for SE.", _LENGTHS),
    ),
    _a2c_study(
        name="minigrid-k",
        title="VCSE with k = 3, 5 and 7",
        source="Figure 14, appendix, on k",
        tasks=_CROSSING,
        methods=tuple(
            Method(f"vcse-k{k}", "vcse", f"the {ordinal} neighbour", settings={"k": k}, label=f"VCSE, k = {k}")
            for k, ordinal in ((3, "third"), (5, "fifth"), (7, "seventh"))
        ),
        seeds=8,
        metric="return_mean",
        claims=(
            Claim("Performance falls as k grows: 3 to 5.", "vcse-k3", "vcse-k5"),
            Claim("Performance falls as k grows: 5 to 7.", "vcse-k5", "vcse-k7"),
            Claim("Performance falls as k grows: 3 to 7.", "vcse-k3", "vcse-k7"),
        ),
        notes=(
            "k does not count the point itself. The released code has 3 where the paper's text says 5.",
            _LENGTHS,
        ),
    ),
    _a2c_study(
        name="minigrid-values",
        title="The critic's value against exact policy evaluation",
        source="Figure 7a, Section 5.3, the first of three ablations",
        tasks=(Task(f"minigrid-table/{SIMPLE_CROSSING}", 500_000, (250_000,)),),
        methods=(
            _of_positions("none", "no bonus"),
            _of_positions("se", "SE of positions"),
            _of_positions("vcse", "VCSE of positions, with the critic's value", "VCSE, critic's value"),
            _of_positions(
                "vcse-exact",
                "VCSE of positions, with the exact value at each step of an episode",
                "VCSE, exact value at each step",
                values="exact",
            ),
            _of_positions(
                "vcse-exact-stationary",
                "VCSE of positions, with the exact value of an episode without a time limit",
                "VCSE, exact value without time limit",
                values="exact-stationary",
            ),
        ),
        seeds=16,
        claims=(
            Claim("With exact values VCSE is best: better than with the critic's.", "vcse-exact", "vcse"),
            Claim("With exact values VCSE is better than SE.", "vcse-exact", "se"),
            Claim("With the critic's values VCSE is better than SE.", "vcse", "se"),
            our_claim(
                "Exact values without a time limit are better than those at each step of an episode.",
                "vcse-exact-stationary",
                "vcse-exact",
            ),
            our_claim(
                "Exact values without a time limit are better than the critic's.", "vcse-exact-stationary", "vcse"
            ),
        ),
        notes=(
            _LENGTHS,
            _SE_OF_POSITIONS,
            "The two claims about values without a time limit were added after the runs had been looked at.",
        ),
    ),
    _a2c_study(
        name="minigrid-heatmap",
        title="Where the agents go",
        source="Figure 8, Section 5.3, the heat map",
        tasks=(Task(f"minigrid-table/{SIMPLE_CROSSING}-map{CROSSED_MAP}", 100_000),),
        methods=(NONE, SE, VCSE, MATCHED),
        seeds=8,
        metric="beyond_wall_share",
        claims=(
            Claim("SE stays in front of the wall; VCSE passes it and reaches the goal.", "vcse", "se"),
            our_claim("The value is what takes VCSE through the wall.", "vcse", "se-matched"),
        ),
        figure="visits",
        notes=(
            "The paper does not say which map; this one has a vertical wall in the middle that opens away from the "
            "start. Claims are judged by the share of visits beyond the wall.",
        ),
        visits_every_frames=10_000,
    ),
    _a2c_study(
        name="minigrid-full",
        title="A2C on fully observable MiniGrid",
        source="Figure 18, appendix, fully observable MiniGrid",
        tasks=(
            Task("minigrid-full/LavaGapS7", 200_000, (100_000,)),
            Task("minigrid-full/Empty-16x16", 250_000, (100_000,)),
            Task("minigrid-full/DoorKey-8x8", 500_000, (250_000,)),
            Task(f"minigrid-full/{SIMPLE_CROSSING}", 500_000, (250_000,)),
        ),
        methods=(NONE, SE, VCSE, MATCHED),
        seeds=16,
        claims=(
            Claim("VCSE solves the tasks faster than SE.", "vcse", "se"),
            Claim("VCSE solves the tasks faster than A2C alone.", "vcse", "none"),
            our_claim("Conditioning on the value helps.", "vcse", "se-matched"),
        ),
        notes=(
            "The paper does not name its four tasks; these are ours. The map of DoorKey-6x6 is smaller than the "
            "encoder needs. The bonus sees the agent's position; k, weight and all else are those of the agent's view.",
            f"{_LENGTHS} DoorKey-8x8 is shorter here than with the agent's view, where it has 3,000,000 frames.",
            _SE_OF_POSITIONS,
            "The control, VCSE without value, searches the batch as VCSE does; the paper has no such control.",
        ),
    ),
)

OWN_STUDIES = (
    _a2c_study(
        name="minigrid-readings",
        title="The paper's text, the released code and the textbook",
        source="ours: the paper's text and the released code differ",
        tasks=tuple(
            task for task in _MINIGRID_TASKS if task.name.endswith(("LavaGapS7", "DoorKey-6x6", SIMPLE_CROSSING))
        ),
        methods=(
            NONE,
            Method("vcse-release", "vcse", "release: the bonus joins the advantage", label="VCSE, release"),
            Method(
                "vcse-release-reward",
                "vcse",
                "release, but the bonus joins the reward, β = 0.005",
                settings={"injection": "reward"},
                label="VCSE, release, in the reward",
            ),
            Method(
                "vcse-release-reward-beta-0.00125",
                "vcse",
                "release, but the bonus joins the reward, β = 0.00125",
                settings={"injection": "reward", "beta": 0.00125},
                label="VCSE, release, in the reward, β = 0.00125",
            ),
            *_in_the_reward("paper"),
            *_in_the_reward("clean"),
        ),
        seeds=8,
        claims=(
            our_claim("The released code does better than the paper's text.", "vcse-release", "vcse-paper"),
            our_claim(
                "In the release, joining the advantage does better than the reward.",
                "vcse-release",
                "vcse-release-reward",
            ),
            *(
                our_claim(f"A smaller weight suits a bonus that joins the reward: {name}.", f"{arm}-beta-0.00125", arm)
                for name, arm in (("release", "vcse-release-reward"), ("paper", "vcse-paper"), ("clean", "vcse-clean"))
            ),
            our_claim("The paper's text is better than A2C alone.", "vcse-paper", "none"),
            our_claim("The textbook's estimator is better than A2C alone.", "vcse-clean", "none"),
            our_claim("The textbook's estimator does better than the paper's text.", "vcse-clean", "vcse-paper"),
        ),
        notes=("The claim that the textbook's estimator does better was added after the runs had been looked at.",),
    ),
    _a2c_study(
        name="minigrid-controls",
        title="VCSE against the same bonus without the value",
        source="ours: the paper has no such control",
        tasks=_SHORT_TASKS,
        methods=(
            VCSE,
            MATCHED,
            Method("vcse-log1p", "vcse", "VCSE with log(1 + ε)", settings={"log_offset": 1.0}),
            Method(
                "se-matched-log1p",
                "se-matched",
                "VCSE with log(1 + ε) and without the value",
                settings={"log_offset": 1.0},
                label="VCSE without value, with log(1 + ε)",
            ),
            Method(
                "vcse-running",
                "vcse",
                "VCSE with running estimates instead of the batch's to normalise values",
                settings={"value_normalization": "running"},
                label="VCSE with running normalization",
            ),
        ),
        seeds=8,
        claims=(
            our_claim("Conditioning on the value helps.", "vcse", "se-matched"),
            our_claim("Conditioning on the value helps with log(1 + ε).", "vcse-log1p", "se-matched-log1p"),
            our_claim("The offset of 1e-5 helps, with the value.", "vcse", "vcse-log1p"),
            our_claim("The offset of 1e-5 helps, without the value.", "se-matched", "se-matched-log1p"),
            Claim(
                "Normalising values by running or by batch statistics makes no difference.",
                "vcse-running",
                "vcse",
                within=0.0,
            ),
            ZeroClaim(
                "Until the first reward VCSE is SE: no neighbour is decided by the value.",
                "vcse",
                "decided_by_value_share",
            ),
        ),
        notes=(
            "log(1 + ε) changes more than the offset: with the same weight the bonus is also much smaller, and hardly "
            "ever negative. What each of them does is not separated.",
            "VCSE and VCSE without value have the same settings and seeds here as in the study minigrid: where both "
            "were run, this is not a second sample.",
        ),
    ),
)
