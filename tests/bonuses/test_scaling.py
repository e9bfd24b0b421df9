import copy
import statistics

import pytest
import torch

from vcse.bonuses import (
    MatchedStateEntropy,
    NoBonus,
    NoNormalizer,
    RewardConditionalStateEntropy,
    RewardScaling,
    StackedBonus,
    StateEntropy,
    ValueConditionalStateEntropy,
)

BONUSES = {
    "none": NoBonus,
    "se": lambda **choices: StateEntropy(k=3, **choices),
    "se-matched": lambda **choices: MatchedStateEntropy(k=3, **choices),
    "vcse": lambda **choices: ValueConditionalStateEntropy(k=3, **choices),
    "rcse": lambda **choices: RewardConditionalStateEntropy(k=3, **choices),
}
of_every_bonus = pytest.mark.parametrize("make", BONUSES.values(), ids=BONUSES)


def batches(count, shape=(32,), *, seed=0):
    """Return rewards whose mean and spread change from batch to batch."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=generator) - 5) * (number + 1) for number in range(count)]


def pay(bonus, shape=(32,), *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features, given = torch.randn(*shape, 4, generator=generator), torch.randn(shape, generator=generator)
    return bonus(features, values=given, rewards=given)


def test_the_scalings_by_hand():
    rewards = torch.tensor([1.0, 2.0, 6.0])  # mean 3, variance 14/3
    assert RewardScaling("raw")(rewards) is rewards
    torch.testing.assert_close(RewardScaling("centered")(rewards), torch.tensor([-2.0, -1.0, 3.0]))
    wanted = torch.tensor([-2.0, -1.0, 3.0]) / (14 / 3) ** 0.5
    torch.testing.assert_close(RewardScaling("standardized")(rewards), wanted)


@pytest.mark.parametrize("name", ["centered", "standardized"])
def test_running_statistics_are_those_of_all_rewards_so_far(name):
    scaling, seen = RewardScaling(name, statistics="running"), []
    for batch in batches(4):
        seen += batch.tolist()
        wanted = [number - statistics.fmean(seen) for number in batch.tolist()]
        if name == "standardized":
            wanted = [number / statistics.pstdev(seen) for number in wanted]
        torch.testing.assert_close(scaling(batch), torch.tensor(wanted))


def test_a_bonus_that_shrinks_is_paid_less_by_running_statistics_alone():
    large, small = torch.linspace(-10, 10, 64), torch.linspace(-1, 1, 64)
    running, batch = RewardScaling("standardized", statistics="running"), RewardScaling("standardized")
    assert running(large).std() > 5 * running(small).std()
    torch.testing.assert_close(batch(large), batch(small))


@pytest.mark.parametrize("rewards", [torch.zeros(8), torch.full((8,), -11.512925), torch.full((8,), 3e38)])
@pytest.mark.parametrize("whose", ["batch", "running"])
def test_equal_rewards_are_paid_0(rewards, whose):
    scaling = RewardScaling("standardized", statistics=whose)
    for _ in range(3):
        assert (scaling(rewards) == 0).all()


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_standardised_rewards_have_mean_0_and_spread_1_at_any_scale(scale):
    scaled = RewardScaling("standardized")(scale * batches(1)[0])
    assert scaled.double().mean().abs() < 1e-6
    assert (scaled.double().std(correction=0) - 1).abs() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_stays(dtype):
    assert RewardScaling("standardized")(batches(1)[0].to(dtype)).dtype == dtype


@pytest.mark.parametrize("whose", ["batch", "running"])
@pytest.mark.parametrize("name", ["centered", "standardized"])
def test_learners_have_statistics_of_their_own(name, whose):
    together = RewardScaling(name, statistics=whose, learners=3)
    alone = [RewardScaling(name, statistics=whose) for _ in range(3)]
    for batch in batches(3, (3, 32)):
        assert torch.equal(together(batch), torch.stack([each(row) for each, row in zip(alone, batch, strict=True)]))


@pytest.mark.parametrize("whose", ["batch", "running"])
def test_a_running_scaling_goes_on_from_its_state_bit_for_bit(whose):
    one = RewardScaling("standardized", statistics=whose)
    first, second, third = batches(3)
    one(first)
    other = RewardScaling("standardized", statistics=whose)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for batch in (second, third):
        assert torch.equal(one(batch), other(batch))


@of_every_bonus
@pytest.mark.parametrize("scaling", ["raw", "centered", "standardized"])
def test_every_bonus_pays_what_its_formula_says_scaled(make, scaling):
    raw, scaled = pay(make(scaling="raw")), pay(make(scaling=scaling))
    assert torch.equal(scaled.reward, RewardScaling(scaling)(raw.reward))
    assert scaled.formula is None if scaling == "raw" else torch.equal(scaled.formula, raw.reward)


@of_every_bonus
def test_the_state_of_a_bonus_that_keeps_nothing_for_scaling_has_no_keys_of_it(make):
    for scaling in ("raw", "centered", "standardized"):
        assert not [name for name in make(scaling=scaling).state_dict() if "scaling" in name]
    running = make(scaling=RewardScaling("standardized", statistics="running"))
    assert [name for name in running.state_dict() if "scaling" in name] == [
        f"scaling.moments.{name}" for name in ("mean", "variance", "count")
    ]


def test_stacked_bonuses_scale_each_learner_alone():
    choices = [("centered", [0, 3]), ("standardized", [2]), ("raw", [1])]
    parts = [
        (ValueConditionalStateEntropy(k=3, learners=len(mine), scaling=scaling), mine) for scaling, mine in choices
    ]
    generator = torch.Generator().manual_seed(1)
    features, values = torch.randn(4, 32, 5, generator=generator), torch.randn(4, 32, generator=generator)
    paid = StackedBonus.of(parts)(features, values=values)
    for scaling, mine in choices:
        for learner in mine:
            alone = ValueConditionalStateEntropy(k=3, scaling=scaling)(features[learner], values=values[learner])
            assert torch.equal(paid.reward[learner], alone.reward)
            assert torch.equal(paid.diagnostics()["bonus_mean"][learner], alone.diagnostics()["bonus_mean"])


def test_a_stacked_learner_goes_on_from_its_running_statistics():
    def make():
        scaling = RewardScaling("standardized", statistics="running", learners=2)
        return StackedBonus.of([(MatchedStateEntropy(k=3, learners=2, scaling=scaling), [0, 1])])

    one, other = make(), make()
    generator = torch.Generator().manual_seed(1)
    one(torch.randn(2, 16, 3, generator=generator))
    for learner in (0, 1):
        other.load_learner_state(learner, one.learner_state(learner))
    features = torch.randn(2, 16, 3, generator=generator)
    assert torch.equal(one(features).reward, other(features).reward)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RewardScaling("centred"), "scaling must be one of raw, centered, standardized, got 'centred'"),
        (lambda: RewardScaling("raw", statistics="all"), "statistics must be one of batch, running, got 'all'"),
        (
            lambda: NoBonus(learners=2, scaling=RewardScaling("centered", statistics="running")),
            "scaling has statistics of learners=None, but the bonus has learners=2",
        ),
        (
            lambda: NoBonus(scaling=RewardScaling("centered", statistics="running", learners=3)),
            "scaling has statistics of learners=3, but the bonus has learners=None",
        ),
    ],
)
def test_bad_scalings_are_named(make, message, without_type_checks):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()


ENTROPIES = [StateEntropy, MatchedStateEntropy, ValueConditionalStateEntropy, RewardConditionalStateEntropy]


@pytest.mark.parametrize("kind", ENTROPIES)
def test_the_recommended_reading_is_the_default_with_and_without_k(kind):
    changed = {"normalizer": NoNormalizer()} if kind is StateEntropy else {"log_offset": 1.0}
    for k, given in ((12, {}), (5, {"k": 5})):
        by_hand = kind(k=k, reading="clean", scaling="standardized", **changed)
        for bonus in (kind(**given), kind.recommended(**given), kind(**given, reading="recommended")):
            assert type(bonus) is kind
            assert torch.equal(pay(bonus).reward, pay(by_hand).reward)
            assert bonus.state_dict().keys() == by_hand.state_dict().keys()


@pytest.mark.parametrize("reading", ["paper", "clean", "release-sac", "release-mwm"])
@pytest.mark.parametrize("kind", ENTROPIES)
def test_other_readings_pay_what_their_formula_says(kind, reading):
    by_name = kind(k=5, reading=reading)
    assert by_name.scaling.name == "raw"
    assert torch.equal(pay(by_name).reward, pay(kind(k=5, reading=reading, scaling="raw")).reward)


def test_the_recommended_bonus_pays_duplicates_less_and_no_one_for_ending_episodes():
    features = torch.cat((torch.zeros(24, 2), torch.rand(8, 2, generator=torch.Generator().manual_seed(0)) * 5))
    output = ValueConditionalStateEntropy.recommended(k=3)(features, values=torch.zeros(32))
    torch.testing.assert_close(output.formula[:24], torch.digamma(torch.ones(24)) / 2)  # n_v = 0, and log(0 + 1)
    assert output.reward.double().mean().abs() < 1e-6
    assert output.reward[:24].max() < output.reward[24:].min()
