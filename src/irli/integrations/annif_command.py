"""The program `irli-annif`: Annif's own command line, with irli among its backends."""

from __future__ import annotations

import sys

from irli.errors import MissingDependency


def main() -> None:
    """Add the backend, and hand over to Annif."""
    try:
        from irli.integrations.annif import register
    except MissingDependency as error:
        sys.exit(f"irli-annif: error: {error}")
    from annif.cli import cli

    register()
    cli(prog_name="irli-annif")
