import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import vcse

SOURCE = Path(vcse.__file__).parents[1]


def test_importing_the_library_loads_no_torch_until_a_name_is_used():
    told = (
        "import sys, vcse\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules, dir(vcse).count('kl_entropy'))\n"
        "print(callable(vcse.kl_entropy), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", told],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["False False 1", "True True"]


def test_modules_are_reached_without_an_import_of_their_own():
    told = (
        "import sys, vcse\n"
        "print({'estimators', 'integrations'} <= set(dir(vcse)), 'torch' in sys.modules)\n"
        "print(vcse.estimators.__name__, vcse.integrations.RolloutBonus is vcse.RolloutBonus)\n"
        "print(hasattr(vcse, '__main__'), hasattr(vcse, 'estimator'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", told],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["True False", "vcse.estimators True", "False False"]


@pytest.mark.parametrize("name", vcse.__all__)
def test_a_public_name_is_the_documented_object_of_its_module(name):
    home = import_module(vcse._HOMES[name])
    found = getattr(vcse, name)
    assert found is getattr(home, name)
    assert name in home.__all__
    assert inspect.getdoc(found)


def test_type_checkers_see_every_name():
    seen = re.findall(r"^    from (\S+) import (\w+) as \2$", inspect.getsource(vcse), flags=re.MULTILINE)
    assert {name: module for module, name in seen} == vcse._HOMES


def test_dir_lists_what_is_public():
    assert set(vcse.__all__) | {"__version__"} <= set(dir(vcse))
    assert dir(vcse) == sorted(set(dir(vcse)))


def test_a_misspelt_name_is_an_attribute_error_that_names_the_nearest():
    with pytest.raises(AttributeError, match="module 'vcse' has no attribute 'kl_entropi'") as raised:
        _ = vcse.kl_entropi
    assert (raised.value.name, raised.value.obj) == ("kl_entropi", vcse)  # Python seeks the nearest in dir() of it
