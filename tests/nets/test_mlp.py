import copy

import pytest
import torch
from torch import nn

from vcse.nets.mlp import StackedMLP


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_layers(net, layers):
    """Return a copy of networks with other parameters."""
    net = copy.deepcopy(net)
    net.layers = nn.ParameterList(each.detach().clone() for each in layers)
    return net


def test_each_network_and_its_gradient_are_those_of_pytorchs_own_layers():
    net = StackedMLP(7, 24, 3, generators(0, 1, 2)).double()
    layers = list(net.layers)
    inputs = drawn(3, 10, 7).double()
    found = net(inputs)
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
    net = StackedMLP(7, 24, outputs, generators(0, 1), normalized=True).double()
    layers = list(net.layers)
    inputs = drawn(2, 10, 7).double()
    expected = []
    for row in range(2):
        weights, biases = [each[row] for each in layers[::2]], [each[row] for each in layers[1::2]]
        hidden = ((inputs[row] @ weights[0] + biases[0]).relu() @ weights[1] + biases[1]).relu()
        lengths = hidden.square().sum(1).sqrt()
        expected.append(torch.stack([each / length for each, length in zip(hidden, lengths, strict=True)]) @ weights[2])
    found = net(inputs)
    torch.testing.assert_close(found, torch.stack(expected))  # biases of the last layer begin at 0
    gradients = [torch.autograd.grad(each.square().sum(), layers[:5]) for each in (found, torch.stack(expected))]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("sizes", [(5, 16, 2), (40, 16, 1)])
def test_weights_begin_orthogonal_and_biases_at_0(sizes):
    layers = list(StackedMLP(*sizes, generators(0, 1)).layers)
    assert [each.shape for each in layers[::2]] == [(2, sizes[0], 16), (2, 16, 16), (2, 16, sizes[2])]
    for weight in layers[::2]:
        short = weight if weight.shape[1] <= weight.shape[2] else weight.mT
        torch.testing.assert_close(short @ short.mT, torch.eye(short.shape[1]).expand(2, -1, -1), atol=1e-5, rtol=0)
    assert all(not bias.any() for bias in layers[1::2])


def test_a_network_begins_with_what_its_own_generator_gives():
    stack, alone = StackedMLP(5, 8, 2, generators(3, 4, 5)).layers, StackedMLP(5, 8, 2, generators(4)).layers
    assert all(torch.equal(many[1:2], one) for many, one in zip(stack, alone, strict=True))
    shared = generators(3)[0]
    twins = StackedMLP(5, 8, 2, [shared, shared]).layers
    assert not torch.equal(twins[0][0], twins[0][1])


@pytest.mark.parametrize("rows", [1, 10, 64])
def test_a_stack_is_bit_equal_to_its_members_alone(rows):
    net = StackedMLP(17, 48, 4, generators(*range(6)))
    inputs = drawn(6, rows, 17)
    found = net(inputs)
    gradients = torch.autograd.grad(found.square().sum(), list(net.layers))
    for row in range(6):
        own = with_layers(net, [each[row : row + 1] for each in net.layers])
        alone = own(inputs[row : row + 1])
        assert torch.equal(alone[0], found[row])
        assert torch.equal(net(inputs[row : row + 1], networks=slice(row, row + 1))[0], found[row])
        for mine, theirs in zip(torch.autograd.grad(alone.square().sum(), list(own.layers)), gradients, strict=True):
            assert torch.equal(mine[0], theirs[row])


def test_detached_parameters_get_no_gradient_and_the_inputs_get_theirs():
    net, inputs = StackedMLP(5, 8, 1, generators(0, 1)), drawn(2, 10, 5).requires_grad_()
    for weight in (net.layers[1], net.layers[3]):
        weight.data += 0.1  # so that units are on
    expected = torch.autograd.grad(net(inputs).sum(), inputs)[0]
    found = net(inputs, detach_parameters=True).sum()
    assert torch.equal(torch.autograd.grad(found, inputs, retain_graph=True)[0], expected)
    assert torch.autograd.grad(found, list(net.layers), allow_unused=True) == (None,) * 6


def test_the_parameters_of_one_network_are_counted_without_making_it():
    made = StackedMLP(7, 24, 3, generators(0))
    assert StackedMLP.parameter_count(7, 24, 3) == sum(each.numel() for each in made.layers)
