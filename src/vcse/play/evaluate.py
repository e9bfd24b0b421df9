"""Evaluation: whole episodes of a policy in environments of their own, with sampled or greedy actions."""

from vcse.agents import agent_entry
from vcse.agents.entry import Policies
from vcse.runs.arithmetic import computing_with
from vcse.runs.evaluation import TwoEvaluations


def evaluate_policies(policies: Policies, *, episodes: int, threads: int = 1) -> list[TwoEvaluations]:
    """Play episodes with loaded policies, in environments that are made for this, and return what each run reached.

    With as many episodes as in training, the numbers are those of the evaluation that the run made at this frame.

    Args:
        policies: Of one agent.
        episodes: For each run, and each of the two ways to act.
        threads: That step the environments; processes, where those are simulated in processes.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    entry = agent_entry(policies.configs[0].agent)
    with computing_with(entry.arithmetic(policies.device.partition(":")[0])):
        sampled, greedy = entry.player.evaluate(policies, episodes=episodes, threads=threads)
    return [TwoEvaluations(*each) for each in zip(sampled, greedy, strict=True)]
