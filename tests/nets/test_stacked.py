import pytest
import torch

from vcse.nets.stacked import linear, product

ROWS, INPUTS = 35, 64  # an odd number, so that results of learners begin anywhere in memory


@pytest.mark.parametrize("outputs", [1, 7, 64])
@pytest.mark.parametrize("rows", [ROWS, 1962])
def test_a_learner_alone_is_the_learner_among_others_to_the_bit_and_so_is_its_gradient(rows, outputs):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, rows, INPUTS, generator=generator)
    weight, bias = torch.randn(5, INPUTS, outputs, generator=generator), torch.randn(5, outputs, generator=generator)

    def apply(learners):
        parts = [each[learners].clone().requires_grad_() for each in (inputs, weight, bias)]
        results = linear(*parts), product(*parts[:2])
        return [*results, *torch.autograd.grad(sum(each.square().sum() for each in results), parts)]

    together = apply(slice(None))
    assert together[0].shape == together[1].shape == (5, rows, outputs)
    for learner in range(5):
        for alone, among in zip(apply(slice(learner, learner + 1)), together, strict=True):
            assert torch.equal(alone[0], among[learner])
    torch.testing.assert_close(together[1], inputs @ weight, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together[0], inputs @ weight + bias[:, None], rtol=1e-4, atol=1e-4)
