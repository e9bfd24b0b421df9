import numpy as np
import torch

from vcse.runs.draws import BLOCK, UpdateDraws

SHAPE = (3, 16, 2)  # draws, batch size, size of an action
CPU = torch.device("cpu")


def numbers_of(draws, updates):
    return [tuple(each.clone() for each in draws.of_update(update)) for update in updates]


def test_numbers_depend_on_seed_and_update_alone():
    both = UpdateDraws([3, 8], SHAPE, CPU, threads=1)
    alone = UpdateDraws([8], SHAPE, CPU, threads=1)
    updates = range(2 * BLOCK + 3)
    expected = numbers_of(both, updates)
    for (uniforms, noise), (mine, my_noise) in zip(expected, numbers_of(alone, updates), strict=True):
        assert torch.equal(uniforms[1:], mine)
        assert torch.equal(noise[1:], my_noise)
    late = UpdateDraws([3, 8], SHAPE, CPU, threads=1)  # as after a restart, in the middle of a block
    for found, (uniforms, noise) in zip(numbers_of(late, updates[BLOCK + 3 :]), expected[BLOCK + 3 :], strict=True):
        assert torch.equal(found[0], uniforms)
        assert torch.equal(found[1], noise)


def test_no_two_updates_and_no_two_runs_have_the_same_numbers():
    drawn = numbers_of(UpdateDraws([0, 1], SHAPE, CPU, threads=1), range(3 * BLOCK))
    every = torch.cat([uniforms.flatten() for uniforms, _ in drawn]).numpy()
    assert len(np.unique(every)) == len(every)
    assert 0 <= every.min() < 0.001
    assert 0.999 < every.max() < 1
    noise = torch.cat([noise.flatten() for _, noise in drawn])
    assert noise.mean().abs() < 0.05
    assert 0.97 < noise.std() < 1.03
