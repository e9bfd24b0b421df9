"""What each reading says of each agent's settings, and where a run deviates from it."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from vcse.agents.a2c.agent import A2CConfig, Injection, TimeLimit
from vcse.agents.drqv2.agent import CuriosityPair, DrQv2Config, NoiseSchedule, ReturnInjection
from vcse.agents.drqv2.networks import Precision
from vcse.agents.sac.agent import SACConfig
from vcse.bonuses.readings import NormalizerName
from vcse.bonuses.registry import BonusChoice, BonusEntry, ValueNormalization, bonus_entry, bonus_names
from vcse.settings import ValueCritic

# Which bonuses heed a deviation, where not all do, by the name of its option.
HEEDED_BY: dict[str, Callable[[BonusEntry], bool]] = {
    **dict.fromkeys(("k", "beta", "beta_decay", "bonus_batch_size"), lambda entry: entry.pays),
    **dict.fromkeys(("injection", "return_injection", "curiosity_pair"), lambda entry: entry.pays),
    **dict.fromkeys(("value_critic", "extrinsic_entropy"), lambda entry: "values" in entry.needs),
    "log_offset": lambda entry: "log_offset" in entry.heeds,
    "value_normalization": lambda entry: "value_normalization" in entry.heeds,
}


def heeding(option: str) -> tuple[str, ...]:
    """Return the names of the bonuses that heed an option."""
    heeds = HEEDED_BY.get(option)
    return tuple(name for name in bonus_names() if heeds is None or heeds(bonus_entry(name)))


READINGS = ("release", "paper", "clean", "re3")
Reading = Literal["release", "paper", "clean", "re3"]

# What each reading says of A2C beyond the formula of the bonus. The paper's text has k = 5 for both; the release
# has 3 for VCSE and averages over 5, the point itself among them, for SE.
_INJECTION: dict[str, Injection] = {"release": "after_gae", "re3": "after_gae", "paper": "reward", "clean": "reward"}
_TIME_LIMIT: dict[str, TimeLimit] = {"release": "ends", "re3": "ends", "paper": "ends", "clean": "bootstraps"}
_K = {"release": {"vcse": 3, "se-matched": 3}, "re3": {}, "paper": {}, "clean": {}}
_K_OTHERWISE = 5


def a2c_config(
    bonus: str,
    reading: Reading = "release",
    *,
    task: str = "",
    k: int | None = None,
    beta: float | None = None,
    injection: Injection | None = None,
    time_limit: TimeLimit | None = None,
    log_offset: float | None = None,
    value_normalization: ValueNormalization = "batch",
    position_features: bool | None = None,
    keeps_extrinsic_critic: bool = False,
    environments: int = 16,
) -> A2CConfig:
    """Give the settings that a reading asks for on a task, with deviations where they are named."""
    name = _checked_name(bonus, reading, READINGS)
    k, beta, injection = _if_heeded(name, k=k, beta=beta, injection=injection)
    if reading == "re3" and bonus not in ("none", "se"):
        raise ValueError(f"reading 're3' is one of state entropy (se); the bonus is {bonus!r}")
    if position_features is None:  # on whole maps the bonus sees the agent's position
        position_features = task.startswith("minigrid-full/")
    return A2CConfig(
        bonus=_choice(
            name,
            "release-a2c" if reading == "release" else reading,
            _K[reading].get(bonus, _K_OTHERWISE) if k is None else k,
            log_offset,
            value_normalization,
        ),
        beta=A2CConfig.beta if beta is None else beta,
        injection=_INJECTION[reading] if injection is None else injection,
        time_limit=_TIME_LIMIT[reading] if time_limit is None else time_limit,
        bonus_features="position" if position_features else "encoder",
        keeps_extrinsic_critic=keeps_extrinsic_critic,
        environments=environments,
    )


# What each reading says of SAC beyond the formula of the bonus. The release leaves the policy's entropy out of the
# extrinsic critic's target; the paper says that this critic is like the other. The paper divides SE by a running mean,
# which the release gets wrong.
_EXTRINSIC_ENTROPY = {"release": False, "paper": True, "clean": False}
_SE_NORMALIZER: dict[str, NormalizerName | None] = {"release": None, "paper": "running-mean", "clean": "running-mean"}
SAC_K = 12
SAC_BONUS_TEMPERATURE = 0.001  # paper and release: learning it gets in the way of a bonus


def sac_config(
    bonus: str,
    reading: Reading = "release",
    *,
    task: str = "",
    k: int | None = None,
    beta: float | None = None,
    temperature: float | Literal["learned"] | None = None,
    value_critic: ValueCritic | None = None,
    extrinsic_entropy: bool | None = None,
    log_offset: float | None = None,
    value_normalization: ValueNormalization = "batch",
    hidden_units: int | None = None,
    batch_size: int | None = None,
    seed_frames: int | None = None,
    updates_per_step: float | None = None,
    replay_capacity: int | None = None,
) -> SACConfig:
    """Give the settings that a reading asks for, with deviations where they are named."""
    del task  # nothing follows from it
    name = _checked_name(bonus, reading, _EXTRINSIC_ENTROPY, " for sac")
    k, beta = _if_heeded(name, k=k, beta=beta)
    value_critic, extrinsic_entropy = _if_heeded(name, value_critic=value_critic, extrinsic_entropy=extrinsic_entropy)
    if temperature is None and bonus != "none":
        temperature = SAC_BONUS_TEMPERATURE
    deviations = {
        "beta": beta,
        "hidden_units": hidden_units,
        "batch_size": batch_size,
        "seed_frames": seed_frames,
        "updates_per_step": updates_per_step,
        "replay_capacity": replay_capacity,
    }
    return SACConfig(
        bonus=_choice(
            name,
            "release-sac" if reading == "release" else reading,
            SAC_K if k is None else k,
            log_offset,
            value_normalization,
            normalizer=_SE_NORMALIZER[reading] if bonus == "se" else None,
        ),
        temperature=None if temperature == "learned" else temperature,
        value_critic=value_critic or SACConfig.value_critic,
        extrinsic_entropy=_EXTRINSIC_ENTROPY[reading] if extrinsic_entropy is None else extrinsic_entropy,
        **{each: number for each, number in deviations.items() if number is not None},  # type: ignore[arg-type]
    )


# What each reading says of DrQ-v2 beyond the formula of the bonus. The paper takes values from the target critic, and
# its text has the bonus in the reward of every step; the release adds that of the first step to the summed rewards.
_PIXEL_VALUE_CRITIC: dict[str, ValueCritic] = {"release": "online", "paper": "target", "clean": "target"}
_CURIOSITY_PAIR: dict[str, CuriosityPair] = {"release": "n-step", "paper": "one-step", "clean": "one-step"}
_RETURN_INJECTION: dict[str, ReturnInjection] = {"release": "once", "paper": "every_step", "clean": "every_step"}
DRQV2_K = 12
BONUS_NOISE = 0.2  # of actions, where a bonus explores; and for everybody in Meta-World
# Tasks on which DrQ-v2 alone lowers its noise over 100,000 steps.
_EASY_TASKS = (
    *("ball_in_cup_catch", "cartpole_balance", "cartpole_balance_sparse", "cartpole_swingup", "finger_spin"),
    *("hopper_stand", "pendulum_swingup", "walker_stand", "walker_walk", "walker_walk_sparse"),
)


def drqv2_config(
    bonus: str,
    reading: Reading = "release",
    *,
    task: str,
    k: int | None = None,
    beta: float | None = None,
    beta_decay: float | None = None,
    value_critic: ValueCritic | None = None,
    curiosity_pair: CuriosityPair | None = None,
    return_injection: ReturnInjection | None = None,
    action_noise: float | NoiseSchedule | None = None,
    log_offset: float | None = None,
    value_normalization: ValueNormalization = "batch",
    normalizes_reward: bool | None = None,
    bonus_batch_size: int | None = None,
    n_step: int | None = None,
    batch_size: int | None = None,
    hidden_units: int | None = None,
    encoder_precision: Precision | None = None,
    seed_frames: int | None = None,
    replay_capacity: int | None = None,
) -> DrQv2Config:
    """Give the settings that a reading asks for on a task, with deviations where they are named."""
    name = _checked_name(bonus, reading, _PIXEL_VALUE_CRITIC, " for drqv2")
    k, beta, beta_decay = _if_heeded(name, k=k, beta=beta, beta_decay=beta_decay)
    value_critic, bonus_batch_size = _if_heeded(name, value_critic=value_critic, bonus_batch_size=bonus_batch_size)
    curiosity_pair, return_injection = _if_heeded(
        name, curiosity_pair=curiosity_pair, return_injection=return_injection
    )
    family, _, short = task.partition("/")
    if action_noise is None:
        explores = bonus != "none" or family == "metaworld"
        action_noise = BONUS_NOISE if explores else (1.0, 0.1, _noise_steps(short))
    deviations = {
        "n_step": n_step,
        "batch_size": batch_size,
        "beta": beta,
        "beta_decay": beta_decay,
        "bonus_batch_size": bonus_batch_size,
        "hidden_units": hidden_units,
        "encoder_precision": encoder_precision,
        "seed_frames": seed_frames,
        "replay_capacity": replay_capacity,
    }
    return DrQv2Config(
        bonus=_choice(
            name,
            "release-drqv2" if reading == "release" else reading,
            DRQV2_K if k is None else k,
            log_offset,
            value_normalization,
            normalizer=_SE_NORMALIZER[reading] if bonus == "se" else None,
        ),
        noise_schedule=_schedule(action_noise),
        value_critic=value_critic or _PIXEL_VALUE_CRITIC[reading],
        curiosity_pair=curiosity_pair or _CURIOSITY_PAIR[reading],
        injection=return_injection or _RETURN_INJECTION[reading],
        normalizes_reward=family == "metaworld" if normalizes_reward is None else normalizes_reward,
        **_of_task(short) | {each: value for each, value in deviations.items() if value is not None},
    )


def _noise_steps(task: str) -> int:
    """Give the steps over which DrQ-v2 alone lowers its noise."""
    return 100_000 if task in _EASY_TASKS else 2_000_000 if task.startswith("humanoid") else 500_000


def _schedule(action_noise: float | NoiseSchedule) -> NoiseSchedule:
    """Give the schedule of a noise that may stay as it is."""
    schedule = action_noise if isinstance(action_noise, tuple) else (action_noise, action_noise, 1)
    *deviations, steps = schedule
    for deviation in deviations:
        if not 0 <= deviation < math.inf:
            raise ValueError(f"action_noise must be finite and not negative, got {deviation}")
    if steps < 1:
        raise ValueError(f"action_noise must change over at least 1 step, got {steps}")
    return schedule


def _of_task(task: str) -> dict[str, Any]:
    """Give in which settings DrQ-v2's authors deviate on a task of DeepMind Control."""
    if task.startswith("walker_"):
        return {"n_step": 1, "batch_size": 512}
    if task.startswith("humanoid_"):
        return {"learning_rate": 8e-5, "features": 100}
    return {"replay_capacity": 100_000} if task == "quadruped_run" else {}


def _choice(
    name: str,
    reading: str,
    k: int,
    log_offset: float | None,
    value_normalization: ValueNormalization,
    *,
    normalizer: NormalizerName | None = None,
) -> BonusChoice:
    """Choose a bonus. Of what it does not heed nothing is recorded."""
    heeds = bonus_entry(name).heeds
    return BonusChoice(
        name=name,
        reading=reading,
        k=k,
        log_offset=log_offset if "log_offset" in heeds else None,
        value_normalization=value_normalization if "value_normalization" in heeds else "batch",
        normalizer=normalizer,
    )


def _if_heeded(name: str, **deviations: Any) -> Iterator[Any]:
    """Give deviations; those that a bonus does not heed are not recorded, or it would count as another run."""
    return (value if name in heeding(option) else None for option, value in deviations.items())


def _checked_name(bonus: str, reading: str, readings: Iterable[str], whose: str = "") -> str:
    """Give the bonus by its name, if there is one and the agent has the reading."""
    bonus_entry(bonus)
    if reading not in readings:
        raise ValueError(f"reading must be one of {', '.join(readings)}{whose}, got {reading!r}")
    return bonus
