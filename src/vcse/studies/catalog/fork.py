"""A2C on the fork: whether conditioning on the value helps, and when."""

import dataclasses

from vcse.envs.fork.world import TASKS
from vcse.studies.catalog.methods import MATCHED, NONE, VCSE, our_claim
from vcse.studies.study import Study, tasks_of

STUDIES = (
    Study(
        name="value-fork",
        title="When the value helps: a wide room without reward beside a narrow corridor that pays",
        source="ours: the paper's argument, in the smallest worlds in which it must show",
        agent="a2c",
        metric="success_rate",
        tasks=tasks_of("fork", tuple(TASKS), 100_000),
        methods=tuple(dataclasses.replace(method, reading="recommended") for method in (NONE, VCSE, MATCHED)),
        seeds=16,
        claims=(our_claim("Conditioning on the value helps.", "vcse", "se-matched"),),
        notes=(
            "Both bonuses have the same k, log(1 + ε), mean 0 and equal scale: they differ in the value alone.",
            "ratio: cells of the room over those of the corridor; first: the first of its 12 cells that pays.",
        ),
    ),
)
