"""DrQ-v2: a deterministic actor-critic from images, with random shifts."""

from vcse.agents.drqv2.cohort import RECENT_EPISODES, DrQv2Cohort, check, in_common, warning
from vcse.agents.drqv2.costs import expected_seconds, needs
from vcse.agents.drqv2.player import DrQv2Player
from vcse.agents.drqv2.settings import DrQv2Settings, drqv2_settings
from vcse.agents.entry import AgentEntry, Film, Schedule
from vcse.runs.arithmetic import Arithmetic

ENTRY = AgentEntry(
    name="drqv2",
    observes="image",
    settings=DrQv2Settings,
    settings_for=drqv2_settings,
    cohort=DrQv2Cohort,
    player=DrQv2Player(),
    check=check,
    warning=warning,
    in_common=in_common,
    expected_seconds=expected_seconds,
    needs=needs,
    schedule=Schedule(row_every_frames=10_000, eval_every_frames=10_000, eval_episodes=10),
    on_gpu=Arithmetic("high", cudnn_benchmark=True),
    logs=("frames.bin", "steps.bin"),
    policy=("acting",),
    film=Film(episodes=1, sampled=False, frames_per_second=12),
    recent_episodes=RECENT_EPISODES,
)
