"""How loops are compiled: four decorators over Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

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


def inlined(function: Kernel) -> Kernel:
    """Like `kernel`, and always inlined: passing a whole index to a call costs more than the call.

    For the stages of a query.
    """
    return cast("Kernel", numba.njit(**_COMMON, forceinline=True)(function))


def inner(function: Kernel) -> Kernel:
    """Like `kernel`, for what only kernels call. No wrapper for Python is compiled."""
    return cast("Kernel", numba.njit(**_INNER)(function))


def arithmetic(function: Kernel) -> Kernel:
    """Like `kernel`, for sums that may be reordered so that they fill vector registers."""
    return cast("Kernel", numba.njit(**_COMMON, fastmath=_REORDERED)(function))
