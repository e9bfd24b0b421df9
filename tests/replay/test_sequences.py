from typing import NamedTuple

import numpy as np
import pytest
import torch

from vcse.replay.sequences import SequenceReplay, sequence_bytes
from vcse.replay.storage import image_slots, step_record

SHAPE, ACTIONS, MOST_STEPS = (3, 4, 5), 2, 9
BOTH = pytest.mark.parametrize("sampling", ["uniform", "ends"])


def make_replay(capacity=20, **changes):
    settings = {
        "capacity": capacity,
        "most_steps": MOST_STEPS,
        "image_shape": SHAPE,
        "action_size": ACTIONS,
        "device": "cpu",
    }
    return SequenceReplay(**{**settings, **changes})


class Step(NamedTuple):
    """An image, and what led to it; nothing did where an episode begins."""

    number: int  # from the first ever
    position: int
    action: torch.Tensor
    reward: float
    image: torch.Tensor
    ended: bool


class Lived:
    """A replay of plain lists: episodes reach the time limit or end before, some of them after their first image."""

    def __init__(self, images, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.steps = []
        while len(self.steps) < images:
            steps = int(torch.randint(0, 2 * MOST_STEPS, (), generator=generator)) % (MOST_STEPS + 3)
            for position in range(min(steps, MOST_STEPS) + 1):
                self.steps.append(
                    Step(
                        len(self.steps),
                        position,
                        torch.rand(ACTIONS, generator=generator) * (position > 0),
                        round(float(torch.rand((), generator=generator)), 3) * (position > 0),
                        torch.randint(0, 256, SHAPE, dtype=torch.uint8, generator=generator),
                        position == min(steps, MOST_STEPS) and position > 0,
                    )
                )

    def add_to(self, replay, begin=0):
        """Add everything, and stop after every image."""
        for step in self.steps[begin:]:
            if step.position == 0:
                replay.begin(step.image)
            else:
                replay.add(step.action, step.reward, step.image, ended=step.ended)
            yield step

    def rows(self, count):
        """Return what a run's files hold after so many images."""
        steps = [(step.action.numpy(), step.reward, step.ended, step.position) for step in self.steps[:count]]
        images = np.stack([step.image.numpy() for step in self.steps[:count]])
        return images, np.array(steps, dtype=step_record(ACTIONS))

    def episodes(self, count, slots, sampling):
        """Return, after so many images, those of each episode that are sampled from."""
        episodes = []
        for step in self.steps[:count]:
            if step.position == 0:
                episodes.append([])
            episodes[-1].append(step)
        kept = [[step for step in episode if step.number >= count - slots] for episode in episodes]
        if sampling == "uniform":
            return [some for some in kept if some]
        complete = [*kept[:-1], *(kept[-1:] if kept[-1] and kept[-1][-1].ended else [])]
        return [some for some in complete if some and some[0].position == 0]


def windows(episodes, length):
    """Return all windows of so many images, in order."""
    return [some[begin : begin + length] for some in episodes for begin in range(len(some) - length + 1)]


def all_uniforms(episodes, length, sampling):
    """Return random numbers in the middle of what chooses each window, and the windows, in order."""
    if sampling == "uniform":
        found = windows(episodes, length)
        return np.array([[(place + 0.5) / len(found), 0.0] for place in range(len(found))]), found
    fitting, uniforms, found = [some for some in episodes if len(some) >= length], [], []
    for number, some in enumerate(fitting):
        for begin in range(len(some) + 1):
            uniforms.append([(number + 0.5) / len(fitting), (begin + 0.5) / (len(some) + 1)])
            begins = min(begin, len(some) - length)
            found.append(some[begins : begins + length])
    return np.array(uniforms), found


def assert_samples(batch, expected):
    length = len(expected[0])
    first = [place == 0 for place in range(length)]
    for row, window in enumerate(expected):
        assert torch.equal(batch.images[row], torch.stack([step.image for step in window]))
        assert torch.equal(batch.actions[row], torch.stack([step.action for step in window]))
        assert torch.equal(batch.rewards[row], torch.tensor([step.reward for step in window]))
        assert batch.is_first[row].tolist() == first
    assert batch.images.shape == (len(expected), length, *SHAPE)


def assert_same_samples(replay, other, uniforms):
    assert (replay.count, replay.position) == (other.count, other.position)
    for length in range(1, MOST_STEPS + 2):
        assert replay.size_of(length) == other.size_of(length)
        if replay.size_of(length):
            for mine, theirs in zip(replay.sample(uniforms, length), other.sample(uniforms, length), strict=True):
                assert torch.equal(mine, theirs)


@BOTH
@pytest.mark.parametrize(("capacity", "seed"), [(20, 0), (20, 1), (7, 2), (2, 3), (200, 4)])
def test_sequences_are_those_of_plain_lists_after_every_image(sampling, capacity, seed):
    replay, lived = make_replay(capacity, sampling=sampling), Lived(100, seed)
    assert (replay.count, replay.position, replay.size_of(1)) == (0, -1, 0)
    sampled = 0
    for added, step in enumerate(lived.add_to(replay), start=1):
        assert (replay.count, replay.position) == (added, step.position)
        episodes = lived.episodes(added, image_slots(capacity, MOST_STEPS), sampling)
        for length in (1, 2, 4, MOST_STEPS + 1, MOST_STEPS + 2):
            assert replay.size_of(length) == len(windows(episodes, length))
            if replay.size_of(length) and (added % 5 == 0 or added > 95):
                uniforms, expected = all_uniforms(episodes, length, sampling)
                assert_samples(replay.sample(uniforms, length), expected)
                sampled += 1
    assert sampled > (5 if capacity == 2 else 30)
    assert replay.size_of(MOST_STEPS + 2) == 0


@BOTH
def test_no_image_that_was_overwritten_is_sampled(sampling):
    replay, rng = make_replay(30, image_shape=(1, 1, 1), sampling=sampling), np.random.default_rng(0)
    for number in range(200):
        image = torch.full((1, 1, 1), number, dtype=torch.uint8)
        if number % 10 == 0:
            replay.begin(image)
        else:
            replay.add(torch.zeros(ACTIONS), 0.0, image, ended=number % 10 == 9)
        if number >= 10:
            images = replay.sample(rng.random((40, 2)), 3).images.flatten(1).long()
            assert bool((images.diff(dim=1) == 1).all())
            assert bool((images % 10).diff(dim=1).eq(1).all())  # all of one episode
            assert int(images.min()) >= number + 1 - replay.slots


def test_where_steps_are_sampled_uniformly_every_window_is_equally_likely():
    replay, lived = make_replay(40), Lived(90, seed=1)
    for _ in lived.add_to(replay):
        pass
    count, length, samples = replay.size_of(4), 4, 20_000
    uniforms = np.random.default_rng(0).random((samples, 2), dtype=np.float32)
    chosen, counts = np.unique(replay.choose(uniforms, length)[:, 0], return_counts=True)
    assert len(chosen) == count > 10
    assert np.abs(counts - samples / count).max() < 5 * (samples / count) ** 0.5


def test_where_ends_are_preferred_every_episode_is_equally_likely_and_its_last_window_likelier_than_others():
    replay, lived = make_replay(40, sampling="ends"), Lived(90, seed=1)
    for _ in lived.add_to(replay):
        pass
    length, samples = 4, 40_000
    fitting = [some for some in lived.episodes(replay.count, replay.slots, "ends") if len(some) >= length]
    assert len({len(some) for some in fitting}) > 1
    expected = {}
    for some in fitting:
        for begin in range(len(some) - length + 1):
            share = (1 if begin < len(some) - length else length + 1) / (len(some) + 1)
            expected[some[begin].number % replay.slots] = samples * share / len(fitting)
    assert sum(expected.values()) == pytest.approx(samples)
    uniforms = np.random.default_rng(0).random((samples, 2))
    chosen, counts = np.unique(replay.choose(uniforms, length)[:, 0], return_counts=True)
    assert set(chosen.tolist()) == set(expected)
    for slot, count in zip(chosen.tolist(), counts.tolist(), strict=True):
        assert abs(count - expected[slot]) < 5 * expected[slot] ** 0.5


def test_a_fifth_of_the_sequences_of_50_from_episodes_of_251_images_are_their_last_50():
    replay = make_replay(500, most_steps=250, image_shape=(1, 1, 1), sampling="ends")
    for number in range(502):
        image = torch.zeros(1, 1, 1, dtype=torch.uint8)
        if number % 251 == 0:
            replay.begin(image)
        else:
            replay.add(torch.zeros(ACTIONS), 0.0, image, ended=number % 251 == 250)
    grid = (np.arange(252) + 0.5) / 252
    starts = replay.choose(np.stack((np.full(252, 0.75), grid), axis=1), 50)[:, 0]
    assert (starts == 251 + 201).mean() == pytest.approx(51 / 252)
    assert np.unique(starts).tolist() == list(range(251, 251 + 202))


@BOTH
def test_the_largest_random_numbers_choose_the_last_window(sampling):
    replay, lived = make_replay(40, sampling=sampling), Lived(90, seed=1)
    for _ in lived.add_to(replay):
        pass
    episodes = lived.episodes(replay.count, replay.slots, sampling)
    last = windows(episodes, 3)[-1]
    for kind in (np.float32, np.float64):
        assert_samples(replay.sample(np.full((2, 2), np.nextafter(kind(1), kind(0))), 3), [last, last])


@BOTH
def test_as_many_steps_are_kept_as_asked_for_where_episodes_are_whole(sampling):
    for capacity in (9, 10, 17, 18, 20, 31):
        replay = make_replay(capacity, image_shape=(1, 1, 1), sampling=sampling)
        image = torch.zeros(1, 1, 1, dtype=torch.uint8)
        for _ in range(8):
            replay.begin(image)
            for step in range(MOST_STEPS):
                replay.add(torch.ones(ACTIONS), 1.0, image, ended=step == MOST_STEPS - 1)
                if replay.count >= replay.slots:
                    assert replay.rewards.sum() >= capacity
            whole = (
                replay.slots // (MOST_STEPS + 1) if replay.count > replay.slots else replay.count // (MOST_STEPS + 1)
            )
            assert sampling == "uniform" or replay.size_of(MOST_STEPS + 1) == whole


@BOTH
@pytest.mark.parametrize(("capacity", "count"), [(20, 1), (20, 2), (20, 13), (20, 23), (20, 24), (20, 60), (200, 60)])
def test_what_is_restored_is_what_was_added_one_by_one(sampling, capacity, count):
    lived, uniforms = Lived(90, seed=4), np.random.default_rng(0).random((20, 2))
    replay, again = make_replay(capacity, sampling=sampling), make_replay(capacity, sampling=sampling)
    for added, _ in enumerate(lived.add_to(replay), start=1):
        if added == count:
            break
    again.restore(*lived.rows(count))
    assert_same_samples(again, replay, uniforms)
    for _ in zip(lived.add_to(replay, begin=count), lived.add_to(again, begin=count), strict=True):
        assert_same_samples(again, replay, uniforms)
    assert replay.count >= 90


@pytest.mark.parametrize(("steps", "terminated", "is_complete"), [(4, True, True), (4, False, False), (9, False, True)])
def test_an_episode_is_restored_as_complete_where_its_task_or_its_time_ended(steps, terminated, is_complete):
    rows = np.zeros(steps + 1, dtype=step_record(ACTIONS))
    rows["position"], rows["terminated"][-1] = np.arange(steps + 1), terminated
    replay = make_replay(sampling="ends")
    replay.restore(np.zeros((steps + 1, *SHAPE), dtype=np.uint8), rows)
    assert replay.size_of(2) == (steps if is_complete else 0)


def test_an_episode_that_was_left_before_its_end_is_complete_once_the_next_begins():
    replay, lived = make_replay(sampling="ends"), Lived(20)
    replay.begin(lived.steps[0].image)
    for _ in range(3):
        replay.add(torch.zeros(ACTIONS), 0.0, lived.steps[0].image, ended=False)
    assert replay.size_of(2) == 0
    replay.begin(lived.steps[0].image)
    assert replay.size_of(2) == 3


@BOTH
def test_images_in_a_file_are_those_in_memory(tmp_path, sampling):
    lived, path, uniforms = Lived(70), tmp_path / "new" / "images.bin", np.random.default_rng(0).random((20, 2))
    memory, file = make_replay(sampling=sampling), make_replay(sampling=sampling, path=path)
    assert path.parent.is_dir()
    assert not path.exists()  # it has no name any more: nothing is left, however the process ends
    assert file.images.nbytes == file.slots * int(np.prod(SHAPE)) == sequence_bytes(20, MOST_STEPS, SHAPE)
    for _ in zip(lived.add_to(memory), lived.add_to(file), strict=True):
        assert_same_samples(file, memory, uniforms)
    again = make_replay(sampling=sampling, path=tmp_path / "again.bin")
    again.restore(*lived.rows(memory.count))
    assert_same_samples(again, memory, uniforms)


def test_nothing_led_to_the_first_image_of_an_episode_whatever_lay_in_its_place():
    replay = make_replay(5)
    replay.begin(torch.zeros(SHAPE, dtype=torch.uint8))
    while replay.count < replay.slots:
        replay.add(torch.ones(ACTIONS), 1.0, torch.zeros(SHAPE, dtype=torch.uint8), ended=False)
    slot = replay.count % replay.slots
    replay.rewards[slot], replay.actions[slot] = 3, 3
    replay.begin(torch.zeros(SHAPE, dtype=torch.uint8))
    assert (replay.actions[slot].tolist(), replay.rewards[slot]) == ([0] * ACTIONS, 0)


def test_as_many_episodes_are_kept_as_there_is_room_for_where_each_is_one_image():
    replay = make_replay(4)
    for number in range(20):
        replay.begin(torch.full(SHAPE, number, dtype=torch.uint8))
        kept = range(max(0, number + 1 - replay.slots), number + 1)
        assert (replay.size_of(1), replay.position) == (len(kept), 0)
        images = replay.sample(np.array([[(place + 0.5) / len(kept), 0.0] for place in range(len(kept))]), 1).images
        assert images[:, 0, 0, 0, 0].tolist() == list(kept)


def test_what_was_sampled_stays_as_it_was_while_more_is_added():
    replay, lived = make_replay(), Lived(60)
    adding = lived.add_to(replay)
    for _ in range(30):
        next(adding)
    batch = replay.sample(np.random.default_rng(0).random((5, 2)), 2)
    before = [each.clone() for each in batch]
    for _ in adding:
        pass
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(batch, before, strict=True))


@pytest.mark.parametrize("name", ["capacity", "most_steps"])
def test_room_for_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0$"):
        make_replay(**{name: 0})


@pytest.mark.parametrize(
    ("sampling", "length", "error"),
    [
        ("uniform", 6, "^no sequence of 6 images can be sampled: the longest episode has 5$"),
        ("ends", 5, "^no sequence of 5 images can be sampled: the longest complete episode has 3$"),
        ("uniform", 0, "^length must be at least 1, got 0$"),
    ],
)
def test_sequences_that_are_not_there_are_refused(sampling, length, error):
    replay, image = make_replay(sampling=sampling), torch.zeros(SHAPE, dtype=torch.uint8)
    for steps in (2, 4):  # the second goes on
        replay.begin(image)
        for step in range(steps):
            replay.add(torch.zeros(ACTIONS), 0.0, image, ended=(steps, step) == (2, 1))
    with pytest.raises(ValueError, match=error):
        replay.choose(np.zeros((3, 2)), length)


@BOTH
def test_before_anything_is_added_there_is_nothing_to_sample(sampling):
    replay = make_replay(sampling=sampling)
    with pytest.raises(ValueError, match=r"no sequence of 1 images can be sampled: the longest .*episode has 0"):
        replay.sample(np.zeros((3, 2)), 1)


def test_steps_outside_of_episodes_are_refused():
    replay, image = make_replay(), torch.zeros(SHAPE, dtype=torch.uint8)
    with pytest.raises(ValueError, match="begin the episode first"):
        replay.add(torch.zeros(ACTIONS), 0.0, image, ended=False)
    replay.begin(image)
    replay.add(torch.zeros(ACTIONS), 0.0, image, ended=True)
    with pytest.raises(ValueError, match="begin the episode first"):
        replay.add(torch.zeros(ACTIONS), 0.0, image, ended=False)
    assert replay.count == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("storage", ["cpu", "cuda"])
def test_a_batch_on_a_gpu_is_that_of_the_host(storage):
    lived = Lived(60)
    host, device = make_replay(), make_replay(device="cuda", storage_device=storage)
    for replay in (host, device):
        for _ in lived.add_to(replay):
            pass
    uniforms = np.random.default_rng(0).random((8, 2))
    for there, here in zip(device.sample(uniforms, 3), host.sample(uniforms, 3), strict=True):
        assert there.is_cuda
        assert torch.equal(there.cpu(), here)
