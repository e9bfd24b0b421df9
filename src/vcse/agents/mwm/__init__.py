"""Masked World Models: a world model of a masked autoencoder's features, and an actor that learns in imagination."""

from vcse.agents.entry import AgentEntry, Schedule
from vcse.agents.mwm.agent import MWM
from vcse.agents.mwm.cohort import MWMCohort, check, warning
from vcse.agents.mwm.costs import expected_seconds, needs
from vcse.agents.mwm.player import MWMPlayer, imagine
from vcse.agents.mwm.settings import ACTION_REPEAT, IMAGE_SIZE, MWMSettings, mwm_settings
from vcse.runs.arithmetic import Arithmetic

ENTRY = AgentEntry(
    name="mwm",
    observes="image",
    settings=MWMSettings,
    settings_for=mwm_settings,
    cohort=MWMCohort,
    player=MWMPlayer(),
    gives=MWM.BONUS_INPUTS,
    needs_time_limits=True,
    check=check,
    warning=warning,
    imagine=imagine,
    expected_seconds=expected_seconds,
    needs=needs,
    schedule=Schedule(row_every_frames=10_000, eval_every_frames=20_000, eval_episodes=10),
    on_gpu=Arithmetic("high", cudnn_benchmark=True),
    logs=("frames.bin", "steps.bin"),
    policy=("acting",),
    image_size=IMAGE_SIZE,
    action_repeat=ACTION_REPEAT,
)
