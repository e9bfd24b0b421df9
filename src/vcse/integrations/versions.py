"""Which versions of other libraries the adapters support."""

import re

from vcse.extras import install


def check_version(library: str, version: str, *, least: str, below: str, extra: str) -> None:
    """Raise ImportError for a library whose version is outside of the range that an adapter supports.

    Args:
        library: Its name, as pip knows it.
        version: What is installed.
        least: The first supported version.
        below: The first that is no longer supported.
        extra: The extra of vcse that installs a supported version.

    Example:
        >>> from vcse.integrations.versions import check_version
        >>> check_version("skrl", "2.1.1", least="2.0", below="3", extra="skrl")
    """
    if not _numbers(least) <= _numbers(version) < _numbers(below):
        raise ImportError(f"{library} {version} is not supported, but >={least},<{below} is: {install(extra)}")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, without what marks a release candidate or a build."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in found.group().split(".")) if found else ()
