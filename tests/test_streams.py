import numpy as np
import torch

from vcse.streams import episode_seeds, numbers, torch_generator, uniforms


def test_numbers_depend_on_seed_purpose_and_moment_alone():
    drawn = uniforms(3, "actions", 7, (16, 8))
    assert drawn.dtype == np.float32
    assert 0 <= drawn.min() < 0.05
    assert 0.95 < drawn.max() < 1
    assert np.array_equal(drawn, uniforms(3, "actions", 7, (16, 8)))
    others = [
        uniforms(4, "actions", 7, (16, 8)),
        uniforms(3, "evaluation", 7, (16, 8)),
        uniforms(3, "actions", 8, (16, 8)),
    ]
    for other in others:
        assert not np.array_equal(drawn, other)


def test_moments_do_not_overlap():
    long = uniforms(0, "actions", 0, (100_000,))
    assert not set(uniforms(0, "actions", 1, (1000,)).tolist()) <= set(long.tolist())


def test_generators_for_parameters_differ_by_seed_and_purpose():
    drawn = [
        torch.rand(4, generator=torch_generator(*which))
        for which in ((0, "parameters"), (1, "parameters"), (0, "random encoder"), (0, "parameters"))
    ]
    assert torch.equal(drawn[0], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_seeds_of_episodes_go_on_where_the_stream_is_however_many_are_drawn_at_once():
    at_once = numbers(3, "evaluation", 7)
    seeds = episode_seeds(at_once, 50)
    assert all(type(seed) is int and 0 <= seed < 2**31 - 1 for seed in seeds)
    assert len(set(seeds)) == 50
    one_by_one, plain = (numbers(3, "evaluation", 7) for _ in range(2))
    assert [episode_seeds(one_by_one, 1)[0] for _ in seeds] == seeds
    assert [int(plain.integers(2**31 - 1)) for _ in seeds] == seeds
    assert at_once.random() == one_by_one.random() == plain.random()
