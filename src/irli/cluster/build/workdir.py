"""WorkDir: the working folder of a build, with files named by checksum and marks of completion."""

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

from irli.base.files import make_folder, write_atomically
from irli.base.logs import get_logger
from irli.base.types import StrPath
from irli.errors import InvalidParameter

log = get_logger(__name__)

_COMPLETE = "finished.json"
_STORED = ("items", "ids", "queries", "relevance", "rows", "labels")  # names given to `store`


class WorkDir:
    """The folder for the files of a build. A temporary one is removed with this object."""

    def __init__(self, folder: StrPath | None) -> None:
        if folder is None:
            folder = tempfile.mkdtemp(prefix="irli-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder).resolve()
        make_folder(self.path, "'checkpoint' parameter of fit")


def check_space(folder: Path, size: int, what: str) -> None:
    """Log what is going to be written to `folder`. Raise if there is no room for `size` bytes.

    The files that are there already count as written, since a build resumes with them.
    """
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    log.info("space: %s take at least %s more in %s", what, _format(size - there), folder)
    if size - there > free:
        raise InvalidParameter(
            f"The 'checkpoint' parameter of fit must name a folder with room for {what}: at least "
            f"{_format(size - there)}. {folder} has {_format(free)} left. Pass a folder on a "
            "larger disk. Without 'checkpoint', fit writes to the temporary folder, which the "
            "environment variable TMPDIR names."
        )


def _format(size: int) -> str:
    return f"{max(0, size) / 1e6:,.1f} MB"


def store(folder: Path, name: str, array: NDArray[Any]) -> str:
    """Write an array to a file named by its checksum, unless it exists. Return the path."""
    array = np.ascontiguousarray(array)
    digest = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    path = folder / f"{name}.{digest.hexdigest()[:16]}.npy"
    if not path.exists():
        with write_atomically(folder, path.name) as file:
            np.save(file, array)
    return str(path)


def store_sparse(folder: Path, name: str, array: Any) -> str:
    """Write a CSR to a file named by its checksum, unless it exists. Return the path."""
    digest = hashlib.sha256(repr(array.shape).encode())
    for part in (array.indptr, array.indices, array.data):
        digest.update(np.ascontiguousarray(part).data)
    path = folder / f"{name}.{digest.hexdigest()[:16]}.npz"
    if not path.exists():
        with write_atomically(folder, path.name) as file:
            sp.save_npz(file, array, compressed=False)
    return str(path)


def clear(folder: Path) -> None:
    """Remove the files of a build from `folder`, after its shards were saved to another folder."""
    for path in folder.glob("shard-[0-9]*"):
        shutil.rmtree(path)
    for name in _STORED:
        for path in folder.glob(f"{name}.*.np[yz]"):
            path.unlink()


# --- marks of completion ---------------------------------------------------------------------


def mark_complete(folder: Path, key: str) -> None:
    """Mark a folder as complete for `key`, with the checksums of all its files."""
    mark = json.dumps({"key": key, "files": _sum_files(folder)}, sort_keys=True)
    with write_atomically(folder, _COMPLETE) as file:
        file.write(mark.encode())


def is_complete(folder: Path, key: str, *, verify: bool = True) -> bool:
    """Whether a folder is marked as complete for `key`. With `verify`, its files must be intact."""
    try:
        mark = json.loads((folder / _COMPLETE).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    if not verify:
        return bool(mark["key"] == key)
    return bool(mark == {"key": key, "files": _sum_files(folder)})


def unmark_complete(folder: Path) -> None:
    """Remove the mark of completion from a folder."""
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
