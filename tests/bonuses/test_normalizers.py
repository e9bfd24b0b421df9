import re

import pytest
import torch

from vcse.bonuses import (
    BatchStandardized,
    BatchStd,
    EmaAbs,
    NoNormalizer,
    Normalizer,
    RawValues,
    ReleasedRunning,
    RunningMean,
    RunningStandardized,
    RunningStd,
    ValueNormalizer,
)

STREAM = torch.randn(6, 4, 50, generator=torch.Generator().manual_seed(0)) * 2 + 3  # updates, learners, batch


def stateful(learners):
    return {
        "running-std": RunningStd(learners=learners),
        "running-mean": RunningMean(learners=learners),
        "ema-abs": EmaAbs(learners=learners),
        "released-std": ReleasedRunning("std", learners=learners),
        "released-mean": ReleasedRunning("mean", learners=learners),
        "running-values": RunningStandardized(learners=learners),
    }


def test_running_moments_are_those_of_everything_seen():
    normalizer = RunningStd(learners=4)
    for batch in STREAM:
        result = normalizer(batch)
    seen = STREAM.transpose(0, 1).flatten(1)
    torch.testing.assert_close(normalizer.moments.mean, seen.double().mean(-1))
    torch.testing.assert_close(normalizer.moments.variance, seen.double().var(-1, correction=0))
    torch.testing.assert_close(result, STREAM[-1] / seen.std(-1, correction=0).unsqueeze(-1))


def test_running_moments_weigh_batches_by_their_size():
    normalizer = RunningMean()
    normalizer(torch.full((90,), 1.0))
    normalizer(torch.full((10,), 11.0))
    torch.testing.assert_close(normalizer.moments.mean, torch.tensor(2.0, dtype=torch.float64))


def test_running_mean_divides_by_the_mean():
    normalizer = RunningMean()
    normalizer(torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(normalizer(torch.tensor([4.0, 8.0])), torch.tensor([1.0, 2.0]))


def test_batch_std_divides_by_the_sample_deviation():
    torch.testing.assert_close(BatchStd()(STREAM[0]), STREAM[0] / STREAM[0].std(-1, keepdim=True))


def test_ema_abs_starts_at_one_and_moves_by_a_hundredth():
    normalizer = EmaAbs()
    result = normalizer(torch.tensor([-3.0, 3.0]))
    torch.testing.assert_close(normalizer.magnitude, torch.tensor(0.99 * 1 + 0.01 * 3))
    torch.testing.assert_close(result, torch.tensor([-3.0, 3.0]) / 1.02)


def test_released_mean_is_the_last_batch_mean_plus_one_over_t():
    normalizer = ReleasedRunning("mean", learners=4)
    for update, batch in enumerate(STREAM, 1):
        normalizer(batch)
        torch.testing.assert_close(normalizer.mean, batch.mean(-1) + 1 / update, rtol=1e-5, atol=1e-5)


def test_released_variance_is_inflated_as_its_mistake_says():
    normalizer = ReleasedRunning("std", learners=4)
    for batch in STREAM:
        result = normalizer(batch)
    updates = len(STREAM)
    means, variances = STREAM.mean(-1), STREAM.var(-1)
    expected = variances[0] + means[0] ** 2 * 1e-4 / 50 + 1e-4 / 50  # the start: mean 0, variance 1, weight 1e-4
    for t in range(2, updates + 1):
        expected = expected + variances[t - 1] + (t - 1) / t * (means[t - 1] - means[t - 2] - 1 / (t - 1)) ** 2
    expected = expected / updates
    torch.testing.assert_close(normalizer.variance, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result, STREAM[-1] / normalizer.variance.sqrt().unsqueeze(-1))


@pytest.mark.parametrize("epsilon", [0.0, 1e-5, 1e-3])
def test_values_are_standardised_like_a_layer_norm(epsilon):
    expected = torch.nn.functional.layer_norm(STREAM[0], (50,), eps=epsilon)
    torch.testing.assert_close(BatchStandardized(epsilon=epsilon)(STREAM[0]), expected)


def test_epsilon_shrinks_values_of_little_spread():
    values = 1e-4 * torch.tensor([-1.0, 1.0])
    assert BatchStandardized(epsilon=1e-3)(values).abs().max() < 0.01
    torch.testing.assert_close(BatchStandardized()(values), torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize("normalizer", [*stateful(None).values(), BatchStd(), BatchStandardized(), RawValues()])
def test_equal_numbers_give_equal_finite_numbers(normalizer):
    for constant in (0.0, 0.7):
        result = normalizer(torch.full((8,), constant))
        assert torch.isfinite(result).all()
        assert (result == result[0]).all()


@pytest.mark.parametrize("size", [7, 50, 100])
def test_equal_numbers_have_no_running_deviation(size):
    normalizer = RunningStd()
    for _ in range(3):
        assert torch.equal(normalizer(torch.full((size,), 0.7)), torch.full((size,), 0.7))


@pytest.mark.parametrize("exponent", [-120, -83, 83, 120])
@pytest.mark.parametrize("make", [BatchStandardized, lambda: RunningStandardized(learners=4)])
def test_values_of_any_scale_are_standardised_alike(make, exponent):
    # Squares of 2⁸³, about 1e25, overflow float32; those of 2⁻⁸³ vanish in it.
    torch.testing.assert_close(make()(STREAM[0] * 2.0**exponent), make()(STREAM[0]))


def test_values_up_to_the_largest_number_are_standardised():
    largest = torch.finfo(torch.float32).max
    for normalizer in (BatchStandardized(), RunningStandardized()):
        assert torch.equal(normalizer(torch.tensor([-largest, largest])), torch.tensor([-1.0, 1.0]))
    assert torch.equal(
        BatchStandardized()(torch.tensor([-1e300, 1e300], dtype=torch.float64)),
        torch.tensor([-1.0, 1.0], dtype=torch.float64),
    )


def test_epsilon_counts_at_the_scale_of_the_values():
    for scale in (1e-30, 1e-10, 1e25):
        values = scale * torch.tensor([-1.0, 1.0], dtype=torch.float64)
        expected = values / torch.tensor(scale**2 + 1e-5, dtype=torch.float64).sqrt()
        torch.testing.assert_close(BatchStandardized(epsilon=1e-5)(values.float()), expected.float(), atol=0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", [*stateful(None), "batch-values"])
def test_a_batch_keeps_its_dtype(name, dtype):
    one, another = (stateful(4) | {"batch-values": BatchStandardized()} for _ in range(2))
    result = one[name](STREAM[0].to(dtype))
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), another[name](STREAM[0]), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", stateful(None))
@pytest.mark.parametrize(
    ("learners", "shape", "remedy"),
    [
        (None, (4, 50), "learners=4"),
        (3, (4, 50), "learners=4"),
        (1, (4, 50), "learners=4"),
        (4, (50,), "learners=None"),
        (4, (1, 4, 50), "learners= and one leading axis"),
    ],
)
def test_a_batch_of_other_learners_is_refused_and_leaves_the_statistics_alone(name, learners, shape, remedy):
    normalizer = stateful(learners)[name]
    before = {key: value.clone() for key, value in normalizer.state_dict().items()}
    kept = (learners,) if learners else ()
    with pytest.raises(ValueError, match=re.escape(f"shape {shape} does not fit statistics of shape {kept}")) as error:
        normalizer(torch.ones(shape))
    assert str(error.value).endswith(remedy)
    assert all(torch.equal(value, before[key]) for key, value in normalizer.state_dict().items())


@pytest.mark.parametrize("interface", [Normalizer, ValueNormalizer])
def test_a_normaliser_without_a_forward_says_so(interface):
    class Unfinished(interface):
        pass

    with pytest.raises(NotImplementedError, match="Unfinished does not define forward"):
        Unfinished()(STREAM[0])


@pytest.mark.parametrize("name", stateful(None))
def test_a_learner_axis_equals_a_loop(name):
    together = stateful(4)[name]
    apart = [stateful(None)[name] for _ in range(4)]
    for batch in STREAM:
        expected = torch.stack([normalizer(own) for normalizer, own in zip(apart, batch, strict=True)])
        assert torch.equal(together(batch), expected)


@pytest.mark.parametrize("name", stateful(None))
def test_state_dict_holds_everything(name):
    original, restored = stateful(4)[name], stateful(4)[name]
    for batch in STREAM[:4]:
        original(batch)
    restored.load_state_dict(original.state_dict())
    for batch in STREAM[4:]:
        assert torch.equal(original(batch), restored(batch))


def test_no_normalizer_changes_nothing():
    assert torch.equal(NoNormalizer()(STREAM[0]), STREAM[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EmaAbs(momentum=1.5), "momentum must lie between 0 and 1, got 1.5"),
        (lambda: BatchStandardized(epsilon=-1.0), "epsilon must be finite and not negative, got -1.0"),
        (lambda: RunningStd(learners=0), "learners must be at least 1, got 0"),
        (lambda: BatchStd()(torch.ones(3, 1)), "at least 2, got 1"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_learners_that_are_no_number_are_named(without_type_checks):
    for learners in (True, 2.0, "3"):
        with pytest.raises(ValueError, match=f"learners must be an integer, got {learners!r}"):
            RunningStd(learners=learners)


def test_unknown_statistic_is_named(without_type_checks):
    with pytest.raises(ValueError, match="'std' or 'mean', got 'median'"):
        ReleasedRunning("median")
