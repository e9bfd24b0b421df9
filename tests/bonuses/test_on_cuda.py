import pytest
import torch

from vcse.bonuses import FeatureMemory, MatchedStateEntropy, StateEntropy, ValueConditionalStateEntropy

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
