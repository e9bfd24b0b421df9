import numpy as np
import pytest
import torch

from vcse.replay.transitions import TransitionReplay, distinct_places, transition_bytes, uniforms_for

LEARNERS, CAPACITY, SIZE, ACTIONS, BATCH = 3, 20, 4, 2, 8
WIDTH = 2 * SIZE + ACTIONS + 2


def make_replay(capacity=CAPACITY):
    return TransitionReplay(
        learners=LEARNERS,
        capacity=capacity,
        observation_size=SIZE,
        action_size=ACTIONS,
        batch_size=BATCH,
        device="cpu",
    )


def transitions(count, seed=0):
    """Return what all learners lived through, step by step."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(LEARNERS, SIZE, generator=generator),
            torch.rand(LEARNERS, ACTIONS, generator=generator),
            torch.randn(LEARNERS, generator=generator),
            torch.rand(LEARNERS, generator=generator) < 0.3,
            torch.randn(LEARNERS, SIZE, generator=generator),
        )
        for _ in range(count)
    ]


def choose(seed, size, count, learners):
    generator = torch.Generator().manual_seed(seed)
    uniforms = torch.rand(learners, uniforms_for(count), dtype=torch.float64, generator=generator)
    return distinct_places(uniforms, size, count)


def places_of(seed, size):
    return choose(seed, size, BATCH, LEARNERS)


def test_batches_are_those_of_a_plain_list_also_when_the_oldest_have_made_room():
    replay, kept = make_replay(), [None] * CAPACITY
    for number, transition in enumerate(transitions(53)):
        assert replay.add(*transition).shape == (LEARNERS, WIDTH)
        kept[number % CAPACITY] = transition
        assert replay.size == min(number + 1, CAPACITY)
        places = places_of(number, replay.size)
        batch = replay.sample(places)
        for learner in range(LEARNERS):
            for row, place in enumerate(places[learner].tolist()):
                for drawn, expected in zip(batch, kept[place], strict=True):
                    assert torch.equal(drawn[learner, row], expected[learner].float())


def test_batches_lie_in_the_memory_that_the_replay_names():
    replay = make_replay()
    for transition in transitions(10):
        replay.add(*transition)
    memory = [each.data_ptr() for each in replay.batch]
    first = replay.sample(places_of(0, 10)).rewards.clone()
    again = replay.sample(places_of(1, 10))
    assert [each.data_ptr() for each in again] == memory
    assert not torch.equal(again.rewards, first)


@pytest.mark.parametrize("count", [7, CAPACITY, 53])
def test_what_is_restored_is_what_was_added_one_by_one(count):
    replay, again = make_replay(), make_replay()
    rows = torch.stack([replay.add(*each) for each in transitions(count)], 1).numpy()
    again.restore(list(rows))
    assert (again.count, again.size) == (replay.count, replay.size)
    for number, transition in enumerate(transitions(15, seed=1)):
        for each in (replay, again):
            each.add(*transition)
        places = places_of(number, replay.size)
        expected = [each.clone() for each in replay.sample(places)]
        assert all(torch.equal(*pair) for pair in zip(again.sample(places), expected, strict=True))


def test_a_larger_replay_takes_up_what_a_smaller_one_had_before_it_was_full():
    small, large = make_replay(CAPACITY), make_replay(4 * CAPACITY)
    rows = torch.stack([small.add(*each) for each in transitions(CAPACITY)], 1).numpy()
    large.restore(list(rows))
    places = places_of(0, CAPACITY)
    expected = [each.clone() for each in small.sample(places)]
    assert all(torch.equal(*pair) for pair in zip(large.sample(places), expected, strict=True))


class TestDistinctPlaces:
    @pytest.mark.parametrize("size", [64, 65, 127, 128, 129, 200, 600_000])
    def test_none_is_chosen_twice_where_there_are_enough(self, size):
        places = choose(size, size, 64, learners=500)
        ascending = places.sort(-1).values
        assert (ascending[:, 1:] > ascending[:, :-1]).all()
        assert 0 <= places.min() <= places.max() < size

    @pytest.mark.parametrize("size", [40, 100, 128, 129, 300])
    def test_every_place_is_chosen_about_equally_often(self, size):
        batches, count = 5000, min(64, size // 2)
        counts = choose(0, size, count, learners=batches).flatten().bincount(minlength=size).double()
        expected = batches * count / size
        variance = expected * (1 - count / size)  # of one count, as a batch holds a place once or not at all
        chi_square = ((counts - expected) ** 2).sum().item() / variance * (size - 1) / size
        assert abs(chi_square - (size - 1)) < 4 * np.sqrt(2 * (size - 1))

    def test_every_two_places_are_together_about_equally_often(self):
        batches, size, count = 20_000, 20, 8
        chosen = torch.zeros(batches, size).scatter_(1, choose(1, size, count, learners=batches), 1)
        together = (chosen.T @ chosen)[*torch.triu_indices(size, size, 1)] / batches
        expected = count * (count - 1) / (size * (size - 1))
        assert (together - expected).abs().max() < 5 * np.sqrt(expected / batches)

    def test_with_fewer_than_a_batch_every_one_is_chosen_as_often_as_can_be(self):
        for size in (1, 3, 8, 31):
            counts = choose(size, size, 32, learners=1)[0].bincount(minlength=size)
            assert counts.sum() == 32
            assert counts.max() - counts.min() <= 1

    def test_a_learners_places_depend_on_its_own_numbers_alone(self):
        for size in (50, 5000):
            uniforms = torch.rand(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            together = distinct_places(uniforms, size, 32)
            alone = [distinct_places(uniforms[learner : learner + 1], size, 32)[0] for learner in range(4)]
            assert torch.equal(together, torch.stack(alone))

    def test_numbers_just_below_1_are_places_too(self):
        below = torch.full((1, 4), 1 - 2**-53, dtype=torch.float64)
        assert distinct_places(below, 600_000, 2).max() == 599_999


def test_a_transition_takes_four_bytes_for_each_of_its_numbers():
    assert transition_bytes(15, 4) == 4 * (15 + 4 + 1 + 1 + 15)
    row = make_replay().add(*transitions(1)[0])[0]
    assert row.numpy().nbytes == transition_bytes(SIZE, ACTIONS)


def test_room_for_nothing_is_refused():
    with pytest.raises(ValueError, match="capacity and batch_size must be at least 1, got 0 and 8"):
        make_replay(0)
