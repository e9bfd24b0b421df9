"""A2C: advantage actor-critic, in grid worlds."""

from vcse.agents.a2c.agent import A2C
from vcse.agents.a2c.cohort import A2CCohort, check, in_common, warning
from vcse.agents.a2c.costs import expected_seconds, needs
from vcse.agents.a2c.player import A2CPlayer
from vcse.agents.a2c.settings import A2CSettings, a2c_settings
from vcse.agents.entry import AgentEntry, Film, Schedule

# In MiniGrid a policy is evaluated with sampled actions, on layouts that differ much.
ENTRY = AgentEntry(
    name="a2c",
    observes="grid",
    settings=A2CSettings,
    settings_for=a2c_settings,
    cohort=A2CCohort,
    player=A2CPlayer(),
    gives=A2C.BONUS_INPUTS,
    check=check,
    warning=warning,
    in_common=in_common,
    expected_seconds=expected_seconds,
    needs=needs,
    schedule=Schedule(row_every_frames=5_000, eval_every_frames=0, eval_episodes=100),
    least_runs=4,
    most_runs={"cpu": 24, "cuda": 336},
    logs=("actions.bin",),
    policy=("parameters",),
    film=Film(episodes=3, sampled=True, frames_per_second=8),
    recent_episodes=100,
    ends_at_goal=True,
    has_discrete_actions=True,
    observes_too=("state", "image"),
)
