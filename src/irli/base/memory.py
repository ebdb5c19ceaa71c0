"""Arrays aligned to cache lines, read-only views, and arrays that are mapped from files."""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import warn

LINE = 64  # bytes of a cache line


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: nobody may change an index that was checked."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def empty_at_line(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an empty array that starts at a cache line. A wide load then never reads two lines."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    buffer = np.empty(size + LINE, dtype=np.uint8)
    start = -buffer.ctypes.data % LINE
    array: NDArray[Any] = buffer[start : start + size].view(kind).reshape(shape)
    return array


def make_array(folder: Path | None, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array to fill: in memory, or in a new file of a folder, which takes no memory.

    The system writes the file out while it is filled.

    Examples
    --------
    >>> make_array(None, "queries", (2, 3), np.float32).shape
    (2, 3)
    """
    if folder is None or 0 in shape:  # nothing cannot be mapped
        return np.empty(shape, dtype)
    made: NDArray[Any] = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
    return made


def align(array: NDArray[Any], *, copy: bool = False) -> NDArray[Any]:
    """Return the array at a cache line, copied only if it is elsewhere. Mapped files are there.

    With `copy`, it is copied in any case.
    """
    if not copy and array.ctypes.data % LINE == 0 and array.flags.c_contiguous:
        return array
    aligned = empty_at_line(array.shape, array.dtype)
    aligned[...] = array
    return aligned


def align_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a named tuple as a dict. Its arrays become aligned and read-only."""
    fields = part._asdict().items()
    return {n: read_only(align(v)) if isinstance(v, np.ndarray) else v for n, v in fields}


def release_pages(array: Any) -> None:
    """Give the pages of a read-only mapped file back to the system (madvise DONTNEED).

    Otherwise the pages that were read stay with the process. They are loaded again when they are
    read again. A view of a mapped file is fine, too. Other arrays are left alone.

    Examples
    --------
    >>> release_pages(np.zeros(3))
    """
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    if array is not None and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        pages: Any = getattr(array, "_mmap")  # noqa: B009, numpy's stubs do not name it
        pages.madvise(mmap.MADV_DONTNEED)


class MappedFile:
    """A file that vectors are mapped from, to notice that someone has written to it.

    Examples
    --------
    >>> MappedFile.of(np.zeros(3)) is None
    True
    """

    def __init__(self, path: str) -> None:
        self._path, self._seen = path, _look_at(path)

    @classmethod
    def of(cls, array: Any) -> MappedFile | None:
        """Return the file that an array shares with others, or None if it is not mapped."""
        if not isinstance(array, np.memmap) or array.filename is None or array.mode == "c":
            return None
        return cls(os.fspath(array.filename))

    def warn_if_changed(self) -> None:
        """Warn once for each change. A file that was removed or replaced stays mapped as it was."""
        before, now = self._seen, _look_at(self._path)
        if before is None or now is None or now[0] != before[0]:
            return
        self._seen = now
        if now != before:
            warn(
                f"The file '{self._path}' has changed since fit, and the index reads its vectors "
                "from there: the buckets are those of the old vectors. Fit again. Next time, save "
                "and load the index before you change the file, or pass fit a copy: np.array(X).",
                UserWarning,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a pickle has vectors of its own

    def __deepcopy__(self, memo: Any) -> MappedFile:
        return self  # a deep copy shares them


def _look_at(path: str) -> tuple[tuple[int, int], int, int] | None:
    """Return which file is at a path, its size and when it was written, or None."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns
