import torch

from vcse.agents.a2c.networks import TanhMLP
from vcse.streams import torch_generator


def test_is_linear_tanh_linear_of_each_learner():
    head = TanhMLP(8, 4, 2, [torch_generator(seed, "parameters") for seed in (0, 1)])
    features = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    for learner, output in enumerate(head(features)):
        first, bias, second, last = (each[learner] for each in head.parameters())
        torch.testing.assert_close(output, (features[learner] @ first + bias).tanh() @ second + last)


def test_what_leads_to_a_unit_has_length_one_and_biases_are_zero():
    head = TanhMLP(64, 64, 7, [torch_generator(seed, "parameters") for seed in range(3)])
    for name, piece in head.named_parameters():
        if name.endswith("weight"):
            torch.testing.assert_close(piece.norm(dim=1), torch.ones(3, piece.shape[2]))
        else:
            assert (piece == 0).all()
