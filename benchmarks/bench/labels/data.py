"""The data sets of labels, and the packages that they are compared with.

It imports only the standard library, since the peers' environment imports it too.
"""

from __future__ import annotations

from pathlib import Path

from bench.commands import find_file

NAMES = ("debian-deps", "delicious", "moby-synonyms")
TITLES = ("finna-100k", "finna-100k-bigrams", "finna-100k-names", "finna")
PACKAGES = {  # of the other libraries
    "omikuji-parabel": "omikuji",
    "omikuji-bonsai": "omikuji",
    "xr-linear": "libpecos",
    "one-vs-all": "libpecos",
    "napkinxc": "napkinxc",
    "slice-like": "libpecos",
}


def name_files(data: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of the training and the test rows."""
    return data / f"{name}-train.txt.gz", data / f"{name}-test.txt.gz"


def find_files(data: Path, name: str) -> tuple[Path, Path]:
    """Return the same paths, or end with what to do if there are no such files."""
    train, test = (find_file(data, path.name) for path in name_files(data, name))
    return train, test
