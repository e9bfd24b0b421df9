import numpy as np
import pytest
import torch
from integrations.common import no_global_random_numbers
from torch import nn

from vcse.bonuses import StateEntropy
from vcse.integrations import (
    JoinedEncoder,
    QNetwork,
    RandomEncoder,
    ReplayBonus,
    RolloutBonus,
    StateFeatures,
    ValueNetwork,
    encoder_for,
)
from vcse.integrations.networks import evaluating

SHAPES = {
    "small vector": (4,),
    "large vector": (300,),
    "image": (64, 64, 3),
    "image, channels first": (3, 64, 64),
    "stacked frames": (4, 84, 84),
    "grid": (7, 7, 3),
    "grid, channels first": (3, 9, 9),
    "small grid": (3, 3, 2),
    "one cell": (1, 1, 5),
}
of_every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
NETWORKS = [RandomEncoder, ValueNetwork, lambda shape, **choices: QNetwork(shape, 2, **choices)]


def observe(shape, count=6, *, seed=0):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


@of_every_shape
def test_shapes_and_sizes_may_be_numpy_s_integers(shape, without_type_checks):
    numpy_shape = tuple(np.array(shape))
    part = ReplayBonus(lambda each: torch.zeros(len(each)), numpy_shape, actions=np.int64(2), bonus=StateEntropy(k=1))
    rest = torch.zeros(6), torch.zeros(6), observe(shape, seed=1), torch.zeros(6)
    assert part(observe(shape), *rest).isfinite().all()
    assert QNetwork(numpy_shape, np.int64(3))(observe(shape), torch.zeros(6, 3)).shape == (6,)
    rollout = RolloutBonus({"state": (np.int64(4),), "view": numpy_shape}, bonus=StateEntropy(k=1), epochs=1)
    seen = {"state": torch.rand(3, 2, 4), "view": observe(shape).view(3, 2, *shape)}
    assert rollout(seen, torch.zeros(3, 2), seen, torch.zeros(3, 2), torch.zeros(3, 2)).shape == (3, 2)


@of_every_shape
def test_networks_serve_vectors_images_and_grids(shape):
    observations, actions = observe(shape), torch.zeros(6, 2)
    assert RandomEncoder(shape, features=16)(observations).shape == (6, 16)
    assert ValueNetwork(shape)(observations).shape == (6,)
    assert QNetwork(shape, 2)(observations, actions).shape == (6,)
    features = encoder_for(shape)(observations)
    assert features.shape == (6, 4 if shape == (4,) else 64)
    assert features.std(0).min() > 0  # they tell observations apart


@of_every_shape
def test_features_are_of_scale_1_at_most_2_apart(shape):
    features = RandomEncoder(shape)(observe(shape))
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(6), atol=1e-2, rtol=0)


def test_small_states_are_features_of_themselves_over_the_root_of_their_size():
    states = torch.tensor([[3, 4, 0, 0], [0, 0, 1, 0]])
    assert torch.equal(StateFeatures(4)(states), states.float() / 2)


@pytest.mark.parametrize("make", NETWORKS)
def test_parameters_depend_on_the_seed_alone_and_no_global_random_number_is_drawn(make, without_type_checks):
    with no_global_random_numbers():
        one = make((4,), seed=3)
    torch.manual_seed(2)
    for same, other in zip(one.parameters(), make((4,), seed=3).parameters(), strict=True):
        assert torch.equal(same, other)
    weights = [next(make((4,), seed=seed).parameters()) for seed in (3, 4)]
    assert not torch.equal(*weights)


def test_a_random_encoder_is_never_trained():
    encoder = RandomEncoder((7, 7, 3))
    assert not any(each.requires_grad for each in encoder.parameters())
    assert not encoder(observe((7, 7, 3)).requires_grad_()).requires_grad


@pytest.mark.parametrize("network", [RandomEncoder((64, 64, 3)), ValueNetwork((64, 64, 3))])
def test_bytes_of_an_image_are_taken_as_shares_of_255(network):
    pixels = torch.randint(0, 256, (4, 64, 64, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    torch.testing.assert_close(network(pixels), network(pixels.float() / 255))


def test_cells_of_a_grid_are_numbers_as_they_are():
    cells = torch.randint(0, 11, (4, 7, 7, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    encoder = RandomEncoder((7, 7, 3))
    assert torch.equal(encoder(cells), encoder(cells.float()))


def test_channels_first_or_last_is_the_same_image():
    first, last = RandomEncoder((3, 64, 64)), RandomEncoder((64, 64, 3))
    pixels = observe((3, 64, 64))
    torch.testing.assert_close(first(pixels), last(pixels.permute(0, 2, 3, 1)))
    said = RandomEncoder((64, 64, 64), channels_first=True)
    assert not torch.equal(
        said(observe((64, 64, 64))), RandomEncoder((64, 64, 64), channels_first=False)(observe((64, 64, 64)))
    )


def test_the_value_of_an_action_hangs_on_the_action():
    critic, states = QNetwork((4,), 2), observe((4,))
    zeros = critic(states, torch.zeros(6, 2))
    assert not torch.equal(critic(states, torch.ones(6, 2)), zeros)
    assert torch.equal(critic(states, torch.zeros(6, 2, dtype=torch.float64)), zeros)


def test_parts_of_a_dictionary_count_alike():
    shapes = {"view": (64, 64, 3), "speed": (2,), "goal": (3,)}
    observations = {name: observe(shape, seed=number) for number, (name, shape) in enumerate(shapes.items())}
    encoder = encoder_for(shapes)
    assert isinstance(encoder, JoinedEncoder)
    vectors = StateFeatures(5)(torch.cat((observations["goal"], observations["speed"]), -1))
    view = RandomEncoder((64, 64, 3), seed=1)(observations["view"])
    torch.testing.assert_close(encoder(observations), torch.cat((vectors, view), -1) / 2**0.5)


def test_critics_see_all_of_a_dictionary():
    shapes = {"view": (64, 64, 3), "speed": (2,)}
    observations = {name: observe(shape) for name, shape in shapes.items()}
    for critic in (ValueNetwork(shapes), QNetwork(shapes, 2)):
        given = () if isinstance(critic, ValueNetwork) else (torch.zeros(6, 2),)
        values = critic(observations, *given)
        assert values.shape == (6,)
        for name in shapes:
            assert not torch.equal(values, critic(observations | {name: observations[name] + 1}, *given))


def test_modules_of_an_agent_are_used_without_a_trace(without_type_checks):
    agent = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).train()
    agent[2].eval()
    before = [each.clone() for each in agent.buffers()]
    with no_global_random_numbers(), evaluating(agent.modules()):
        assert torch.equal(agent(observe((4,))), agent(observe((4,))))
    assert [each.training for each in agent] == [True, True, False]
    assert all(torch.equal(*pair) for pair in zip(before, agent.buffers(), strict=True))


@pytest.mark.parametrize("make", [*NETWORKS, encoder_for])
@pytest.mark.parametrize("shape", [(), (5, 5), (2, 3, 4, 5)])
def test_other_shapes_are_refused_with_what_is_served(make, shape, without_type_checks):
    with pytest.raises(
        ValueError, match=r"observations of shape \(.*\) are not supported: .* vectors, \[size\], .*grids"
    ):
        make(shape)


@pytest.mark.parametrize("network", [RandomEncoder((64, 64, 3)), ValueNetwork((5,))])
def test_observations_of_another_shape_are_named(network):
    with pytest.raises(ValueError, match=r"observations of shape \(6, 4\) are not of \(.*\) each"):
        network(torch.zeros(6, 4))


def test_networks_are_modules_whose_state_comes_back():
    one, other = RandomEncoder((7, 7, 3), seed=0), RandomEncoder((7, 7, 3), seed=1)
    assert isinstance(one, nn.Module)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(observe((7, 7, 3))), other(observe((7, 7, 3))))


@pytest.mark.parametrize("shape", [4, (4.0,), {"position": 2}, "4"])
def test_a_shape_that_is_none_is_named(shape, without_type_checks):
    with pytest.raises(
        ValueError, match=r"^shape must be a tuple of integers such as \(4,\), or a dictionary of these"
    ):
        ValueNetwork(shape)
