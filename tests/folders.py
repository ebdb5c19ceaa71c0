"""What lies in index folders, to compare them."""

from __future__ import annotations

from pathlib import Path

from irli.base.folder import read_manifest


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def array_sums(folder: Path) -> dict[str, str]:
    """Return the checksums of the data files of an index folder.

    The manifest is left out: it holds the tuned parameters, which go by the clock.
    """
    files = read_manifest(folder)["files"]
    return {name: entry["sha256"] for name, entry in files.items()}


def list_parts(path: Path) -> list[Path]:
    """Return the parts of a saved index, in their order."""
    return [path / name for name in read_manifest(path)["parts"]]
