"""A bonus from outside the package: registered, made by its name, stacked beside others, saved and loaded."""

import dataclasses
import json

import pytest
import torch

from vcse.bonuses import Bonus, BonusBatch, BonusOutput, registry
from vcse.bonuses.registry import BonusChoice, bonus_entry, bonus_names, make_bonus, register_bonus
from vcse.bonuses.stacked import StackedBonus

VCSE = BonusChoice("vcse", "paper", 3)


class RareActions(Bonus):
    """Pays actions that were seldom taken, and learns the mean of the next features."""

    needs_actions = True
    needs_next_features = True
    learns = True

    def __init__(self, *, actions, dimensions, learners=None):
        super().__init__(learners=learners)
        self.register_buffer("counts", torch.ones(*self.learner_shape, actions))
        self.guess = torch.nn.Parameter(torch.zeros(*self.learner_shape, dimensions))

    @torch.no_grad()
    def forward(self, features, *, actions, next_features):
        self.check_features(features)
        self.counts.scatter_add_(-1, actions, torch.ones_like(actions, dtype=self.counts.dtype))
        surprise = (next_features - self.guess.unsqueeze(-2)).norm(dim=-1)
        return BonusOutput(surprise / self.counts.gather(-1, actions).sqrt())

    def learn(self, batch):
        assert batch.values is None
        with torch.no_grad():
            error = batch.next_features.mean(-2) - self.guess
            self.guess += 0.5 * error
        return {"guess_error": error.norm(dim=-1)}


def make_rare_actions(choice, *, learners, dimensions, check_finite):
    del check_finite
    return RareActions(actions=choice.k, dimensions=dimensions, learners=learners)


@pytest.fixture
def rare(monkeypatch):
    """A choice of the bonus, which is registered for the time of a test."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    register_bonus("rare-actions", make_rare_actions, kind=RareActions, help="rare actions")
    return BonusChoice("rare-actions", "paper", 3)


def make_batch(number, learners=3, points=10, dimensions=4):
    generator = torch.Generator().manual_seed(number)
    features, next_features = torch.randn(2, learners, points, dimensions, generator=generator)
    values = torch.randn(learners, points, generator=generator)
    actions = torch.randint(0, 3, (learners, points), generator=generator)
    return {"features": features, "values": values, "actions": actions, "next_features": next_features}


def test_a_registered_bonus_is_known_by_its_name(rare):
    assert bonus_names()[-1] == "rare-actions"
    entry = bonus_entry("rare-actions")
    assert entry.needs == {"actions", "next_features"}
    assert (entry.uses, entry.pays, entry.help) == (frozenset(), True, "rare actions")
    assert (rare.pays, rare.needs_values, rare.memory_capacity) == (True, False, None)
    assert isinstance(make_bonus(rare, learners=2, dimensions=4), RareActions)
    assert BonusChoice(**json.loads(json.dumps(dataclasses.asdict(rare)))) == rare


def test_a_class_that_takes_a_choice_is_registered_without_a_function(rare):
    class Constant(Bonus):
        needs_values = True

        def __init__(self, choice, *, learners, dimensions, check_finite):
            super().__init__(learners=learners)
            self.amount = choice.k

        def forward(self, features, *, values):
            return BonusOutput(torch.full_like(values, self.amount))

    assert register_bonus("constant", Constant).needs == {"values"}
    bonus = make_bonus(BonusChoice("constant", "paper", 7), learners=2, dimensions=4)
    assert bonus(torch.zeros(2, 5, 4), values=torch.zeros(2, 5)).reward.eq(7).all()


def test_a_name_stands_for_one_bonus(rare):
    assert register_bonus("rare-actions", make_rare_actions, kind=RareActions, help="rare actions").make is not None
    for make, kind in ((lambda choice, **given: None, RareActions), (RareActions, None)):
        with pytest.raises(ValueError, match="bonus 'rare-actions' is registered already"):
            register_bonus("rare-actions", make, kind=kind)
    with pytest.raises(ValueError, match="bonus 'other' is made by a function: pass kind"):
        register_bonus("other", make_rare_actions)
    with pytest.raises(ValueError, match="uses must name fields of a BonusChoice, got offset"):
        register_bonus("other", RareActions, uses=["log_offset", "offset"])
    with pytest.raises(ValueError, match=f"one of {', '.join(bonus_names())}, got 'other'"):
        bonus_entry("other")


def test_it_is_stacked_beside_another_and_gets_what_it_needs(rare):
    stacked = StackedBonus([rare, VCSE, rare], dimensions=4)
    assert stacked.needs == {"values", "actions", "next_features"}
    batch = make_batch(0)
    output = stacked(**batch)
    of_rare = [batch[name][[0, 2]] for name in ("actions", "next_features")]
    alone = make_bonus(rare, learners=2, dimensions=4)
    paid = alone(batch["features"][[0, 2]], actions=of_rare[0], next_features=of_rare[1]).reward
    assert torch.equal(output.reward[[0, 2]], paid)
    vcse = make_bonus(VCSE, learners=1, dimensions=4)
    assert torch.equal(output.reward[1:2], vcse(batch["features"][1:2], values=batch["values"][1:2]).reward)
    with pytest.raises(ValueError, match="next_features is needed by RareActions"):
        stacked(batch["features"], values=batch["values"], actions=batch["actions"])


def test_those_that_learn_do(rare):
    stacked = StackedBonus([VCSE, rare, rare], dimensions=4)
    batch = make_batch(0)
    assert stacked.learns
    assert not StackedBonus([VCSE], dimensions=4).learns
    batch.pop("values")  # VCSE learns nothing and is asked for nothing
    (name, error), *others = stacked.learn(BonusBatch(**batch)).items()
    assert (name, others) == ("guess_error", [])
    assert error.isnan().tolist() == [True, False, False]
    assert torch.equal(error[1:], batch["next_features"][1:].mean(-2).norm(dim=-1))
    assert (stacked.learn(BonusBatch(**batch))["guess_error"][1:] < error[1:]).all()
    assert NoLearning(learners=3).learn(BonusBatch(**batch)) == {}


class NoLearning(Bonus):
    """Defines nothing."""


def test_a_bonus_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="NoLearning does not define forward"):
        NoLearning()(torch.zeros(5, 2))


def test_its_state_is_saved_and_loaded_learner_by_learner(rare, tmp_path):
    choices = [rare, VCSE, rare]
    stacked = StackedBonus(choices, dimensions=4)
    stacked(**make_batch(0))
    stacked.learn(BonusBatch(**make_batch(0)))
    torch.save([stacked.learner_state(learner) for learner in range(3)], tmp_path / "states")
    again = StackedBonus(choices[::-1], dimensions=4)
    for learner, state in enumerate(torch.load(tmp_path / "states", weights_only=True)):
        again.load_learner_state(2 - learner, state)
    batch = make_batch(1)
    turned = {name: tensor.flip(0) for name, tensor in batch.items()}
    assert torch.equal(stacked(**batch).reward, again(**turned).reward.flip(0))
