"""What is not installed with the rest, and how to install it."""


def install(extra: str) -> str:
    """Return the command that installs an extra: where vcse is installed, from a wheel or a clone, pip adds to it."""
    return f"pip install 'vcse[{extra}]'"
