"""Numbers as people write them, for lines on a terminal and on pages."""

import math


def counted(count: int, noun: str) -> str:
    """Write a number of things: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Write a time as people do."""
    if math.isinf(seconds):
        return "unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"


def size(count: int) -> str:
    """Write a number of bytes as people do: 12 MB, 3.4 GB."""
    for unit, bytes_each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= bytes_each:
            number = count / bytes_each
            return f"{number:.1f} {unit}" if number < 100 else f"{number:,.0f} {unit}"
    return f"{count / 1e6:.1f} MB"
