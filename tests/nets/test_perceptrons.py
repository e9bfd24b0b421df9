import pytest
import torch
from torch import nn

from vcse.nets.perceptrons import Perceptrons


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def member(layers, row):
    return [each[row : row + 1].detach().clone().requires_grad_() for each in layers]


def test_each_network_and_its_gradient_are_those_of_pytorchs_own_layers():
    net = Perceptrons(7, 24, 3)
    layers = [each.double().requires_grad_() for each in net.initial(generators(0, 1, 2))]
    inputs = drawn(3, 10, 7).double()
    found = net(layers, inputs)
    gradients = torch.autograd.grad(found.square().sum(), layers)
    for row in range(3):
        linears = []
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            linear = nn.Linear(*weight.shape[1:], dtype=torch.float64)
            linear.weight.data, linear.bias.data = weight[row].detach().T.clone(), bias[row].detach().clone()
            linears.append(linear)
        plain = nn.Sequential(linears[0], nn.ReLU(), linears[1], nn.ReLU(), linears[2])
        expected = plain(inputs[row])
        torch.testing.assert_close(found[row], expected)
        expected.square().sum().backward()
        for gradient, parameter in zip(gradients, plain.parameters(), strict=True):
            mine = gradient[row]
            torch.testing.assert_close(mine.T if mine.ndim == 2 else mine, parameter.grad)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_last_hidden_layer_can_have_length_1(outputs):
    net = Perceptrons(7, 24, outputs, normalized=True)
    layers = [each.double().requires_grad_() for each in net.initial(generators(0, 1))]
    inputs = drawn(2, 10, 7).double()
    expected = []
    for row in range(2):
        weights, biases = [each[row] for each in layers[::2]], [each[row] for each in layers[1::2]]
        hidden = ((inputs[row] @ weights[0] + biases[0]).relu() @ weights[1] + biases[1]).relu()
        lengths = hidden.square().sum(1).sqrt()
        expected.append(torch.stack([each / length for each, length in zip(hidden, lengths, strict=True)]) @ weights[2])
    found = net(layers, inputs)
    torch.testing.assert_close(found, torch.stack(expected))  # biases of the last layer begin at 0
    gradients = [torch.autograd.grad(each.square().sum(), layers[:5]) for each in (found, torch.stack(expected))]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("sizes", [(5, 16, 2), (40, 16, 1)])
def test_weights_begin_orthogonal_and_biases_at_0(sizes):
    layers = Perceptrons(*sizes).initial(generators(0, 1))
    assert [each.shape for each in layers[::2]] == [(2, sizes[0], 16), (2, 16, 16), (2, 16, sizes[2])]
    for weight in layers[::2]:
        short = weight if weight.shape[1] <= weight.shape[2] else weight.mT
        torch.testing.assert_close(short @ short.mT, torch.eye(short.shape[1]).expand(2, -1, -1), atol=1e-5, rtol=0)
    assert all(not bias.any() for bias in layers[1::2])


def test_a_network_begins_with_what_its_own_generator_gives():
    net = Perceptrons(5, 8, 2)
    stack, alone = net.initial(generators(3, 4, 5)), net.initial(generators(4))
    assert all(torch.equal(many[1:2], one) for many, one in zip(stack, alone, strict=True))
    shared = generators(3)[0]
    twins = net.initial([shared, shared])
    assert not torch.equal(twins[0][0], twins[0][1])


@pytest.mark.parametrize("rows", [1, 10, 64])
def test_a_stack_is_bit_equal_to_its_members_alone(rows):
    net = Perceptrons(17, 48, 4)
    layers = [each.requires_grad_() for each in net.initial(generators(*range(6)))]
    inputs = drawn(6, rows, 17)
    found = net(layers, inputs)
    gradients = torch.autograd.grad(found.square().sum(), layers)
    for row in range(6):
        own = member(layers, row)
        alone = net(own, inputs[row : row + 1])
        assert torch.equal(alone[0], found[row])
        for mine, theirs in zip(torch.autograd.grad(alone.square().sum(), own), gradients, strict=True):
            assert torch.equal(mine[0], theirs[row])
