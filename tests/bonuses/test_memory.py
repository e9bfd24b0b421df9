import pytest
import torch

from vcse.bonuses import FeatureMemory, StateEntropy


def rows(*numbers):
    return torch.tensor([[float(number)] for number in numbers])


def remembered(memory):
    return sorted(memory.pool().flatten().tolist())


def test_the_oldest_are_forgotten_first():
    memory = FeatureMemory(4, 1)
    memory.push(rows(1, 2, 3))
    assert remembered(memory) == [1, 2, 3]
    memory.push(rows(4, 5))
    assert remembered(memory) == [2, 3, 4, 5]
    memory.push(rows(6, 7, 8))
    assert remembered(memory) == [5, 6, 7, 8]


def test_learners_have_memories_of_their_own():
    memory = FeatureMemory(2, 1, learners=2)
    memory.push(torch.stack((rows(1, 2), rows(7, 8))))
    memory.push(torch.stack((rows(3), rows(9))))
    assert sorted(memory.pool()[0].flatten().tolist()) == [2, 3]
    assert sorted(memory.pool()[1].flatten().tolist()) == [8, 9]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_dtype_of_the_first_batch_is_kept(dtype):
    memory = FeatureMemory(4, 1)
    memory.push(rows(1, 2).to(dtype) / 3)
    assert torch.equal(memory.pool(), rows(1, 2).to(dtype) / 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_memory_that_was_begun_in_inference_mode_goes_on_outside_of_it(dtype):
    memory, restored = FeatureMemory(4, 1), FeatureMemory(4, 1)
    with torch.inference_mode():
        memory.push(rows(1, 2, 3).to(dtype))
        restored.load_state_dict(memory.state_dict())
    for each in (memory, restored):
        each.push(rows(4, 5).to(dtype))
        assert remembered(each) == [2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_dict_continues_where_it_was(tmp_path, dtype):
    memory = FeatureMemory(4, 1)
    memory.push(rows(1, 2, 3).to(dtype))
    assert all(isinstance(each, torch.Tensor) for each in memory.state_dict().values())
    torch.save(memory.state_dict(), tmp_path / "memory.pt")
    restored = FeatureMemory(4, 1)
    restored.load_state_dict(torch.load(tmp_path / "memory.pt", weights_only=True))
    assert remembered(restored) == [1, 2, 3]
    for each in (memory, restored):
        each.push(rows(4, 5).to(dtype) / 3)
    assert torch.equal(memory.pool(), restored.pool())


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(3, 3), r"\(3, 3\) do not fit a memory of shape \(4, 2\)"),
        (torch.zeros(1, 3, 2), r"\(1, 3, 2\) do not fit a memory of shape \(4, 2\)"),
        (torch.zeros(2), r"features must have shape \[..., points, dimensions\], got \(2,\)"),
        (torch.zeros(0, 2), r"features is empty: its shape is \(0, 2\)"),
        (torch.zeros(5, 2), "a batch of 5 features does not fit a memory of 4"),
        (torch.zeros(3, 2).long(), r"features must be a floating-point tensor, got torch\.int64"),
        (torch.zeros(3, 2).double(), r"features has dtype torch\.float64 but the memory holds torch\.float32"),
        (torch.zeros(3, 2, device="meta"), "features is on meta but the memory is on cpu"),
        ([[0.0, 0.0]], "features must be a torch tensor, got a list"),
    ],
)
def test_features_that_do_not_fit_are_named_and_leave_the_memory_alone(features, message, without_type_checks):
    memory = FeatureMemory(4, 2)
    memory.push(torch.ones(3, 2))
    with pytest.raises(ValueError, match=message):
        memory.push(features)
    assert torch.equal(memory.pool(), torch.ones(3, 2))


def test_numbers_that_could_overflow_later_are_refused():
    # Two features of ±1e38 in every one of 64 coordinates lie 1.6e39 apart, which no float32 holds.
    memory = FeatureMemory(4, 64)
    memory.check_numbers(torch.full((3, 64), 1e37))
    with pytest.raises(ValueError, match=r"features reach 1e\+38, and beyond 1\.06e\+37 .* overflow torch\.float32"):
        memory.check_numbers(torch.full((3, 64), -1e38))
    memory.check_numbers(torch.full((3, 64), -1e38, dtype=torch.float64))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 2), "capacity must be at least 1, got 0"),
        ((4, 0), "dimensions must be at least 1, got 0"),
        ((4.0, 2), r"capacity must be an integer, got 4\.0"),
    ],
)
def test_sizes_that_make_no_memory_are_refused(sizes, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        FeatureMemory(*sizes)


class TestDistinctPool:
    def make(self, capacity=2000, learners=2):
        return FeatureMemory(capacity, 8, learners=learners)

    def batches(self, seed, count=40, points=128, different=50):
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(2, different, 8, generator=generator)
        for number in range(count):
            # What is seen changes over time, so that features leave the memory altogether.
            which = torch.randint(number // 2, number // 2 + 20, (2, points), generator=generator)
            which[1] //= 2
            yield table.gather(1, which[..., None].expand(-1, -1, 8))

    def test_is_the_memory_with_every_feature_once(self):
        memory = self.make()
        memory.distinct_pool()
        for batch in self.batches(0):
            memory.push(batch)
            features, counts = memory.distinct_pool()
            if counts is None:
                continue
            for learner in range(2):
                there = features[learner].repeat_interleave(counts[learner], 0)
                expected = memory.pool()[learner]
                assert torch.equal(there[_order(there)], expected[_order(expected)])
                present = features[learner][counts[learner] > 0]
                assert len(present.unique(dim=0)) == len(present)
        assert counts is not None
        assert features.shape[1] < 60

    def test_counts_of_the_latest_are_those_in_the_memory(self):
        memory = self.make()
        assert memory.counts_of_latest(0) is None
        for batch in self.batches(2):
            memory.push(batch)
            memory.distinct_pool()
            found = memory.counts_of_latest(128)
            for learner in range(2):
                same = (batch[learner][:, None] == memory.pool()[learner]).all(-1)
                assert torch.equal(found[learner], same.sum(-1))
        with pytest.raises(ValueError, match="the memory holds 2000 features, not 2001"):
            memory.counts_of_latest(2001)

    def test_loaded_or_copied_it_is_the_same(self):
        memory, other = self.make(), self.make()
        for batch in self.batches(1):
            memory.push(batch)
            memory.distinct_pool()
        other.load_state_dict(memory.state_dict())
        mine, theirs = (
            [each.repeat_interleave(number, 0) for each, number in zip(*one.distinct_pool(), strict=True)]
            for one in (memory, other)
        )
        for learner in range(2):
            assert torch.equal(mine[learner][_order(mine[learner])], theirs[learner][_order(theirs[learner])])

    def test_numbers_that_numpy_does_not_know_are_given_as_they_are(self):
        memory = FeatureMemory(2000, 1)
        for _ in range(3):
            memory.push(torch.randint(0, 3, (500, 1)).to(torch.bfloat16))
            pool, counts = memory.distinct_pool()
            assert counts is None
            assert torch.equal(pool, memory.pool())

    def test_many_different_features_and_small_memories_are_given_as_they_are(self):
        memory = self.make()
        memory.push(torch.randn(2, 500, 8, generator=torch.Generator().manual_seed(0)))
        features, counts = memory.distinct_pool()
        assert counts is None
        assert torch.equal(features, memory.pool())
        small = self.make(capacity=100)
        small.push(torch.zeros(2, 100, 8))
        assert small.distinct_pool()[1] is None


def _order(points):
    return sorted(range(len(points)), key=lambda row: points[row].tolist())


def test_devices_other_than_cpu_and_cuda_are_not_taken_for_a_cpu():
    bonus = StateEntropy(k=3, memory=FeatureMemory(5000, 3), check_finite=False).to("meta")
    assert bonus(torch.zeros(60, 3, device="meta")).reward.device.type == "meta"
