import pytest
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

from vcse.integrations import ReplayBonus, RolloutBonus
from vcse.integrations.base import check_device


def test_a_device_without_float64_is_refused_by_name():
    check_device(torch.device("cpu"))
    with pytest.raises(ValueError, match=r"computes in float64, which mps does not have: keep it and .* on cpu$"):
        check_device(torch.device("mps"))


@pytest.fixture
def process_group(request):
    """Be the first of several processes, the others of which are not there."""
    torch.distributed.init_process_group("fake", rank=0, world_size=request.param, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def bonuses():
    """Return a bonus of each kind, and what to call it with."""
    observations, next_observations = torch.rand(2, 32, 4)
    zeros = torch.zeros(32)
    replay = ReplayBonus(lambda each: each[:, :2], (4,), 2)
    yield replay, (observations, torch.rand(32, 2), zeros, next_observations, zeros)
    columns = [each[:, None] for each in (observations, zeros, next_observations, zeros, zeros)]
    yield RolloutBonus((4,)), columns


@pytest.mark.parametrize("process_group", [2], indirect=True)
def test_several_processes_that_train_one_agent_are_refused(process_group):
    for part, batch in bonuses():
        with pytest.raises(ValueError, match=r"^distributed training is not supported: each of the 2 processes would"):
            part(*batch)


@pytest.mark.parametrize("process_group", [1], indirect=True)
def test_one_process_may_have_a_group(process_group):
    for part, batch in bonuses():
        assert part(*batch).isfinite().all()
