"""Meta-World: DrQ-v2, and Masked World Models, whose agent does not exist yet."""

from vcse.studies.catalog.methods import NONE, SE, VCSE
from vcse.studies.study import Claim, Study, tasks_of

_MWM_TASKS = ("box-close", "handle-pull-side", "lever-pull", "drawer-open")
_METAWORLD_TASKS = ("door-open", "drawer-open", "faucet-open", "window-open", "button-press", "faucet-close")

STUDIES = (
    Study(
        name="metaworld",
        title="DrQ-v2 on six Meta-World tasks",
        source="Section 5.2, Meta-World",
        agent="drqv2",
        tasks=tasks_of("metaworld", _METAWORLD_TASKS, 250_000),
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="eval_success_rate",
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than DrQ-v2 alone.", "vcse", "none"),
            Claim("SE hurts several tasks.", "none", "se"),
            Claim(
                "On Door Open after 100K frames VCSE is ahead of DrQ-v2 alone; in the paper by 85 % to 0 %.",
                "vcse",
                "none",
                tasks=("metaworld/door-open",),
                at_frame=100_000,
            ),
        ),
        notes=(
            "The paper quotes 100,000 frames and does not say where its curves end; the length is ours. Pictures are "
            "84 x 84, stacked and repeated as on DeepMind Control; the task's reward is divided by a running mean.",
        ),
    ),
    Study(
        name="metaworld-mwm",
        title="Masked World Models on four Meta-World tasks",
        source="appendix, model-based agents",
        agent="mwm",
        tasks=tasks_of("metaworld", _MWM_TASKS, 500_000),
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="success_rate",
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than MWM alone.", "vcse", "none"),
            Claim("SE hurts some tasks.", "none", "se"),
        ),
        missing=("the agent mwm",),
    ),
)
