"""Print the notes of a release: the section of CHANGELOG.md for its tag.

    python .github/scripts/release_notes.py v0.1.0

Fails if the tag is not the version of the package, or if the changelog has no section for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read_version(code: str) -> str:
    """Return the version that a module states.

    >>> read_version('__version__ = "0.1.0"')
    '0.1.0'
    """
    [version] = re.findall(r'^__version__ = "(.+)"$', code, flags=re.MULTILINE)
    return str(version)


def find_notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading; empty if there is none.

    >>> find_notes("## [0.2.0] - 2030-01-01\\n\\nFaster.\\n\\n## [0.1.0]\\n\\nFirst.\\n", "0.2.0")
    'Faster.'
    """
    section = rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)"
    found = re.search(section, changelog, flags=re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def main(tag: str) -> None:
    version = read_version((ROOT / "src" / "irli" / "__init__.py").read_text("utf-8"))
    if tag != f"v{version}":
        sys.exit(f"The tag must be v{version}, the version of the package. Got {tag} instead.")
    notes = find_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    if not notes:
        sys.exit(
            f"CHANGELOG.md must have a section '## [{version}] - date'. Add it, then tag again."
        )
    print(notes)


if __name__ == "__main__":
    main(sys.argv[1])
