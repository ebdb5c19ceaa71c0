"""Letting go of mapped files: what was read of one stays with the process until then."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np


def let_go(array: Any) -> None:
    """Give back the memory of an array that is, or is a view of, a mapped file that is only read.

    Its pages come back when they are asked for again. Nothing happens to other arrays.

    Examples
    --------
    >>> let_go(np.zeros(3))
    """
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    if array is not None and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        pages: Any = getattr(array, "_mmap")  # noqa: B009, numpy's stubs do not name it
        pages.madvise(mmap.MADV_DONTNEED)
