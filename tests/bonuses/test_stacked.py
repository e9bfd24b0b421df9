import pytest
import torch

from vcse.bonuses.registry import BonusChoice, make_bonus
from vcse.bonuses.stacked import StackedBonus

SE = BonusChoice("se", "release-a2c", 5)
VCSE = BonusChoice("vcse", "release-a2c", 3)
RUNNING = BonusChoice("vcse", "release-a2c", 3, value_normalization="running")
MATCHED = BonusChoice("se-matched", "release-a2c", 3)
RCSE = BonusChoice("rcse", "paper", 3)
NONE = BonusChoice("none", "paper", 3)
CHOICES = [SE, VCSE, RUNNING, SE, NONE, MATCHED, RUNNING, RCSE]


def make_batches(count, learners=8, points=24, dimensions=4):
    """Few different features, as in a grid world: there are duplicates."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randn(15, dimensions, generator=generator)
    batches = []
    for _ in range(count):
        features = places[torch.randint(0, 15, (learners, points), generator=generator)]
        values, rewards = torch.randn(2, learners, points, generator=generator)
        batches.append((features, values, rewards))
    return batches


def play(bonus, batches):
    return [bonus(features, values=values, rewards=rewards) for features, values, rewards in batches]


def only(batches, learner):
    return [tuple(each[learner : learner + 1] for each in batch) for batch in batches]


def test_learners_with_the_same_choice_share_a_part():
    bonus = StackedBonus(CHOICES, dimensions=4)
    assert bonus.members == [[0, 3], [1], [2, 6], [4], [5], [7]]
    assert len(bonus.parts) == 6
    assert len(StackedBonus([VCSE] * 5, dimensions=4).parts) == 1


@pytest.mark.parametrize("learner", range(len(CHOICES)))
def test_a_learner_is_paid_what_it_is_paid_alone(learner):
    batches = make_batches(3)
    together = play(StackedBonus(CHOICES, dimensions=4), batches)
    alone = play(StackedBonus([CHOICES[learner]], dimensions=4), only(batches, learner))
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one.reward[learner], other.reward[0])
        theirs = one.diagnostics()
        for name, number in other.diagnostics().items():
            assert torch.equal(theirs[name][learner], number[0]), name


def test_diagnostics_are_nan_where_a_bonus_has_no_such_number():
    (output,) = play(StackedBonus(CHOICES, dimensions=4), make_batches(1))
    known = {name: (~numbers.isnan()).tolist() for name, numbers in output.diagnostics().items()}
    assert known["bonus_mean"] == [True] * len(CHOICES)
    assert known["radius_mean"] == [choice is not NONE for choice in CHOICES]
    assert known["value_mean"] == [choice.name == "vcse" for choice in CHOICES]
    assert known["value_count_mean"] == [choice.name == "vcse" for choice in CHOICES]
    assert known["reward_mean"] == [choice is RCSE for choice in CHOICES]
    means = output.reward.mean(-1)
    torch.testing.assert_close(output.diagnostics()["bonus_mean"], means)


@pytest.mark.parametrize("others", [CHOICES, CHOICES[::-1]])
def test_a_state_goes_on_in_another_cohort_as_if_it_had_stayed(others, tmp_path):
    """All learners' states move, through a file, to a cohort in which they stand elsewhere."""
    batches = make_batches(4)
    bonus = StackedBonus(CHOICES, dimensions=4)
    play(bonus, batches[:2])
    torch.save([bonus.learner_state(learner) for learner in range(len(CHOICES))], tmp_path / "states")
    states = torch.load(tmp_path / "states", weights_only=True)
    again, order = StackedBonus(others, dimensions=4), list(range(len(CHOICES)))
    if others is not CHOICES:
        order.reverse()
    for place, learner in enumerate(order):
        again.load_learner_state(place, states[learner])
    moved = [tuple(each[order] for each in batch) for batch in batches[2:]]
    for one, other in zip(play(bonus, batches[2:]), play(again, moved), strict=True):
        assert torch.equal(one.reward[order], other.reward)


def test_a_state_is_a_copy_and_no_window():
    bonus = StackedBonus([RUNNING, RUNNING], dimensions=4)
    batches = make_batches(2, learners=2)
    play(bonus, batches[:1])
    state = bonus.learner_state(1)
    before = {name: entry.clone() for name, entry in state.items()}
    play(bonus, batches[1:])
    assert before
    assert all(torch.equal(state[name], entry) for name, entry in before.items())
    assert any(not torch.equal(bonus.learner_state(1)[name], entry) for name, entry in before.items())


def test_loading_one_learner_leaves_the_others_alone():
    bonus, other = StackedBonus([RUNNING, RUNNING], dimensions=4), StackedBonus([RUNNING], dimensions=4)
    batches = make_batches(2, learners=2)
    play(bonus, batches[:1])
    play(other, only(batches[1:], 0))
    before = bonus.learner_state(0)
    bonus.load_learner_state(1, other.learner_state(0))
    for name, entry in other.learner_state(0).items():
        assert torch.equal(bonus.learner_state(1)[name], entry)
        assert torch.equal(bonus.learner_state(0)[name], before[name])


def test_a_state_of_another_bonus_is_refused():
    bonus = StackedBonus([SE, RUNNING], dimensions=4)
    with pytest.raises(ValueError, match=r"the bonus holds .*memory.*, but the checkpoint has .*count"):
        bonus.load_learner_state(0, bonus.learner_state(1))
    with pytest.raises(IndexError, match="learner 2 of 2"):
        bonus.learner_state(2)


def test_only_a_full_memory_can_be_captured():
    assert StackedBonus([VCSE, MATCHED], dimensions=4).is_capturable
    bonus = StackedBonus([VCSE, SE], dimensions=2)
    assert not bonus.is_capturable
    (points,) = torch.randn(1, 2, 5000, 2, generator=torch.Generator().manual_seed(0))
    memory = bonus.parts[1].memory
    for _ in range(2):
        memory.push(points[1:])
    assert bonus.is_capturable


def test_a_cohort_in_which_nobody_is_paid_is_empty():
    bonus = StackedBonus([], dimensions=4)
    assert (bonus.learners, list(bonus.parts), bonus.is_capturable) == (0, [], True)


def test_bonuses_made_already_are_stacked_as_those_of_choices():
    batches = make_batches(3)
    members = [[3, 0], [1], [6, 2], [4], [5], [7]]
    parts = [(make_bonus(CHOICES[mine[0]], learners=len(mine), dimensions=4), mine) for mine in members]
    for one, other in zip(
        play(StackedBonus.of(parts), batches), play(StackedBonus(CHOICES, dimensions=4), batches), strict=True
    ):
        assert torch.equal(one.reward, other.reward)
        mine, theirs = one.diagnostics(), other.diagnostics()
        assert all(torch.equal(mine[name].nan_to_num(), theirs[name].nan_to_num()) for name in theirs)


def test_one_bonus_may_serve_all_learners_in_another_order():
    ((features, values, rewards),) = make_batches(1, learners=3)
    bonus = make_bonus(VCSE, learners=3, dimensions=4)
    expected = bonus(features, values=values).reward
    for order in ([0, 1, 2], [2, 0, 1]):
        assert torch.equal(StackedBonus.of([(bonus, order)])(features, values=values, rewards=rewards).reward, expected)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([[0, 1], [2]], r"ValueConditionalStateEntropy for learners \[2\] must be made with learners=1"),
        ([[0, 1], [1, 2]], r"each learner from 0 on must have one bonus, got bonuses for learners \[0, 1, 1, 2\]"),
        ([[0, 1], [3, 4]], r"got bonuses for learners \[0, 1, 3, 4\]"),
    ],
)
def test_bonuses_that_do_not_serve_each_learner_once_are_refused(members, message):
    with pytest.raises(ValueError, match=message):
        StackedBonus.of([(make_bonus(VCSE, learners=2, dimensions=4), mine) for mine in members])
