"""The four decorators that compile functions with Numba."""

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
_REORDERED = {"reassoc", "contract", "nsz"}  # not 'nnan' or 'ninf': kernels use infinities and NaN


def kernel(function: Kernel) -> Kernel:
    """Compile a function that releases the GIL, and cache the machine code on disk."""
    return cast("Kernel", numba.njit(**_COMMON)(function))


def inlined(function: Kernel) -> Kernel:
    """Like `kernel`, but always inlined. Used for the stages of a query.

    Passing a whole index as an argument would cost more than the call itself.
    """
    return cast("Kernel", numba.njit(**_COMMON, forceinline=True)(function))


def inner(function: Kernel) -> Kernel:
    """Like `kernel`, for functions that only kernels call. Compiles no wrapper for Python."""
    return cast("Kernel", numba.njit(**_INNER)(function))


def arithmetic(function: Kernel) -> Kernel:
    """Like `kernel`, but the compiler may reorder sums so that it can vectorize them."""
    return cast("Kernel", numba.njit(**_COMMON, fastmath=_REORDERED)(function))
