import errno
import os

import numpy as np
import pytest
import torch

from vcse.replay import storage
from vcse.replay.storage import ImageRing, image_memory, image_slots, in_words, step_record

CPU = torch.device("cpu")


def test_a_step_on_disk_is_its_action_and_three_more_numbers():
    steps = [([0.5, -0.25], 2.0, True, 7), ([0.1, 1.0], 0.0, False, 8)]
    plain = np.array([[0.5, -0.25, 2, 1, 7], [0.1, 1, 0, 0, 8]], dtype=np.float32)
    assert np.array(steps, dtype=step_record(2)).tobytes() == plain.tobytes()


@pytest.mark.parametrize(("capacity", "most_steps", "slots"), [(500, 250, 502), (501, 250, 504), (1, 9, 2), (9, 9, 10)])
def test_every_episode_begins_with_one_image_more_than_it_has_steps(capacity, most_steps, slots):
    assert image_slots(capacity, most_steps) == slots


@pytest.mark.parametrize(
    ("shape", "words"), [((3, 64, 64), torch.int64), ((3, 2, 2), torch.int32), ((3, 5, 2), torch.int16)]
)
def test_words_are_the_bytes_of_images_in_the_same_memory(shape, words):
    images = torch.randint(0, 256, (5, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = in_words(images)
    assert found.dtype == words
    assert torch.equal(found.view(torch.uint8).view(images.shape), images)
    images[3] = 0
    assert not found[3].any()


def test_images_with_an_odd_number_of_bytes_are_words_of_one():
    assert in_words(torch.zeros(2, 1, 3, 5, dtype=torch.uint8)).dtype == torch.uint8


def test_a_file_of_images_has_no_name_any_more(tmp_path):
    path = tmp_path / "new" / "images.bin"
    images = image_memory((4, 3, 2, 2), CPU, path)
    assert path.parent.is_dir()
    assert not path.exists()
    assert (images.dtype, images.shape, int(images.sum())) == (torch.uint8, (4, 3, 2, 2), 0)
    images[1] = 7
    assert int(images.sum()) == 7 * 12


def test_a_file_that_the_disk_has_no_room_for_is_refused(tmp_path, monkeypatch):
    def full(file, begin, size):
        assert (begin, size) == (0, 48)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match=r"No space left on device: .*images\.bin"):
        image_memory((4, 3, 2, 2), CPU, tmp_path / "images.bin")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("per_copy", [1, 3, 1000])
def test_restored_images_lie_where_a_ring_would_have_put_them(monkeypatch, per_copy):
    monkeypatch.setattr(storage, "IMAGES_PER_COPY", per_copy)
    images = np.random.default_rng(0).integers(256, size=(17, 3, 2, 2), dtype=np.uint8)
    steps = np.zeros(17, dtype=step_record(2))
    steps["action"], steps["reward"] = np.arange(34).reshape(17, 2), np.arange(17)
    ring = ImageRing(7, image_shape=(3, 2, 2), action_size=2, device="cpu")
    assert ring._restore(images, steps).tolist() == list(range(10, 17))
    for number in range(10, 17):
        assert np.array_equal(ring.images[number % 7].numpy(), images[number])
        assert np.array_equal(ring.actions[number % 7], steps["action"][number])
        assert ring.rewards[number % 7] == number
