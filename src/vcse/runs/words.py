"""Numbers as people say them, for lines on a terminal and on pages."""

import math


def counted(count: int, noun: str) -> str:
    """Write a number of things: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Write a time as people say it."""
    if math.isinf(seconds):
        return "unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"
