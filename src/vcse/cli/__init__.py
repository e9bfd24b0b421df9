"""The command line: a file per verb, what they share, and `main`, which chooses."""

from vcse.cli.main import main

__all__ = ["main"]
