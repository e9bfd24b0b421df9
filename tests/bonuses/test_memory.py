import pytest
import torch

from vcse.bonuses import FeatureMemory


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


def test_of_too_large_a_batch_the_end_is_kept():
    memory = FeatureMemory(3, 1)
    memory.push(rows(1, 2, 3, 4, 5))
    assert remembered(memory) == [3, 4, 5]


def test_learners_have_memories_of_their_own():
    memory = FeatureMemory(2, 1, learners=2)
    memory.push(torch.stack((rows(1, 2, 3), rows(7, 8, 9))))
    assert sorted(memory.pool()[0].flatten().tolist()) == [2, 3]
    assert sorted(memory.pool()[1].flatten().tolist()) == [8, 9]


def test_state_dict_continues_where_it_was(tmp_path):
    memory = FeatureMemory(4, 1)
    memory.push(rows(1, 2, 3))
    torch.save(memory.state_dict(), tmp_path / "memory.pt")
    restored = FeatureMemory(4, 1)
    restored.load_state_dict(torch.load(tmp_path / "memory.pt", weights_only=True))
    assert remembered(restored) == [1, 2, 3]
    for each in (memory, restored):
        each.push(rows(4, 5))
    assert torch.equal(memory.pool(), restored.pool())


def test_features_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"\(5, 3\) do not fit a memory of shape \(4, 2\)"):
        FeatureMemory(4, 2).push(torch.zeros(5, 3))


def test_sizes_below_one_are_refused():
    with pytest.raises(ValueError, match="at least 1, got 0 and 2"):
        FeatureMemory(0, 2)
