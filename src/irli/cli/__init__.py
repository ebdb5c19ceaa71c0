"""The command line: `irli build`, `search`, `eval`, `tune`, `info`, `plan` and `labels`."""

from irli.cli.app import main

__all__ = ["main"]
