"""What is not installed with the rest, and how to install it."""


def install(extra: str) -> str:
    """Say how an extra is installed; the library is on no index of packages yet."""
    return f"in a clone of vcse: pip install -e '.[{extra}]'"
