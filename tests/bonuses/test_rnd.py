import numpy as np
import pytest
import torch
from torch import nn

from vcse.bonuses import BonusBatch, RandomNetworkDistillation

SMALL = {"hidden_units": 8, "outputs": 4, "epochs": 1, "minibatches": 1}


def make(dimensions=3, **changes):
    return RandomNetworkDistillation(dimensions, **{**SMALL, **changes})


def rollouts(count, *, environments=2, steps=5, dimensions=3):
    """Some rollouts, environment by environment, of which one dimension is larger and another never changes."""
    generator = torch.Generator().manual_seed(1)
    scale = torch.tensor([1.0, 100.0, 0.0][:dimensions])
    shape = (count, environments * steps, dimensions)
    return list(scale * torch.randn(shape, generator=generator).pow(3) + 2.0)


def twins_of(bonus):
    """The target and the predictor as modules of PyTorch."""
    nets = []
    for rows, name in ((bonus.target, "target"), (bonus.predictor, "predictor")):
        pieces = rows.pieces(rows.stack)
        layers = []
        for number in range(len(pieces) // 2):
            weight, bias = (pieces[f"{name}.{number}.{kind}"][0] for kind in ("weight", "bias"))
            layer = nn.Linear(*weight.shape)
            layer.weight.data.copy_(weight.T)
            layer.bias.data.copy_(bias)
            layers += [layer, nn.LeakyReLU(0.2) if number == 0 else nn.ReLU()]
        nets.append(nn.Sequential(*layers[:-1]))
    return nets


@pytest.mark.parametrize("environments", [2, None])
def test_rewards_and_learning_are_those_of_a_plain_loop(environments):
    """Everything as the paper says, number by number, with NumPy's moments of all that was seen so far."""
    bonus = make(environments=environments, state="present", learning_rate=0.01)
    target, predictor = twins_of(bonus)
    adam = torch.optim.Adam(predictor.parameters(), lr=0.01)
    seen, sums, running = [], [], np.zeros(2)
    for features in rollouts(4):
        paid = bonus(features).reward
        seen.append(features.numpy().astype(np.float64))
        everything = np.concatenate(seen)
        spread = everything.std(0)
        inputs = (seen[-1] - everything.mean(0)) / np.where(spread > 0, spread, 1.0)
        inputs = torch.from_numpy(inputs.clip(-5, 5)).float()
        error = (target(inputs) - predictor(inputs)).square().mean(-1)
        found = error.detach().double().numpy()
        if environments is None:
            sums += found.tolist()
        else:
            for now in found.reshape(2, 5).T:
                running = 0.99 * running + now
                sums += running.tolist()
        np.testing.assert_allclose(paid.numpy(), found / np.std(sums), rtol=2e-4)

        shown = bonus.learn(BonusBatch(features))["predictor_loss"]
        adam.zero_grad()
        error.mean().backward()
        adam.step()
        assert shown.item() == pytest.approx(error.mean().item(), rel=1e-4)


def test_inputs_are_clipped_at_five_standard_deviations():
    features = torch.zeros(1000, 1)
    features[0] = 1.0  # more than 31 standard deviations from the mean
    features[1] = 100.0
    paid = make(1, state="present", normalize_reward=False)(features).reward
    nearly = torch.zeros(1000, 1)
    nearly[1] = 1000.0  # as far, in standard deviations
    assert paid[1] == make(1, state="present", normalize_reward=False)(nearly).reward[1]


def test_an_error_is_the_mean_square_of_all_outputs_and_a_first_step_is_one_of_adam():
    bonus = make(normalize_reward=False, state="present", learning_rate=0.25)
    for rows in (bonus.target.rows, bonus.predictor.rows):
        rows.zero_()
    bonus.predictor.pieces(bonus.predictor.stack)["predictor.3.bias"].copy_(torch.tensor([1.0, -2.0, 2.0, 0.5]))
    features = rollouts(1)[0]
    torch.testing.assert_close(bonus(features).reward, torch.full((10,), (1 + 4 + 4 + 0.25) / 4))
    assert bonus.learn(BonusBatch(features))["predictor_loss"].item() == pytest.approx(9.25 / 4)
    learned = bonus.predictor.pieces(bonus.predictor.stack)["predictor.3.bias"][0]
    torch.testing.assert_close(learned, torch.tensor([0.75, -1.75, 1.75, 0.25]))


def test_of_equal_errors_none_is_divided_by_zero():
    bonus = make(state="present")
    assert bonus(torch.ones(4, 3)).reward.isfinite().all()
    assert bonus(torch.ones(1, 3)).reward.isfinite().all()


@pytest.mark.parametrize("environments", [1, 2])
def test_discounted_sums_go_on_in_the_next_rollout(environments):
    """Two rollouts of five steps leave behind what one of ten does."""
    together, apart = (
        make(state="present", environments=environments, normalize_inputs=False, discount=0.9) for _ in range(2)
    )
    whole = rollouts(1, environments=environments, steps=10)[0]
    by_environment = whole.view(environments, 10, 3)
    errors = make(state="present", normalize_inputs=False, normalize_reward=False)(whole).reward
    together(whole)
    for part in (by_environment[:, :5], by_environment[:, 5:]):
        apart(part.flatten(0, 1))
    expected = torch.zeros(environments, dtype=torch.float64)
    for now in errors.view(environments, 10).T:
        expected = 0.9 * expected + now.double()
    torch.testing.assert_close(together.sums, expected)
    torch.testing.assert_close(apart.sums, together.sums)
    torch.testing.assert_close(apart.reward_moments.variance, together.reward_moments.variance)


def test_the_next_state_is_looked_at_or_the_present_one():
    following, present = make(), make(state="present")
    assert (following.needs_next_features, present.needs_next_features) == (True, False)
    now, later = rollouts(2)
    assert torch.equal(following(now, next_features=later).reward, present(later).reward)
    following.learn(BonusBatch(now, next_features=later))
    present.learn(BonusBatch(later))
    assert torch.equal(following.predictor.rows, present.predictor.rows)
    with pytest.raises(ValueError, match="next_features is needed by RandomNetworkDistillation"):
        following(now)


def test_what_is_familiar_pays_less():
    bonus = make(state="present", hidden_units=32, outputs=16, learning_rate=1e-3, normalize_reward=False)
    generator = torch.Generator().manual_seed(0)
    familiar = torch.rand(128, 3, generator=generator)
    strange = familiar + 3.0
    first = bonus(torch.cat((familiar, strange))).reward.view(2, -1).mean(-1)
    for _ in range(100):
        bonus.learn(BonusBatch(familiar))
    last = bonus(torch.cat((familiar, strange))).reward.view(2, -1).mean(-1)
    assert last[0] < 0.1 * first[0]
    assert last[1] > 5 * last[0]


def test_every_deviation_makes_a_difference():
    features = rollouts(1)[0]
    rewards = [
        make(state="present", environments=2, **changes)(features).reward
        for changes in ({}, {"normalize_inputs": False}, {"normalize_reward": False}, {"discount": 0.5}, {"seed": 1})
    ]
    for place, one in enumerate(rewards):
        assert not any(torch.allclose(one, other) for other in rewards[:place])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "last"}, "state must be one of next, present, got 'last'"),
        ({"discount": 1.5}, r"discount must be from 0 to 1, got 1\.5"),
        ({"environments": 0}, "environments must be at least 1, got 0"),
        ({"hidden_units": 0}, "hidden_units must be at least 1, got 0"),
        ({"outputs": 0}, "outputs must be at least 1, got 0"),
        ({"dimensions": 0}, "dimensions must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"learning_rate": -1.0}, r"learning_rate must be finite and above 0, got -1\.0"),
        ({"normalize_inputs": 1}, "normalize_inputs must be True or False, got 1"),
    ],
)
def test_what_it_cannot_be_is_refused(changes, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_what_does_not_fit_is_refused(without_type_checks):
    bonus = make(state="present", environments=3)
    with pytest.raises(ValueError, match="features of 4 dimensions do not fit a bonus that was made for 3"):
        bonus(torch.rand(6, 4))
    with pytest.raises(ValueError, match="a batch of 8 states is no rollout of environments=3"):
        bonus(torch.rand(8, 3))
    with pytest.raises(ValueError, match=r"next_features must have shape \(6, 3\) .*, got \(5, 3\)"):
        make()(torch.rand(6, 3), next_features=torch.rand(5, 3))
    broken = torch.rand(6, 3)
    broken[2, 1] = torch.nan
    before = {name: each.clone() for name, each in bonus.state_dict().items()}
    with pytest.raises(ValueError, match="features must be finite, but 1 of its 18 entries"):
        bonus(broken)
    assert all(torch.equal(before[name], each) for name, each in bonus.state_dict().items())
