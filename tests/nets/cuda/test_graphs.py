import pytest
import torch

from vcse.nets.cuda.graphs import CUDAGraphs, PackedTransfer

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
    transfer = PackedTransfer(contents(0), torch.device(device))
    places = [each.data_ptr() for each in transfer.received]
    for seed in (1, 2):
        sent = contents(seed)
        transfer.send(sent)
        assert [each.data_ptr() for each in transfer.received] == places
        for mine, theirs in zip(transfer.received, sent, strict=True):
            assert (mine.dtype, mine.device.type) == (theirs.dtype, device)
            assert torch.equal(mine.cpu(), theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_captured_calls_take_what_lies_on_the_host_and_on_the_device():
    first, second = torch.rand(4), torch.rand(4, device="cuda")
    graphs = CUDAGraphs(torch.device("cuda"))
    for call in range(4):
        if call == 1:
            graphs.enable()
        for size, factor in ((4, 2), (4, 3), (5, 2)):
            first, second = torch.rand(size), torch.rand(size, device="cuda")
            found = graphs(lambda here, there, factor: here - factor * there, first, second, factor=factor)
            assert torch.allclose(found.cpu(), first - factor * second.cpu())
