"""Options as they are written, and the refusal of numbers that are too small."""


def flag(name: str) -> str:
    """Return an option as it is written."""
    return f"--{name.replace('_', '-')}"


def check_least(**numbers: tuple[int | None, int]) -> None:
    """Refuse options whose number, if it is given, is less than the least that it may be."""
    for option, (number, least) in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{flag(option)} must be at least {least}, got {number}")
