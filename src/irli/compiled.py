"""How loops are compiled, and what all of them need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

LINE = 64  # bytes of a cache line


_COMMON: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
_INNER: dict[str, Any] = {**_COMMON, "no_cpython_wrapper": True}
_REORDERED = {"reassoc", "contract", "nsz"}  # not 'nnan' or 'ninf': infinities mean something here


def kernel(function: Kernel) -> Kernel:
    """Compile without the GIL and keep the machine code for the next process."""
    return cast("Kernel", numba.njit(**_COMMON)(function))


def step(function: Kernel) -> Kernel:
    """Like `kernel`, for the steps of a query: handing over a whole index takes longer than some.

    They are written into what calls them.
    """
    return cast("Kernel", numba.njit(**_COMMON, forceinline=True)(function))


def inner(function: Kernel) -> Kernel:
    """Like `kernel`, for what only kernels call: a way in from Python takes long to compile."""
    return cast("Kernel", numba.njit(**_INNER)(function))


def arithmetic(function: Kernel) -> Kernel:
    """Like `kernel`, for loops of sums that may be reordered to fill vector registers."""
    return cast("Kernel", numba.njit(**_COMMON, fastmath=_REORDERED)(function))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: mapped or not, kernels are compiled for one type."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def empty_at_line(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an empty array that starts at a cache line: wide registers then never read two."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    room = np.empty(size + LINE, dtype=np.uint8)
    start = -room.ctypes.data % LINE
    array: NDArray[Any] = room[start : start + size].view(kind).reshape(shape)
    return array


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, copied only if it does not start at a cache line; a mapped file does."""
    if array.ctypes.data % LINE == 0 and array.flags.c_contiguous:
        return array
    copy = empty_at_line(array.shape, array.dtype)
    copy[...] = array
    return copy


@kernel
def kth_largest(values: Any, k: int) -> Any:
    """Return the k-th largest of `values` (k >= 1), moving the larger ones before it.

    Hoare's selection.
    """
    low, high, want = 0, len(values) - 1, k - 1
    while low < high:
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if want <= j:
            high = j
        elif want >= i:
            low = i
        else:
            break
    return values[want]


@kernel
def shell_sort(values: Any, others: Any, count: int) -> None:
    """Sort the first `count` values, largest first, and move `others` with them.

    For a few hundred at most: nothing is allocated.
    """
    for gap in (301, 132, 57, 23, 10, 4, 1):
        for i in range(gap, count):
            value, other = values[i], others[i]
            place = i
            while place >= gap and values[place - gap] < value:
                values[place], others[place] = values[place - gap], others[place - gap]
                place -= gap
            values[place], others[place] = value, other
