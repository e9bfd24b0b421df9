"""The command line: one file per verb."""

from vcse.cli.main import main

__all__ = ["main"]
