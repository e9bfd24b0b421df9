import pytest
import torch

from vcse.agents.drqv2.transfer import BatchTransfer
from vcse.replay.images import ImageReplay

SHAPE, ACTIONS, BATCH = (3, 4, 5), 2, 6


def lived(device, storage):
    """Return a replay in which every frame, action and reward is another."""
    replay = ImageReplay(
        capacity=60,
        most_steps=30,
        image_shape=SHAPE,
        action_size=ACTIONS,
        n_step=3,
        discount=0.9,
        device=device,
        storage_device=storage,
        with_one_step=True,
        with_between=True,
    )
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 31, *SHAPE), dtype=torch.uint8, generator=generator)
    for episode in images:
        replay.begin(episode[0])
        for image in episode[1:]:
            replay.add(
                torch.rand(ACTIONS, generator=generator), float(torch.rand((), generator=generator)), False, image
            )
    return replay


def asked(replay, number):
    """Return what the update of this number reads, on the host."""
    generator = torch.Generator().manual_seed(number)
    places = torch.randperm(replay.size, generator=generator)[:BATCH]
    noise = torch.randn(3, BATCH, ACTIONS, generator=generator)
    return places, noise, torch.randint(0, 9, (3, BATCH, 2), generator=generator)


def tensors(delivered):
    batch = delivered.batch
    return [*batch[:-1], *batch.between, delivered.noise, delivered.shifts]


def assert_is_what_was_asked_for(delivered, plain, places, noise, shifts):
    expected = plain.sample(places)
    for got, wanted in zip(tensors(delivered), [*expected[:-1], *expected.between, noise, shifts], strict=True):
        assert torch.equal(got.cpu(), wanted)


def test_on_a_cpu_a_delivery_is_what_the_replay_draws():
    replay = lived("cpu", "cpu")
    delivery = BatchTransfer(replay, torch.device("cpu"))
    for number in range(3):
        places, noise, shifts = asked(replay, number)
        delivered = delivery.gather(replay.choose(places), noise, shifts)
        assert_is_what_was_asked_for(delivered, replay, places, noise, shifts)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("storage", ["cpu", "cuda"])
def test_on_a_gpu_everything_arrives_and_from_some_time_on_in_the_same_memory(storage):
    plain, replay = lived("cpu", "cpu"), lived("cuda", storage)
    delivery = BatchTransfer(replay, torch.device("cuda"))
    kept = None
    for number in range(8):
        places, noise, shifts = asked(plain, number)
        bring = delivery.bring_to_stay if number == 3 else delivery.bring
        delivered = bring(replay.choose(places), noise, shifts)
        assert_is_what_was_asked_for(delivered, plain, places, noise, shifts)
        where = [each.data_ptr() for each in tensors(delivered)]
        assert number <= 3 or where == kept
        kept = where
