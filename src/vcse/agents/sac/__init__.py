"""SAC: soft actor-critic, from states."""

from vcse.agents.entry import AgentEntry, Film, Schedule
from vcse.agents.sac.cohort import RECENT_EPISODES, SACCohort, in_common, warning
from vcse.agents.sac.costs import expected_seconds, needs
from vcse.agents.sac.player import SACPlayer
from vcse.agents.sac.settings import SACSettings, sac_settings
from vcse.runs.arithmetic import Arithmetic

# A policy is judged by its mean, in episodes that are long and much alike; a simulation is shown about as fast as it
# is. Large networks are twice as fast with TF32.
ENTRY = AgentEntry(
    name="sac",
    observes="state",
    settings=SACSettings,
    settings_for=sac_settings,
    cohort=SACCohort,
    player=SACPlayer(),
    warning=warning,
    in_common=in_common,
    expected_seconds=expected_seconds,
    needs=needs,
    schedule=Schedule(row_every_frames=10_000, eval_every_frames=10_000, eval_episodes=10),
    most_runs={"cpu": 4, "cuda": 48},
    on_gpu=Arithmetic("high", cudnn_benchmark=False),
    logs=("replay.bin",),
    policy=("actor",),
    film=Film(episodes=1, sampled=False, frames_per_second=12),
    recent_episodes=RECENT_EPISODES,
)
