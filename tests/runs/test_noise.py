import numpy as np
import torch

from vcse.runs.noise import ACTION_BLOCK, BLOCK, ActionNoiseStream, UpdateNoiseStream
from vcse.streams import numbers

SHAPE = (3, 16, 2)  # draws, batch size, size of an action
CPU = torch.device("cpu")


def numbers_of(draws, updates):
    return [tuple(each.clone() for each in draws.of_update(update)) for update in updates]


def test_numbers_depend_on_seed_and_update_alone():
    both = UpdateNoiseStream([3, 8], SHAPE, CPU, threads=1)
    alone = UpdateNoiseStream([8], SHAPE, CPU, threads=1)
    updates = range(2 * BLOCK + 3)
    expected = numbers_of(both, updates)
    for (uniforms, noise), (mine, my_noise) in zip(expected, numbers_of(alone, updates), strict=True):
        assert torch.equal(uniforms[1:], mine)
        assert torch.equal(noise[1:], my_noise)
    late = UpdateNoiseStream([3, 8], SHAPE, CPU, threads=1)  # as after a restart, in the middle of a block
    for found, (uniforms, noise) in zip(numbers_of(late, updates[BLOCK + 3 :]), expected[BLOCK + 3 :], strict=True):
        assert torch.equal(found[0], uniforms)
        assert torch.equal(found[1], noise)


def test_no_two_updates_and_no_two_runs_have_the_same_numbers():
    drawn = numbers_of(UpdateNoiseStream([0, 1], SHAPE, CPU, threads=1), range(3 * BLOCK))
    every = torch.cat([uniforms.flatten() for uniforms, _ in drawn]).numpy()
    assert len(np.unique(every)) == len(every)
    assert 0 <= every.min() < 0.001
    assert 0.999 < every.max() < 1
    noise = torch.cat([noise.flatten() for _, noise in drawn])
    assert noise.mean().abs() < 0.05
    assert 0.97 < noise.std() < 1.03


def test_numbers_of_actions_depend_on_seed_and_step_alone():
    both, alone = ActionNoiseStream([3, 8], 2, CPU), ActionNoiseStream([8], 2, CPU)
    late = ActionNoiseStream([3, 8], 2, CPU)  # as after a restart, in the middle of a block
    for step in (0, 1, ACTION_BLOCK - 1, ACTION_BLOCK, ACTION_BLOCK + 5):
        expected, mine = both.of_step(step), alone.of_step(step)
        assert torch.equal(expected.actions[1:], mine.actions)
        assert torch.equal(expected.noise[1:], mine.noise)
    again = late.of_step(step)
    assert torch.equal(again.actions, expected.actions)
    assert torch.equal(again.noise, expected.noise)


def test_random_actions_fill_their_range_and_their_noise_is_drawn_after_them():
    draws = ActionNoiseStream([3], 2, CPU)
    drawn = [draws.of_step(step) for step in range(2 * ACTION_BLOCK)]
    actions, noise = (torch.cat(each) for each in zip(*drawn, strict=True))
    assert -1 <= actions.min() < -0.99
    assert 0.99 < actions.max() < 1
    assert len(actions.unique()) > 0.99 * actions.numel()
    assert noise.mean().abs() < 0.06
    assert 0.95 < noise.std() < 1.05
    for block in range(2):
        mine = slice(block * ACTION_BLOCK, (block + 1) * ACTION_BLOCK)
        generator, shape = numbers(3, "actions", block), (ACTION_BLOCK, 2)
        assert np.array_equal(actions[mine], 2 * generator.random(shape, dtype=np.float32) - 1)
        assert np.array_equal(noise[mine], generator.standard_normal(shape, dtype=np.float32))
