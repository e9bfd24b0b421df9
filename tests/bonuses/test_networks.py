import pytest
import torch
from torch import nn

from vcse.bonuses.networks import Adam, LearnedRows, NetworkRows, applied, generators_of, in_shares

SIZES = {"net": (3, 5, 2)}


def make(learners=None, *, seed=0, epochs=1, minibatches=1, learning_rate=0.01):
    adam = Adam(learning_rate, epochs=epochs, minibatches=minibatches)
    return LearnedRows(SIZES, generators_of(seed, learners), learners, adam)


def apply_net(pieces, inputs):
    return applied(pieces, "net", inputs, (torch.relu, None))


def squares(pieces, inputs, targets):
    loss = (apply_net(pieces, inputs) - targets).square().mean((1, 2))
    return loss, loss.unsqueeze(-1)


def batch(number, learners=1, points=12):
    generator = torch.Generator().manual_seed(number)
    return (
        torch.randn(learners, points, 3, generator=generator),
        torch.randn(learners, points, 2, generator=generator),
    )


def twin_of(rows):
    """The same network as a module of PyTorch."""
    layers = nn.Linear(3, 5), nn.Linear(5, 2)
    with torch.no_grad():
        for number, layer in enumerate(layers):
            pieces = rows.pieces(rows.stack)
            layer.weight.copy_(pieces[f"net.{number}.weight"][0].T)
            layer.bias.copy_(pieces[f"net.{number}.bias"][0])
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def test_weights_begin_orthogonal_and_biases_at_zero():
    rows = make()
    pieces = rows.pieces(rows.stack)
    first, second = pieces["net.0.weight"][0], pieces["net.1.weight"][0]
    torch.testing.assert_close(first @ first.T, 2 * torch.eye(3))  # a gain of the root of 2
    torch.testing.assert_close(second.T @ second, 2 * torch.eye(2))
    assert not pieces["net.0.bias"].any()
    assert not pieces["net.1.bias"].any()


def test_a_network_computes_what_a_module_of_pytorch_does():
    rows, (inputs, _) = make(), batch(0)
    torch.testing.assert_close(apply_net(rows.pieces(rows.stack), inputs)[0], twin_of(rows)(inputs[0]))


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (1, 4), (2, 5)])
def test_steps_are_those_of_pytorchs_adam(epochs, minibatches):
    rows = make(epochs=epochs, minibatches=minibatches)
    twin = twin_of(rows)
    adam = torch.optim.Adam(twin.parameters(), lr=0.01)
    for number in range(4):
        inputs, targets = batch(number)
        shown = rows.fit(squares, inputs, targets)
        losses = []
        for _ in range(epochs):
            for part in range(minibatches):
                loss = (twin(inputs[0, part::minibatches]) - targets[0, part::minibatches]).square().mean()
                adam.zero_grad()
                loss.backward()
                adam.step()
                losses.append(loss.item())
        assert shown.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    expected = twin_of(rows)
    for mine, theirs in zip(expected.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert rows.steps.item() == 4 * epochs * minibatches


def test_there_are_no_more_minibatches_than_rows():
    rows = make(minibatches=100)
    rows.fit(squares, *batch(0, points=7))
    assert rows.steps.item() == 7


@pytest.mark.parametrize("points", [1, 7, 33])
def test_a_learner_learns_the_same_bits_alone_and_beside_others(points):
    together, alone = make(3, seed=[4, 5, 6]), [make(1, seed=[seed]) for seed in (4, 5, 6)]
    for number in range(3):
        inputs, targets = batch(number, 3, points)
        shown = together.fit(squares, inputs, targets)
        for learner, each in enumerate(alone):
            mine = slice(learner, learner + 1)
            assert torch.equal(each.fit(squares, inputs[mine], targets[mine])[0], shown[learner])
            for name, state in each.state_dict().items():
                assert torch.equal(state[0], together.state_dict()[name][learner]), name
    computed = in_shares(lambda rows, given: apply_net(together.pieces(rows), given), together.stack, inputs)
    for learner, each in enumerate(alone):
        mine = inputs[learner : learner + 1]
        assert torch.equal(
            in_shares(lambda r, g: apply_net(together.pieces(r), g), each.stack, mine)[0], computed[learner]
        )


def test_one_seed_makes_all_learners_alike_and_one_for_each_does_not():
    alike, different = make(2, seed=3).rows, make(2, seed=[3, 4]).rows
    assert torch.equal(alike[0], alike[1])
    assert torch.equal(different[0], alike[0])
    assert not torch.equal(different[0], different[1])
    assert torch.equal(make(seed=3).rows, alike[0])
    assert NetworkRows(SIZES, generators_of(3, None), None).rows.shape == alike[0].shape
    with pytest.raises(ValueError, match="seed must be one number, or one for each of learners=3, got 2"):
        make(3, seed=[1, 2])


def test_how_networks_cannot_learn_is_refused():
    for name, number, told in (
        ("learning_rate", 0.0, "finite and above 0"),
        ("epochs", 0, "at least 1"),
        ("minibatches", 0, "at least 1"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be {told}, got {number}"):
            make(**{name: number})
