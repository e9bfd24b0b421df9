import pytest
import torch

from vcse.nets import cached_encoder
from vcse.nets.cached_encoder import CachedEncoder
from vcse.nets.encoders import GridEncoder
from vcse.streams import torch_generator


def make(seeds):
    encoder = GridEncoder(7, 7, 3, [torch_generator(seed, "random encoder") for seed in seeds]).requires_grad_(False)
    return CachedEncoder(encoder, len(seeds)), encoder


def views(learners, count, *, different, seed=0):
    """Observations of which only so many are different."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.randint(0, 11, (learners, different, 7, 7, 3), dtype=torch.uint8, generator=generator)
    which = torch.randint(0, different, (learners, count), generator=generator)
    return seen[torch.arange(learners)[:, None], which]


@pytest.mark.parametrize("different", [1, 20, 200])
def test_features_are_those_of_the_encoder(different):
    remembering, encoder = make([0, 1, 2])
    for seed in range(4):
        observations = views(3, 64, different=different, seed=seed % 2)
        torch.testing.assert_close(remembering(observations), encoder(observations), rtol=1e-5, atol=1e-5)


def test_what_is_known_is_not_encoded_again(monkeypatch):
    remembering, _ = make([0, 1])
    observations = views(2, 64, different=10)
    first = remembering(observations)
    monkeypatch.setattr(remembering, "encoder", None)
    assert torch.equal(remembering(observations.flip(1)), first.flip(1))


def test_a_learner_alone_has_the_bits_that_it_has_among_others():
    together, _ = make([0, 1, 2, 3])
    alone, _ = make([2])
    for seed in range(3):
        # The others meet more and fewer new observations than this one.
        mine = views(1, 64, different=30, seed=seed)
        others = torch.cat([views(1, 64, different=different, seed=seed + 7) for different in (1, 200, 60)])
        among = torch.cat([others[:2], mine, others[2:]])
        assert torch.equal(together(among)[2:3], alone(mine))


def test_a_restart_goes_on_with_the_same_bits():
    whole, _ = make([0, 1])
    restarted, _ = make([0, 1])
    whole(views(2, 64, different=40))
    for learner in range(2):
        restarted.load_learner_state(learner, whole.learner_state(learner))
    for seed in range(3):
        observations = views(2, 64, different=40, seed=seed)
        assert torch.equal(restarted(observations), whole(observations))


def test_nothing_can_be_saved_and_loaded_too():
    empty, encoder = make([0])
    other, _ = make([0])
    other.load_learner_state(0, empty.learner_state(0))
    observations = views(1, 5, different=5)
    torch.testing.assert_close(other(observations), encoder(observations), rtol=1e-5, atol=1e-5)


def test_a_learner_that_remembers_too_much_starts_anew(monkeypatch):
    monkeypatch.setattr(cached_encoder, "MOST_CACHED", 100)
    remembering, encoder = make([0, 1])
    for seed in range(5):
        observations = views(2, 64, different=1000, seed=seed)
        torch.testing.assert_close(remembering(observations), encoder(observations), rtol=1e-5, atol=1e-5)
        assert all(len(places) <= 100 for places in remembering.places)


@pytest.mark.parametrize("who", [[0, 2], [3], [3, 0, 1, 2]])
def test_some_learners_are_encoded_as_among_all_and_the_others_remember_nothing_of_it(who):
    together, _ = make([0, 1, 2, 3])
    some, _ = make([0, 1, 2, 3])
    observations, others = views(4, 64, different=20), views(4, 64, different=20, seed=1)
    expected = together(observations)
    assert torch.equal(some(observations[who], torch.tensor(who)), expected[who])
    assert [len(each) > 0 for each in some.places] == [learner in who for learner in range(4)]
    assert torch.equal(some(others), together(others))
