"""What some tests need and not every machine has. VCSE_REQUIRE names what must be here, as .ci/run does."""

import os
import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parents[1] / "out" / "docs"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def needs(name, found, reason):
    """Return the mark of tests that are skipped where something was not found; where it is required, that is an error.

    Args:
        name: What VCSE_REQUIRE may list.
        found: Whether it is here.
        reason: What is said where it is not.
    """
    if not found and name in os.environ.get("VCSE_REQUIRE", "").split():
        raise RuntimeError(f"VCSE_REQUIRE lists {name}, but {reason}")
    return pytest.mark.skipif(not found, reason=reason)


needs_chromium = needs("chromium", CHROMIUM, "no chromium, chromium-browser or google-chrome is installed")
needs_site = needs("site", (SITE / "index.html").exists(), "make docs has not built the site")
