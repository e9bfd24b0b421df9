import torch

from vcse.agents.value_permutation import ValuePermutation

CPU = torch.device("cpu")
SOURCES = ["network", "permuted", "frozen", "permuted"]
STATES = 128
IDENTITY = torch.arange(STATES)


def orders_of(sources, seeds, updates):
    order = ValuePermutation(sources, seeds, STATES, CPU)
    return [order.of_update(update).clone() for update in updates]


def test_every_permuted_learner_has_a_permutation_of_its_own_and_the_others_keep_their_order():
    for order in orders_of(SOURCES, [0, 1, 2, 3], range(5)):
        assert torch.equal(order.sort().values, IDENTITY.expand(4, STATES))
        assert torch.equal(order[[0, 2]], IDENTITY.expand(2, STATES))
        assert (order[[1, 3]] == IDENTITY).float().mean() < 0.1
        assert not torch.equal(order[1], order[3])


def test_permutations_differ_from_update_to_update_and_go_on_after_a_restart():
    orders = orders_of(SOURCES, [0, 1, 2, 3], range(20))
    assert len({tuple(order[1].tolist()) for order in orders}) == 20
    for late, order in zip(orders_of(SOURCES, [0, 1, 2, 3], range(12, 20)), orders[12:], strict=True):
        assert torch.equal(late, order)


def test_a_learner_has_the_permutations_that_it_would_have_alone():
    together = orders_of(SOURCES, [0, 1, 2, 3], range(5))
    for alone, order in zip(orders_of(["permuted"], [3], range(5)), together, strict=True):
        assert torch.equal(alone[0], order[3])


def test_where_no_values_are_permuted_there_is_no_order():
    assert ValuePermutation(["network", "frozen"], [0, 1], STATES, CPU).of_update(0) is None
