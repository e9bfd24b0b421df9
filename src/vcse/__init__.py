"""Value-conditional state entropy exploration for reinforcement learning."""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vcse.agents import register_agent as register_agent
    from vcse.bonuses import Bonus as Bonus
    from vcse.bonuses import BonusOutput as BonusOutput
    from vcse.bonuses import EpisodicCounts as EpisodicCounts
    from vcse.bonuses import FeatureMemory as FeatureMemory
    from vcse.bonuses import IntrinsicCuriosity as IntrinsicCuriosity
    from vcse.bonuses import MatchedStateEntropy as MatchedStateEntropy
    from vcse.bonuses import NoBonus as NoBonus
    from vcse.bonuses import RandomNetworkDistillation as RandomNetworkDistillation
    from vcse.bonuses import RewardConditionalStateEntropy as RewardConditionalStateEntropy
    from vcse.bonuses import StateEntropy as StateEntropy
    from vcse.bonuses import ValueConditionalStateEntropy as ValueConditionalStateEntropy
    from vcse.bonuses import register_bonus as register_bonus
    from vcse.envs.tasks import register_family as register_family
    from vcse.estimators import kl_entropy as kl_entropy
    from vcse.estimators import ksg_conditional_entropy as ksg_conditional_entropy
    from vcse.estimators import state_entropy_reward as state_entropy_reward
    from vcse.estimators import value_conditional_reward as value_conditional_reward
    from vcse.integrations import ReplayBonus as ReplayBonus
    from vcse.integrations import RolloutBonus as RolloutBonus
    from vcse.launch.api import train as train
    from vcse.play.policy import Policy as Policy
    from vcse.play.policy import load_policy as load_policy
    from vcse.reports.report import report as report

# Which module each public name is of; the module is imported when the name is first used.
_HOMES = {
    "Bonus": "vcse.bonuses",
    "BonusOutput": "vcse.bonuses",
    "EpisodicCounts": "vcse.bonuses",
    "FeatureMemory": "vcse.bonuses",
    "IntrinsicCuriosity": "vcse.bonuses",
    "MatchedStateEntropy": "vcse.bonuses",
    "NoBonus": "vcse.bonuses",
    "RandomNetworkDistillation": "vcse.bonuses",
    "RewardConditionalStateEntropy": "vcse.bonuses",
    "StateEntropy": "vcse.bonuses",
    "ValueConditionalStateEntropy": "vcse.bonuses",
    "kl_entropy": "vcse.estimators",
    "ksg_conditional_entropy": "vcse.estimators",
    "state_entropy_reward": "vcse.estimators",
    "value_conditional_reward": "vcse.estimators",
    "ReplayBonus": "vcse.integrations",
    "RolloutBonus": "vcse.integrations",
    "train": "vcse.launch.api",
    "Policy": "vcse.play.policy",
    "load_policy": "vcse.play.policy",
    "report": "vcse.reports.report",
    "register_agent": "vcse.agents",
    "register_bonus": "vcse.bonuses",
    "register_family": "vcse.envs.tasks",
}
__all__ = list(_HOMES)

if not TYPE_CHECKING:  # a type checker would take this for any name at all

    def __getattr__(name: str) -> object:
        """Import a public name from its module, or a module such as `vcse.estimators`, once."""
        if name in _HOMES:
            found: object = getattr(import_module(_HOMES[name]), name)
        elif not name.startswith("_") and find_spec(f"vcse.{name}") is not None:
            found = import_module(f"vcse.{name}")
        else:
            raise AttributeError(f"module 'vcse' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """List what there is, with what is not imported yet."""
    return sorted({*globals(), *__all__, *(module.name for module in iter_modules(__path__))})
