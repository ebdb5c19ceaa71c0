"""Arrays aligned to cache lines, read-only views, and releasing the pages of mapped files."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def align(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, copied only if it does not start at a cache line. Mapped files do."""
    if array.ctypes.data % LINE == 0 and array.flags.c_contiguous:
        return array
    copy = empty_at_line(array.shape, array.dtype)
    copy[...] = array
    return copy


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
