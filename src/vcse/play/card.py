"""The card of a trained policy: Markdown, with the YAML at its beginning that the Hugging Face Hub reads."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from vcse.agents import agent_entry
from vcse.bonuses.registry import NO_BONUS
from vcse.play.scores import PolicyScores, Score
from vcse.runs.config import RunConfig

REPOSITORY = "user/name"  # until it is known


def model_card(config: RunConfig, meta: Mapping[str, Any], scores: PolicyScores) -> str:
    """Return the card of a policy; the repository of the Hub that it may go to is left open.

    Args:
        config: Of its run.
        meta: What `meta.json` says of the run.
        scores: Of the policy.
    """
    parts = (
        _front_matter(config, scores),
        f"# {config.agent} with {config.method} on {config.task}\n",
        _introduction(config, scores),
        _usage(config),
        _evaluation(config, scores),
        _training(config, meta, scores),
    )
    return "\n".join(parts)


def _front_matter(config: RunConfig, scores: PolicyScores) -> str:
    """Return what the Hub shows beside the card, of the way to act in which the agent is judged."""
    is_sampled = agent_entry(config.agent).has_discrete_actions
    score = scores.stored.sampled if is_sampled else scores.stored.greedy
    metrics = [("mean_reward", "mean return", score.return_mean)]
    metrics += [] if score.success_rate is None else [("success_rate", "success rate", score.success_rate)]
    way = f"{_ways(config)[0 if is_sampled else 1]} actions, {scores.episodes} episodes"
    tags = ("reinforcement-learning", "deep-reinforcement-learning", "exploration", config.agent, config.method)
    lines = ["---", "library_name: vcse", "pipeline_tag: reinforcement-learning", "tags:"]
    lines += [f"- {json.dumps(tag)}" for tag in (*dict.fromkeys(tags), config.task)]
    lines += [
        "model-index:",
        f"- name: {json.dumps(f'{config.agent}-{config.method}-{config.task}'.replace('/', '-'))}",
        "  results:",
        "  - task:",
        "      type: reinforcement-learning",
        "      name: reinforcement-learning",
        "    dataset:",
        f"      name: {json.dumps(config.task)}",
        f"      type: {json.dumps(config.task)}",
        "    metrics:",
    ]
    for kind, name, value in metrics:
        lines += [f"    - type: {kind}", f"      name: {json.dumps(f'{name}, {way}')}", f"      value: {value:.4f}"]
    return "\n".join([*lines, "---", ""])


def _introduction(config: RunConfig, scores: PolicyScores) -> str:
    bonus = config.settings.bonus.name
    explored = "without an exploration bonus" if bonus == NO_BONUS.name else f"with the exploration bonus `{bonus}`"
    return (
        f"A policy of the agent `{config.agent}` of vcse, trained on `{config.task}` {explored} in one run of seed "
        f"{config.seed}, as it was at frame {scores.frame:,}.\n"
    )


def _usage(config: RunConfig) -> str:
    way = ", deterministic=False" if agent_entry(config.agent).has_discrete_actions else ""
    return f"""## Use

```python
import vcse
from huggingface_hub import snapshot_download

policy = vcse.load_policy(snapshot_download("{REPOSITORY}"))  # or a folder that is on this machine
print(policy.observation_shape)
action, _ = policy.predict(observation{way})
```

`vcse watch FOLDER` films it, and `vcse eval FOLDER` plays its episodes.
"""


def _evaluation(config: RunConfig, scores: PolicyScores) -> str:
    """Return the table of what the policy reaches, with the weights of training too where those are others."""
    text = (
        f"{scores.episodes:,} episodes for each row, with 95 % intervals. Layouts and random numbers follow from the "
        f"run's seed and the frame: `vcse eval FOLDER --episodes {scores.episodes}` plays the same episodes again."
    )
    weights = "The checkpoint holds what acts, without optimizers, bonus and replay, in the precision of training."
    played = {scores.precision: scores.stored}
    if scores.precision != "float32":
        weights = weights.replace("in the precision of training", f"rounded to {scores.precision}")
        played["float32"] = scores.trained
    measures = ["return"] if scores.stored.sampled.success_rate is None else ["success", "return"]
    rows = [
        f"| actions | weights | {' | '.join(measures)} |",
        f"|---|---|{'---|' * len(measures)}",
        *(
            f"| {way} | {precision} | {' | '.join(_cells(score))} |"
            for precision, both in played.items()
            for way, score in zip(_ways(config), (both.sampled, both.greedy), strict=True)
        ),
    ]
    return "\n".join(["## Evaluation", "", text, "", *rows, "", weights, ""])


def _cells(score: Score) -> list[str]:
    """Return success, where it is known, and return, each with its interval."""
    cells = []
    if score.success_rate is not None and score.success_interval is not None:
        low, high = score.success_interval
        cells.append(f"{score.success_rate:.1%} ({low:.1%} to {high:.1%})")
    low, high = score.return_interval
    return [*cells, f"{score.return_mean:,.3f} ({low:,.3f} to {high:,.3f})"]


def _training(config: RunConfig, meta: Mapping[str, Any], scores: PolicyScores) -> str:
    command = meta.get("command")
    packages = {"vcse": meta.get("vcse"), **meta.get("packages", {})}
    versions = [f"{name} {packages.get(name)}" for name in ("vcse", "torch", "numpy", config.backend)]
    known = {
        "command": None if command is None else f"`vcse {shlex.join(command)}`",
        "commit": meta.get("commit"),
        "seed": config.seed,
        "budget": f"{config.frames:,} frames",
        "reading": config.reading,
        "bonus weight": getattr(config.settings, "beta", None),
        "device": meta.get("device"),
        "versions": ", ".join(each for each in versions if not each.endswith("None")),
    }
    rows = [f"| {name} | {value} |" for name, value in known.items() if value not in (None, "")]
    return "\n".join(["## Training", "", "| | |", "|---|---|", *rows, "", "All settings are in `config.json`.", ""])


def _ways(config: RunConfig) -> tuple[str, str]:
    """Return how the two ways to act are called."""
    return ("sampled", "greedy") if agent_entry(config.agent).has_discrete_actions else ("sampled", "mean")
