from functools import partial

import pytest
import torch

from vcse.bonuses import (
    BonusBatch,
    EpisodicCounts,
    FeatureMemory,
    IntrinsicCuriosity,
    MatchedStateEntropy,
    RandomNetworkDistillation,
    StateEntropy,
    ValueConditionalStateEntropy,
)
from vcse.bonuses.base import needed_by

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def batches(count):
    generator = torch.Generator().manual_seed(4)
    return [
        (torch.randn(3, 128, 16, generator=generator), torch.randn(3, 128, generator=generator)) for _ in range(count)
    ]


def make(name):
    match name:
        case "se":
            return StateEntropy(k=5, reading="release-a2c", learners=3, memory=FeatureMemory(256, 16, learners=3))
        case "se-matched":
            return MatchedStateEntropy(k=3, learners=3)
        case _:
            return ValueConditionalStateEntropy(k=3, reading="release-a2c", learners=3)


@pytest.mark.parametrize("name", ["se", "se-matched", "vcse"])
def test_a_captured_bonus_goes_on_like_an_eager_one(name):
    captured, eager = make(name).cuda(), make(name)
    features, values = torch.zeros(3, 128, 16, device="cuda"), torch.zeros(3, 128, device="cuda")
    stream = batches(6)
    for new_features, new_values in stream[:3]:  # fills the memory of 256 and compiles the kernels
        captured(new_features.cuda(), values=new_values.cuda())
        eager(new_features, values=new_values)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = captured(features, values=values)
    for new_features, new_values in stream[3:]:
        features.copy_(new_features)
        values.copy_(new_values)
        graph.replay()
        expected = eager(new_features, values=new_values)
        torch.testing.assert_close(output.reward.cpu(), expected.reward, rtol=1e-4, atol=1e-5)


def test_a_growing_memory_cannot_be_captured():
    bonus = make("se").cuda()
    features = torch.randn(3, 100, 16, device="cuda")
    bonus(features)
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        features.add_(1)  # PyTorch warns of a graph that has captured nothing
        with pytest.raises(ValueError, match="holds 100 of 256"):
            bonus(features)


BASELINES = {
    "rnd": partial(RandomNetworkDistillation, 16, environments=8, epochs=2, minibatches=2, learning_rate=1e-3),
    "icm": partial(IntrinsicCuriosity, 16, actions=5),
    "icm of continuous actions": partial(IntrinsicCuriosity, 16, action_size=2),
    "counts": partial(EpisodicCounts, environments=8, memory=50),
    "hashed counts": partial(EpisodicCounts, environments=8, hash_bits=6, dimensions=16),
}


def rollouts(name, count):
    """Rollouts of three learners in few different places, as in a grid world."""
    generator = torch.Generator().manual_seed(4)
    places = torch.randn(20, 16, generator=generator)
    for _ in range(count):
        shape = (3, 128)
        yield {
            "features": places[torch.randint(0, 20, shape, generator=generator)],
            "next_features": places[torch.randint(0, 20, shape, generator=generator)],
            "actions": torch.randn(*shape, 2, generator=generator)
            if "continuous" in name
            else torch.randint(0, 5, shape, generator=generator),
            "episode_starts": torch.rand(shape, generator=generator) < 0.05,
        }


@pytest.mark.parametrize("name", BASELINES)
def test_captured_baselines_pay_and_learn_like_eager_ones_of_the_cpu(name):
    captured, eager = (BASELINES[name](learners=3, seed=[1, 2, 3], check_finite=False) for _ in range(2))
    captured.cuda()

    def play(bonus, rows):
        needed = {each: rows[each] for each in needed_by(bonus)}
        reward = bonus(rows["features"], **needed).reward
        return reward, bonus.learn(BonusBatch(rows["features"], **needed)) if bonus.learns else {}

    *first, last = rollouts(name, 9)
    memory = {each: tensor.cuda() for each, tensor in first[0].items()}
    for rows in first[:3]:
        play(captured, {each: tensor.cuda() for each, tensor in rows.items()})
        play(eager, rows)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reward, learned = play(captured, memory)
    for rows in (*first[3:], last):
        for each, tensor in rows.items():
            memory[each].copy_(tensor)
        graph.replay()
        expected, numbers = play(eager, rows)
        torch.testing.assert_close(reward.cpu(), expected, rtol=2e-3, atol=1e-4)
        for each, number in numbers.items():
            torch.testing.assert_close(learned[each].cpu(), number, rtol=2e-3, atol=1e-4)
