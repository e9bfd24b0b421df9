import pytest
import torch

from vcse.nets.cuda.graphs import CapturedCall, Parcel

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def contents(seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.rand(3, 5, generator=generator),
        torch.randint(100, (2, 0, 7), generator=generator),  # nothing
        torch.randint(100, (7,), generator=generator),
        torch.rand(1, dtype=torch.float64, generator=generator),
        torch.randint(256, (3, 3), dtype=torch.uint8, generator=generator),
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_all_of_a_parcel_arrives_where_the_one_before_did(device):
    parcel = Parcel(contents(0), torch.device(device))
    places = [each.data_ptr() for each in parcel.received]
    for seed in (1, 2):
        sent = contents(seed)
        parcel.send(sent)
        assert [each.data_ptr() for each in parcel.received] == places
        for mine, theirs in zip(parcel.received, sent, strict=True):
            assert (mine.dtype, mine.device.type) == (theirs.dtype, device)
            assert torch.equal(mine.cpu(), theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_captured_call_takes_what_lies_on_the_host_and_on_the_device():
    first, second = torch.rand(4), torch.rand(4, device="cuda")
    call = CapturedCall(lambda here, there: here - 2 * there, first, second, device=torch.device("cuda"))
    for _ in range(3):
        first, second = torch.rand(4), torch.rand(4, device="cuda")
        assert torch.allclose(call(first, second).cpu(), first - 2 * second.cpu())
