"""The working folder of a build: files named by their contents, and marks of finished work."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.files import write_atomically
from irli.base.types import StrPath

_COMPLETE = "finished.json"
_STORED = ("items", "ids", "queries", "relevance", "rows", "labels")  # names given to `store`


class WorkDir:
    """A folder for the files of a build: the given one, or a temporary one that goes with it."""

    def __init__(self, folder: StrPath | None) -> None:
        if folder is None:
            folder = tempfile.mkdtemp(prefix="irli-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder).resolve()
        self.path.mkdir(parents=True, exist_ok=True)


def store(folder: Path, name: str, array: NDArray[Any]) -> str:
    """Write an array to a file named by its contents, unless it is there; return the path."""
    array = np.ascontiguousarray(array)
    digest = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    path = folder / f"{name}.{digest.hexdigest()[:16]}.npy"
    if not path.exists():
        with write_atomically(folder, path.name) as file:
            np.save(file, array)
    return str(path)


def store_sparse(folder: Path, name: str, array: Any) -> str:
    """Write a CSR in the same way."""
    digest = hashlib.sha256(repr(array.shape).encode())
    for part in (array.indptr, array.indices, array.data):
        digest.update(np.ascontiguousarray(part).data)
    path = folder / f"{name}.{digest.hexdigest()[:16]}.npz"
    if not path.exists():
        with write_atomically(folder, path.name) as file:
            sp.save_npz(file, array, compressed=False)
    return str(path)


def clear(folder: Path) -> None:
    """Remove all that a build has left in `folder`, when its shards are saved elsewhere."""
    for path in folder.glob("shard-[0-9]*"):
        shutil.rmtree(path)
    for name in _STORED:
        for path in folder.glob(f"{name}.*.np[yz]"):
            path.unlink()


# --- marks -----------------------------------------------------------------------------------


def mark_complete(folder: Path, key: str) -> None:
    """Mark a folder as finished work on `key`, with the checksums of all its files."""
    said = json.dumps({"key": key, "files": _sum_files(folder)}, sort_keys=True)
    with write_atomically(folder, _COMPLETE) as file:
        file.write(said.encode())


def is_complete(folder: Path, key: str, *, verify: bool = True) -> bool:
    """Whether the folder holds finished work on `key`; with `verify`, all of it intact."""
    try:
        said = json.loads((folder / _COMPLETE).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    if not verify:
        return bool(said["key"] == key)
    return bool(said == {"key": key, "files": _sum_files(folder)})


def unmark_complete(folder: Path) -> None:
    """Say that the folder does not hold finished work."""
    (folder / _COMPLETE).unlink(missing_ok=True)


def _sum_files(folder: Path) -> dict[str, str]:
    sums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _COMPLETE and not path.name.startswith("."):
            with path.open("rb") as file:
                sums[str(path.relative_to(folder))] = hashlib.file_digest(
                    file, "sha256"
                ).hexdigest()
    return sums
