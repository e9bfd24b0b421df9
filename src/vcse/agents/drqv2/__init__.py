"""DrQ-v2: a deterministic actor-critic from images, with random shifts."""

from vcse.agents.drqv2.agent import DrQv2
from vcse.agents.drqv2.cohort import DrQv2Cohort, check, warning
from vcse.agents.drqv2.costs import expected_seconds, needs
from vcse.agents.drqv2.player import DrQv2Player
from vcse.agents.drqv2.saturation import remark
from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE, DrQv2Settings, drqv2_settings
from vcse.agents.entry import AgentEntry
from vcse.replay.images import STACK
from vcse.runs.arithmetic import Arithmetic

ENTRY = AgentEntry(
    name="drqv2",
    observes="image",
    settings=DrQv2Settings,
    settings_for=drqv2_settings,
    cohort=DrQv2Cohort,
    player=DrQv2Player(),
    gives=DrQv2.BONUS_INPUTS,
    check=check,
    warning=warning,
    remark=remark,
    expected_seconds=expected_seconds,
    needs=needs,
    on_gpu=Arithmetic("high", cudnn_benchmark=True),
    logs=("frames.bin", "steps.bin"),
    policy=("acting",),
    image_size=IMAGE_SHAPE[-1],
    stacked_images=STACK,
    action_repeat=ACTION_REPEAT,
)
