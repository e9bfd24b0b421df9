"""Numbers as people say them, for lines on a terminal and on pages."""


def counted(count: int, noun: str) -> str:
    """Write a number of things: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
