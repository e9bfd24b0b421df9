import numpy as np
import pytest
import torch

from vcse.agents.image_environments import gl_backend, replay_episode, spins
from vcse.envs.interface import Step


class Counter:
    """An environment whose image is its seed and the sum of all actions; it ends after so many steps."""

    count = 1

    def __init__(self, most_steps):
        self.most_steps = most_steps

    def reset(self, seeds=None):
        [self.state], self.steps = seeds, 0
        return self.image()

    def send(self, actions):
        assert actions.shape == (1, 2)
        self.state += int(actions.sum())
        self.steps += 1

    def receive(self):
        ended = np.array([self.steps == self.most_steps])
        return Step(self.image(), self.image(), np.zeros(1), np.zeros(1, bool), ended)

    def close(self):
        pass

    def image(self):
        return np.full((1, 3, 4, 4), self.state, np.uint8)


def test_an_episode_is_replayed_from_its_seed_and_actions():
    actions = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert torch.equal(replay_episode(Counter(9), 5, actions), torch.full((3, 4, 4), 20, dtype=torch.uint8))
    assert torch.equal(replay_episode(Counter(9), 5, actions[:0]), torch.full((3, 4, 4), 5, dtype=torch.uint8))


def test_nothing_is_played_after_the_end_of_an_episode():
    actions = np.ones((3, 2), dtype=np.float32)
    assert torch.equal(replay_episode(Counter(2), 0, actions), torch.full((3, 4, 4), 4, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("device", "threads", "expected"), [("cpu", 16, False), ("cuda", 2, False), ("cuda", 3, True), ("cuda:1", 16, True)]
)
def test_processes_spin_beside_a_gpu_where_there_are_cores_for_it(device, threads, expected):
    assert spins(device, threads) == expected


def test_what_renders_is_not_known_of_environments_that_do_not_say():
    assert gl_backend(Counter(1)) == ""
