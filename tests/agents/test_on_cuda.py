import dataclasses

import pytest
import torch

from vcse.agents.a2c import A2C, A2CConfig, A2CSpec
from vcse.bonuses.named import BonusChoice
from vcse.replay.rollouts import Rollout

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

SPEC = A2CSpec((7, 7, 3), 7)
NONE = A2CConfig(BonusChoice("none", "release-a2c", 3))
VCSE = A2CConfig(BonusChoice("vcse", "release-a2c", 3))
CLEAN = A2CConfig(BonusChoice("vcse", "clean", 5), injection="reward", time_limit="bootstraps")
COHORTS = {
    "one bonus": [VCSE, VCSE],
    "with and without": [NONE, VCSE, dataclasses.replace(VCSE, injection="reward")],
    "time limits bootstrap": [dataclasses.replace(NONE, time_limit="bootstraps"), VCSE, CLEAN],
}
UPDATES = 8
EAGER_UPDATES = 3


def make_rollout(seed, learners, *, arrived):
    generator = torch.Generator().manual_seed(seed)
    shape = (learners, 16, 8)
    seen = torch.randint(0, 11, (20, 7, 7, 3), dtype=torch.uint8, generator=generator)
    ended = torch.rand(shape, generator=generator) < 0.2
    terminated = ended & (torch.rand(shape, generator=generator) < 0.5)
    rollout = Rollout(
        observations=seen[torch.randint(0, 20, (learners, 16, 9), generator=generator)],
        actions=torch.randint(0, 7, shape, generator=generator),
        rewards=torch.rand(shape, generator=generator) * terminated,
        terminated=terminated,
        truncated=ended & ~terminated,
        positions=torch.randint(1, 6, (*shape, 2), generator=generator).float(),
        arrived=seen[torch.randint(0, 20, shape, generator=generator)] if arrived else None,
    )
    return Rollout(*(None if each is None else each.cuda() for each in rollout))


@pytest.mark.parametrize("name", list(COHORTS))
def test_captured_updates_and_actions_are_those_of_an_eager_agent(name):
    configs = COHORTS[name]
    learners = len(configs)
    eager, captured = (A2C(SPEC, configs, range(learners), device="cuda") for _ in range(2))
    memory = make_rollout(0, learners, arrived=eager.needs_arrived)
    for seed in range(UPDATES):
        fresh = make_rollout(seed, learners, arrived=eager.needs_arrived)
        for mine, theirs in zip(memory, fresh, strict=True):
            if mine is not None:
                mine.copy_(theirs)
        if seed == EAGER_UPDATES:
            captured.capture(memory)
        metrics = captured.update(memory)
        expected = eager.update(fresh)
        for key in expected:
            torch.testing.assert_close(metrics[key], expected[key], rtol=1e-4, atol=1e-5, msg=f"{key}, update {seed}")
        uniforms = torch.rand(learners, 16, generator=torch.Generator().manual_seed(seed)).cuda()
        actions = captured.act(memory.observations[:, :, 0], uniforms)
        torch.testing.assert_close(actions, eager.act(fresh.observations[:, :, 0], uniforms))
    torch.testing.assert_close(captured.parameters, eager.parameters, rtol=1e-4, atol=1e-5)
