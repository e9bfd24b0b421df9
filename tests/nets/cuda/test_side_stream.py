import pytest
import torch

from vcse.nets.cuda.side_stream import SideStream


def test_without_a_gpu_operations_simply_run():
    beside, numbers = SideStream(torch.device("cpu")), torch.zeros(3)
    with beside:
        numbers += 1
    assert not beside.is_busy
    beside.wait()
    assert numbers.tolist() == [1, 1, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_work_beside_begins_after_what_was_before_and_ends_before_what_waits_for_it():
    beside, before = SideStream(torch.device("cuda")), torch.cuda.current_stream()
    for _ in range(20):
        large = torch.ones(4000, 4000, device="cuda")
        total = large @ large  # takes longer than to ask for what follows
        with beside:
            assert torch.cuda.current_stream() != before
            doubled = 2 * (total @ large)
        assert torch.cuda.current_stream() == before
        beside.wait()
        assert (doubled / 2)[0, 0].item() == 4000**2
    torch.cuda.synchronize()
    assert not beside.is_busy
    with beside:
        torch.cuda._sleep(100_000_000)
    assert beside.is_busy
    torch.cuda.synchronize()
    assert not beside.is_busy
    with pytest.raises(KeyError), beside:
        raise KeyError
    assert torch.cuda.current_stream() == before
