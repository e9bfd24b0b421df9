"""Which versions of other people's libraries the adapters were tried with."""

import re

from vcse.extras import install


def check_version(library: str, version: str, *, least: str, below: str, extra: str) -> None:
    """Raise ImportError for a library whose version is not of the range that an adapter was tried with.

    Args:
        library: Its name, as pip knows it.
        version: What is installed.
        least: The first version that is served.
        below: The first that is not served any more.
        extra: Which extra of vcse installs a version that is served.

    Example:
        >>> from vcse.integrations.versions import check_version
        >>> check_version("skrl", "2.1.1", least="2.0", below="3", extra="skrl")
    """
    if not _numbers(least) <= _numbers(version) < _numbers(below):
        raise ImportError(f"{library} {version} is not served, but >={least},<{below} is: {install(extra)}")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, without what marks a release candidate or a build."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in found.group().split(".")) if found else ()
