"""DeepMind Control: DrQ-v2 from pixels, SAC from states."""

from functools import partial
from typing import Any

from vcse.studies.catalog.methods import MATCHED, NONE, SE, VCSE, our_claim, weighted
from vcse.studies.study import Claim, Method, Study, Task, tasks_of

_PIXEL_TASKS = (
    "hopper_stand",
    "walker_walk_sparse",
    "walker_walk",
    "cheetah_run_sparse",
    "cartpole_swingup_sparse",
    "pendulum_swingup",
)
_DECAYS = ("1e-5", "2.5e-5", "5e-5")
_ON_HOPPER_STAND = ("dmc-pixels/hopper_stand",)
_TWO_PIXEL_TASKS = ("hopper_stand", "walker_walk")


def _no_bonus(name: str, what: str, label: str, **settings: Any) -> Method:
    """Return the agent alone, with settings that it usually has with a bonus."""
    return Method(name, "none", f"no bonus, with {what}", settings=settings, label=f"no bonus, {label}")


_drqv2_study = partial(Study, agent="drqv2", metric="eval_return_mean")
_sac_study = partial(Study, agent="sac", metric="eval_return_mean")

STUDIES = (
    _drqv2_study(
        name="dmc-pixels",
        title="DrQ-v2 on six DeepMind Control tasks",
        source="Figure 5, Section 5.2, DeepMind Control",
        tasks=tasks_of("dmc-pixels", _PIXEL_TASKS, 500_000),
        methods=(NONE, SE, VCSE),
        seeds=16,
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than DrQ-v2 alone.", "vcse", "none"),
            Claim("SE hurts where rewards are dense.", "none", "se", tasks=("dmc-pixels/walker_walk",)),
        ),
        notes=(
            "n, batch size and noise of DrQ-v2 alone are those of its authors for each task; the two sparse tasks have "
            "those of the tasks that they are made of.",
        ),
    ),
    _drqv2_study(
        name="dmc-pixels-rcse",
        title="Conditioning on the reward instead of the value",
        source="Figure 7b, Section 5.3, the second of three ablations",
        tasks=tasks_of("dmc-pixels", _TWO_PIXEL_TASKS, 500_000),
        methods=(NONE, SE, Method("rcse", "rcse", "reward-conditional state entropy"), VCSE),
        seeds=8,
        claims=(Claim("The value is a better condition than the reward.", "vcse", "rcse"),),
        figure="aggregate",
        notes=("The paper does not name its two tasks; these are ours.",),
    ),
    _drqv2_study(
        name="dmc-pixels-batch",
        title="A larger batch for the bonus",
        source="Figure 7c, Section 5.3, the third of three ablations",
        tasks=tasks_of("dmc-pixels", _TWO_PIXEL_TASKS, 500_000),
        methods=(
            VCSE,
            Method(
                "vcse-batch-1024",
                "vcse",
                "VCSE whose neighbours are looked for among 1024 states",
                settings={"bonus_batch_size": 1024},
                label="VCSE, batch of 1024",
            ),
        ),
        seeds=8,
        claims=(Claim("The batch size of the bonus does not matter.", "vcse-batch-1024", "vcse", within=0.0),),
        figure="aggregate",
        notes=(
            "The paper does not name its two tasks; these are ours. k stays at 12, and the curiosity module learns "
            "from the batch of the critics alone.",
        ),
    ),
    _drqv2_study(
        name="dmc-pixels-beta-se",
        title="DrQ-v2 and state entropy with other weights",
        source="Figure 15, appendix, the weight of SE on Walker Walk",
        tasks=tasks_of("dmc-pixels", ("walker_walk",), 500_000),
        methods=(NONE, weighted("se", 0.1), weighted("se", 0.01), weighted("se", 0.001)),
        seeds=8,
        claims=(
            Claim("SE is below DrQ-v2 alone at every weight: 0.1.", "none", "se-beta-0.1"),
            Claim("SE is below DrQ-v2 alone at every weight: 0.01.", "none", "se-beta-0.01"),
            Claim("SE is below DrQ-v2 alone at every weight: 0.001.", "none", "se-beta-0.001"),
            Claim("SE is better the smaller its weight: 0.01 than 0.1.", "se-beta-0.01", "se-beta-0.1"),
            Claim("SE is better the smaller its weight: 0.001 than 0.01.", "se-beta-0.001", "se-beta-0.01"),
        ),
    ),
    _drqv2_study(
        name="dmc-pixels-decay",
        title="State entropy with a decaying weight",
        source="Figure 17, appendix, decaying the weight of SE",
        tasks=tasks_of("dmc-pixels", _PIXEL_TASKS, 500_000),
        methods=(
            SE,
            *(
                Method(
                    f"se-decay-{decay}",
                    "se",
                    f"β decays by {decay} each step",
                    settings={"beta_decay": float(decay)},
                    label=f"SE, β decays by {decay}",
                )
                for decay in _DECAYS
            ),
            VCSE,
        ),
        seeds=8,
        claims=(
            *(Claim(f"Decay does not bring SE up to VCSE: {decay}.", "vcse", f"se-decay-{decay}") for decay in _DECAYS),
            *(
                Claim(f"Decay helps SE on Hopper Stand: {decay}.", f"se-decay-{decay}", "se", _ON_HOPPER_STAND)
                for decay in _DECAYS
            ),
        ),
        notes=("The paper shows the best of several schedules per task and lists none; these are ours, all shown.",),
    ),
    _drqv2_study(
        name="dmc-pixels-controls",
        title="Effects of the value and of action noise, apart",
        source="ours: in the paper, a bonus and other noise of actions come together",
        tasks=tasks_of("dmc-pixels", ("hopper_stand", "pendulum_swingup"), 250_000),
        methods=(
            VCSE,
            MATCHED,
            _no_bonus(
                "none-noise-0.2", "the noise of actions that DrQ-v2 has with one", "noise of 0.2", action_noise=0.2
            ),
            _no_bonus(
                "none-noise-500k",
                "noise that falls over 500,000 steps instead of 100,000",
                "noise falls slowly",
                action_noise=(1.0, 0.1, 500_000),
            ),
            NONE,
        ),
        seeds=8,
        claims=(
            our_claim("Conditioning on the value helps.", "vcse", "se-matched"),
            our_claim("A bonus helps beyond what its noise does.", "vcse", "none-noise-0.2"),
            our_claim("Without a bonus, noise that falls from 1 helps.", "none", "none-noise-0.2"),
            our_claim("Without a bonus, noise that falls more slowly helps.", "none-noise-500k", "none"),
        ),
    ),
    _sac_study(
        name="dmc-states",
        title="SAC on DeepMind Control from states",
        source="Figure 19, appendix, DeepMind Control from states",
        tasks=(
            Task("dmc/hopper_stand", 200_000, (50_000, 100_000, 150_000)),
            Task("dmc/hopper_hop", 500_000, (100_000, 200_000, 300_000)),
            Task("dmc/cheetah_run_sparse", 500_000, (100_000, 250_000)),
            Task("dmc/walker_walk_sparse", 500_000, (100_000, 250_000)),
        ),
        methods=(NONE, SE, VCSE),
        seeds=16,
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than SAC alone.", "vcse", "none"),
        ),
        notes=(
            "The paper does not name its four tasks; the released figures are of Hopper Stand, to 200,000 frames, and "
            "of Hopper Hop. Cheetah Run Sparse and Walker Walk Sparse are our choice.",
            "Without a bonus SAC learns its temperature; with one it is 0.001, as in paper and release.",
        ),
    ),
    _sac_study(
        name="dmc-states-controls",
        title="Effects of the value and of the fixed temperature, apart",
        source="ours: in the paper, a bonus and a fixed temperature come together",
        tasks=(Task("dmc/hopper_stand", 200_000, (50_000, 100_000, 150_000)),),
        methods=(
            VCSE,
            MATCHED,
            _no_bonus(
                "none-temperature-0.001",
                "the temperature that SAC has with one",
                "temperature 0.001",
                temperature=0.001,
            ),
            NONE,
        ),
        seeds=8,
        claims=(
            our_claim("Conditioning on the value helps.", "vcse", "se-matched"),
            our_claim("A bonus helps beyond what its temperature does.", "vcse", "none-temperature-0.001"),
            our_claim("Without a bonus a learned temperature helps.", "none", "none-temperature-0.001"),
        ),
    ),
)
