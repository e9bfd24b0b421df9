"""Plug-ins: modules from outside the package that register agents, bonuses and families of environments.

An installed package names its module as an entry point of the group "vcse.plugins"; VCSE_PLUGINS names others, with
commas between them. It is in the environment, so that worker processes import the same.
"""

import os
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

REMEDY = "set VCSE_PLUGINS to the module that registers it"
OF_YOUR_OWN = f"; for one of your own, {REMEDY}"


class UnknownNameError(ValueError):
    """A name that nothing has registered: it is wrong, or that of a plug-in that is not loaded.

    Args:
        message: The error.
        kind: What the name is one of, such as "bonus".
        name: The name.
    """

    def __init__(self, message: str, *, kind: str = "", name: str = "") -> None:
        super().__init__(message)
        self.kind, self.name = kind, name

    @classmethod
    def of_run(cls, run: object, kind: str, name: str) -> "UnknownNameError":
        """Return the error for a run that was made with a name that is unknown now."""
        return cls(f"{run} was made with the {kind} {name!r}, none of vcse's: {REMEDY}", kind=kind, name=name)


@cache
def load_plugins() -> None:
    """Import every plug-in; a second call does nothing."""
    plugins = {point.module: f"the entry point {point.name!r}" for point in entry_points(group="vcse.plugins")}
    named = [name.strip() for name in os.environ.get("VCSE_PLUGINS", "").split(",") if name.strip()]
    if named and os.getcwd() not in sys.path:  # an installed command has its own directory there
        sys.path.append(os.getcwd())
    for module, source in (plugins | dict.fromkeys(named, "VCSE_PLUGINS")).items():
        try:
            import_module(module)
        except Exception as error:  # a module from outside can fail in any way
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{source} names module {module!r}, which cannot be imported: {reason}") from error
