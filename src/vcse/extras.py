"""What is not installed with the rest, and how to install it."""


def install(extra: str) -> str:
    """Return how an extra is installed; the library is on no package index yet."""
    return f"in a clone of vcse: pip install -e '.[{extra}]'"
