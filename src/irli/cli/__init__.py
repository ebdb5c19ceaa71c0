"""The command line."""

from irli.cli.app import main

__all__ = ["main"]
