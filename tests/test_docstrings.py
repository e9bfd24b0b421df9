"""The examples in the docstrings of estimators, bonuses and integrations run, and print what they say."""

import doctest
import inspect

import pytest

import vcse.bonuses
import vcse.estimators
import vcse.integrations
from vcse.bonuses import registry

# Interfaces, results and intermediate terms, and what looks a registered bonus up.
WITHOUT_EXAMPLE = {
    "BonusBatch",
    "BonusEntry",
    "BonusOutput",
    "BonusWarning",
    "Normalizer",
    "StackedOutput",
    "ValueNormalizer",
} | {
    *("ConditionalReading", "ConditionalTerms", "JointNeighbors", "StateEntropyReading", "StateEntropyTerms"),
    *("bonus_entry", "bonus_names", "log_unit_ball", "state_entropy_terms", "value_conditional_terms"),
}
PUBLIC = {
    name: getattr(package, name)
    for package in (vcse.bonuses, vcse.estimators, vcse.integrations)
    for name in package.__all__
    if inspect.isclass(getattr(package, name)) or inspect.isroutine(getattr(package, name))
}


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - WITHOUT_EXAMPLE))
def test_examples_print_what_they_say(name, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))  # an example may register a bonus
    found = doctest.DocTestFinder().find(PUBLIC[name], name, module=False, globs={})
    results = [doctest.DocTestRunner().run(each) for each in found]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) > 1


def test_exceptions_are_public():
    assert set(PUBLIC) >= WITHOUT_EXAMPLE
