"""SAC: soft actor-critic, from states."""

from vcse.agents.entry import AgentEntry
from vcse.agents.sac.agent import SAC
from vcse.agents.sac.cohort import SACCohort, in_common, warning
from vcse.agents.sac.costs import expected_seconds, needs
from vcse.agents.sac.player import SACPlayer
from vcse.agents.sac.settings import SACSettings, sac_settings
from vcse.runs.arithmetic import Arithmetic

# A policy is evaluated with its mean, in episodes that are long and much alike; videos run at about real
# time. Large networks are twice as fast with TF32.
ENTRY = AgentEntry(
    name="sac",
    observes="state",
    settings=SACSettings,
    settings_for=sac_settings,
    cohort=SACCohort,
    player=SACPlayer(),
    gives=SAC.BONUS_INPUTS,
    warning=warning,
    in_common=in_common,
    expected_seconds=expected_seconds,
    needs=needs,
    most_runs={"cpu": 4, "cuda": 48},
    on_gpu=Arithmetic("high", cudnn_benchmark=False),
    logs=("replay.bin",),
    policy=("actor",),
)
