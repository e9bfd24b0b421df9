import errno
import os
from typing import NamedTuple

import numpy as np
import pytest
import torch

from vcse.nets.cuda.graphs import CUDAGraph
from vcse.replay.images import STACK, Between, Chosen, ImageReplay, image_bytes, stacked_slots
from vcse.replay.storage import step_record
from vcse.replay.transitions import distinct_places, uniforms_for

SHAPE, ACTIONS, DISCOUNT = (3, 4, 5), 2, 0.9
MOST_STEPS = 9


def make_replay(capacity=20, n_step=3, **changes):
    settings = {
        "capacity": capacity,
        "most_steps": MOST_STEPS,
        "image_shape": SHAPE,
        "action_size": ACTIONS,
        "n_step": n_step,
        "discount": DISCOUNT,
        "device": "cpu",
        "with_one_step": True,
    }
    return ImageReplay(**{**settings, **changes})


class Step(NamedTuple):
    """A frame, and what led to it; nothing did where an episode begins."""

    frame: torch.Tensor
    action: torch.Tensor
    reward: float
    terminated: bool


class Lived:
    """Episodes as plain lists: some reach the time limit, some end before, some of them after a single step."""

    def __init__(self, frames, seed=0):
        self.generator, self.episodes, left = torch.Generator().manual_seed(seed), [], frames
        while left:
            ends_early = torch.rand((), generator=self.generator) < 0.6
            most = int(torch.randint(1, MOST_STEPS, (), generator=self.generator)) if ends_early else MOST_STEPS
            steps = min(most, left - 1)
            terminated = bool(ends_early) and steps == most
            self.episodes.append([self.step(begins=True)])
            self.episodes[-1] += [self.step(terminated=terminated and step == steps - 1) for step in range(steps)]
            left -= steps + 1

    def step(self, *, begins=False, terminated=False):
        return Step(
            torch.randint(0, 256, SHAPE, dtype=torch.uint8, generator=self.generator),
            torch.zeros(ACTIONS) if begins else torch.rand(ACTIONS, generator=self.generator),
            0.0 if begins else round(float(torch.rand((), generator=self.generator)), 3),
            terminated,
        )

    def add_to(self, replay):
        """Add everything, and stop after every frame."""
        for episode in self.episodes:
            for position, step in enumerate(episode):
                if position == 0:
                    replay.begin(step.frame)
                else:
                    replay.add(step.action, step.reward, step.terminated, step.frame)
                yield

    def rows(self):
        """Return what the run's files hold."""
        frames = np.stack([step.frame.numpy() for episode in self.episodes for step in episode])
        steps = [
            (step.action.numpy(), step.reward, step.terminated, position)
            for episode in self.episodes
            for position, step in enumerate(episode)
        ]
        return frames, np.array(steps, dtype=step_record(ACTIONS))

    def until(self, count):
        """Return all but the last frames."""
        episodes, left = [], count
        for episode in self.episodes:
            episodes += [episode[:left]] if left > 0 else []
            left -= len(episode)
        return episodes

    def transitions(self, count, slots, n_step):
        """Return, after so many frames, all transitions whose frames and the two before are among the last."""
        found, index = [], 0
        for episode in self.until(count):
            for position in range(len(episode)):
                if position + n_step < len(episode) and index - (STACK - 1) >= count - slots:
                    found.append(self.transition(episode, position, n_step))
                index += 1
        return found

    def transition(self, episode, position, n_step):
        rewards, discount, between = 0.0, 1.0, []
        for number, step in enumerate(episode[position + 1 : position + n_step + 1]):
            rewards += discount * step.reward
            if number > 0:
                between.append((self.stack(episode, position + number), step.reward, discount))
            discount *= 0.0 if step.terminated else DISCOUNT
        first = episode[position + 1]
        return {
            "observations": self.stack(episode, position),
            "actions": first.action,
            "rewards": rewards,
            "first_rewards": first.reward,
            "discounts": discount,
            "next_observations": self.stack(episode, position + n_step),
            "one_step_observations": self.stack(episode, position + 1),
            "between": between,
        }

    @staticmethod
    def stack(episode, position):
        """Return the last frames, the first of the episode standing for those before it."""
        return torch.cat([episode[max(0, position - back)].frame for back in (2, 1, 0)])


def assert_draws(replay, expected):
    """All transitions are there, in order, each once."""
    assert replay.size == len(expected)
    if not expected:
        return
    batch = replay.sample(torch.arange(replay.size))
    for row, transition in enumerate(expected):
        for name in ("observations", "next_observations", "one_step_observations", "actions"):
            assert torch.equal(getattr(batch, name)[row], transition[name]), (name, row)
        for name in ("rewards", "first_rewards", "discounts"):
            assert getattr(batch, name)[row].item() == pytest.approx(transition[name], rel=1e-5), (name, row)


def assert_same_draws(replay, other):
    assert (replay.count, replay.size, replay.position) == (other.count, other.size, other.position)
    if replay.size:
        places = torch.arange(replay.size)
        for mine, theirs in zip(replay.sample(places)[:-1], other.sample(places)[:-1], strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("capacity", "seed"), [(20, 0), (20, 1), (7, 2), (200, 3)])
def test_transitions_are_those_of_plain_lists_at_every_step(n_step, capacity, seed):
    replay, lived = make_replay(capacity, n_step), Lived(100, seed)
    for added, _ in enumerate(lived.add_to(replay), start=1):
        expected = lived.transitions(added, stacked_slots(capacity, MOST_STEPS), n_step)
        assert (replay.count, replay.size) == (added, len(expected))
        assert replay.position == len(lived.until(added)[-1]) - 1
        if added % 7 == 0 or added > 95:
            assert_draws(replay, expected)
    assert len(lived.episodes) > 10
    assert any(step.terminated for episode in lived.episodes for step in episode)


@pytest.mark.parametrize("n_step", [1, 3])
def test_every_transition_is_drawn_equally_often(n_step):
    replay, lived = make_replay(20, n_step), Lived(70)
    for _ in lived.add_to(replay):
        pass
    expected = lived.transitions(70, stacked_slots(20, MOST_STEPS), n_step)
    rows = {tuple(transition["observations"].flatten().tolist()) for transition in expected}
    assert len(rows) == len(expected) == replay.size > 0
    batches, count = 2000, 4
    uniforms = torch.rand(batches, uniforms_for(count), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = replay.sample(distinct_places(uniforms, replay.size, count).flatten()).observations.flatten(1)
    kinds, counts = drawn.unique(dim=0, return_counts=True)
    assert {tuple(each) for each in kinds.tolist()} == rows
    assert (counts - batches * count / len(rows)).abs().max() < 5 * (batches * count / len(rows)) ** 0.5


def test_as_many_steps_are_kept_as_asked_for_where_episodes_are_whole():
    for capacity in (9, 10, 17, 18, 20, 31):
        replay = make_replay(capacity, 1)
        for _ in range(8):
            replay.begin(torch.zeros(SHAPE, dtype=torch.uint8))
            for _ in range(MOST_STEPS):
                replay.add(torch.zeros(ACTIONS), 0.0, False, torch.zeros(SHAPE, dtype=torch.uint8))
                assert replay.size >= capacity or replay.count < replay.slots


def test_a_run_no_longer_than_its_replay_is_kept_whole():
    for steps in range(1, 40):
        replay = make_replay(steps, 1)
        for step in range(steps):
            if step % MOST_STEPS == 0:
                replay.begin(torch.zeros(SHAPE, dtype=torch.uint8))
            replay.add(torch.zeros(ACTIONS), 0.0, False, torch.zeros(SHAPE, dtype=torch.uint8))
        assert replay.size == steps


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("capacity", "count"), [(20, 1), (20, 2), (20, 13), (20, 26), (20, 27), (20, 60), (200, 60)])
def test_what_is_restored_is_what_was_added_one_by_one(n_step, capacity, count):
    lived = Lived(90, seed=4)
    frames, steps = lived.rows()
    replay, again = make_replay(capacity, n_step), make_replay(capacity, n_step)
    for added, _ in enumerate(lived.add_to(replay), start=1):
        if added == count:
            again.restore(frames[:count], steps[:count])
            assert_same_draws(again, replay)
            break
    # Both go on alike, from the middle of an episode.
    for _ in range(50):
        begins, step = replay.position == MOST_STEPS, lived.step()
        for each in (replay, again):
            if begins:
                each.begin(step.frame)
            else:
                each.add(step.action, step.reward, step.terminated, step.frame)
        assert_same_draws(again, replay)


def test_frames_in_a_file_are_those_in_memory(tmp_path):
    lived, path = Lived(70), tmp_path / "new" / "frames.bin"
    memory, file = make_replay(20), make_replay(20, path=path)
    assert path.parent.is_dir()
    assert not path.exists()  # it has no name any more: nothing is left, however the process ends
    assert file.images.nbytes == file.slots * int(np.prod(SHAPE)) == image_bytes(20, MOST_STEPS, SHAPE)
    for _ in zip(lived.add_to(memory), lived.add_to(file), strict=True):
        assert_same_draws(file, memory)
    frames, _ = lived.rows()
    assert bytes(file.images[69 % file.slots].numpy().tobytes()) == frames[69].tobytes()
    again = make_replay(20, path=tmp_path / "again.bin")
    again.restore(*lived.rows())
    assert_same_draws(again, memory)


def test_a_file_that_the_disk_has_no_room_for_is_refused_before_anything_is_written_to_it(tmp_path, monkeypatch):
    def full(file, begin, size):
        assert (begin, size) == (0, image_bytes(20, MOST_STEPS, SHAPE))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        make_replay(20, path=tmp_path / "frames.bin")
    assert not list(tmp_path.iterdir())


def test_nothing_led_to_the_first_frame_of_an_episode_whatever_lay_in_its_place():
    replay = make_replay(5)
    replay.begin(torch.zeros(SHAPE, dtype=torch.uint8))
    while replay.count < replay.slots:
        replay.add(torch.ones(ACTIONS), 1.0, True, torch.zeros(SHAPE, dtype=torch.uint8))
    slot = replay.count % replay.slots
    replay.rewards[slot] = 3
    replay.begin(torch.zeros(SHAPE, dtype=torch.uint8))
    assert (replay.actions[slot].tolist(), replay.rewards[slot], replay.terminated[slot]) == ([0] * ACTIONS, 0, 0)


def test_steps_between_are_given_where_they_are_wanted():
    replay, lived = make_replay(30, 3, with_between=True), Lived(60, seed=1)
    for _ in lived.add_to(replay):
        pass
    expected = lived.transitions(60, stacked_slots(30, MOST_STEPS), 3)
    assert_draws(replay, expected)
    between = replay.sample(torch.arange(replay.size)).between
    assert isinstance(between, Between)
    assert between.observations.shape == (2, replay.size, 9, 4, 5)
    for row, transition in enumerate(expected):
        for number, (stack, reward, discount) in enumerate(transition["between"]):
            assert torch.equal(between.observations[number, row], stack)
            assert between.rewards[number, row].item() == pytest.approx(reward)
            assert between.discounts[number, row].item() == pytest.approx(discount)
    # A return is the rewards of all of its steps, each as the steps between say.
    batch = replay.sample(torch.arange(replay.size))
    summed = batch.first_rewards + (between.rewards * between.discounts).sum(0)
    torch.testing.assert_close(summed, batch.rewards)


def test_what_is_seen_after_one_step_is_left_out_where_it_is_not_wanted():
    replay = make_replay(30, with_one_step=False)
    for _ in Lived(30).add_to(replay):
        pass
    assert replay.sample(torch.arange(replay.size)).one_step_observations is None


@pytest.mark.parametrize("settings", [{"with_between": True, "n_step": 1}, {"with_between": False, "n_step": 3}])
def test_steps_between_are_left_out_otherwise(settings):
    replay = make_replay(30, **settings)
    for _ in Lived(30).add_to(replay):
        pass
    assert replay.sample(torch.arange(replay.size)).between is None


def test_a_transition_takes_a_third_of_the_bytes_of_a_stack():
    stack = 9 * 84 * 84
    assert stack == 63_504
    for capacity, most_steps in ((1_000_000, 500), (250_000, 500), (250_000, 250)):
        assert image_bytes(capacity, most_steps, (3, 84, 84)) / capacity <= 0.35 * stack


@pytest.mark.parametrize("name", ["capacity", "n_step"])
def test_room_for_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        make_replay(**{name: 0})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("storage", ["cpu", "cuda"])
def test_a_batch_on_a_gpu_is_that_of_the_host(storage):
    lived = Lived(60)
    host, device = (
        make_replay(with_between=True),
        make_replay(with_between=True, device="cuda", storage_device=storage),
    )
    for replay in (host, device):
        for _ in lived.add_to(replay):
            pass
    places = torch.arange(host.size)
    chosen = Chosen(*(each.cuda() for each in device.choose(places)))
    mine, theirs = device.sample(places), host.sample(places)
    batches = [mine, device.gather(chosen)]
    if storage == "cuda":
        batches.append(CUDAGraph(lambda: device.gather(chosen))())
    for batch in batches:
        for there, here in zip((*batch[:-1], *batch.between), (*theirs[:-1], *theirs.between), strict=True):
            assert there.is_cuda
            assert torch.equal(there.cpu(), here)
