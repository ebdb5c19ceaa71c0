"""Check arrays that come from a file, once, so that kernels can trust them.

A kernel reads where an index tells it to. An index that is wrong would make it read or write
elsewhere in memory. Checksums find damage, but anyone can compute them for a folder of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.errors import FormatError


def check_array(
    name: str,
    array: NDArray[Any],
    dtype: type[np.generic],
    *shape: int | None,
    filled: bool = False,
) -> tuple[int, ...]:
    """Return the shape of an array. Raise unless it has this dtype and shape.

    Where `shape` has None, any size will do. A `filled` array must not be empty.

    Examples
    --------
    >>> check_array("bias", np.zeros((2, 3), dtype=np.float32), np.float32, 2, None)
    (2, 3)
    >>> check_array("bias", np.zeros(3, dtype=np.float32), np.float32, 2, None)
    Traceback (most recent call last):
    irli.errors.FormatError: The array 'bias' of the index must be float32 of shape (2, any). Got
    float32 of shape (3,) instead. Restore the folder from a copy, or build the index again.
    """
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)
    )
    if array.dtype != dtype or not fits or (filled and array.size == 0):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        must = f"be {np.dtype(dtype)} of shape ({sizes}{',' * (len(shape) == 1)})"
        must += " and not empty" if filled else ""
        raise array_error(name, must, f"{array.dtype} of shape {array.shape}")
    return array.shape


def check_range(name: str, array: NDArray[Any], low: int, high: int) -> None:
    """Raise unless every number of an array is in [low, high].

    Examples
    --------
    >>> check_range("items", np.array([0, 7]), 0, 5)
    Traceback (most recent call last):
    irli.errors.FormatError: The array 'items' of the index must hold numbers in the range [0, 5].
    Got 7 instead. Restore the folder from a copy, or build the index again.
    """
    if array.size == 0:
        return
    smallest, largest = int(array.min()), int(array.max())
    release_pages(array)  # reading it must not leave it in memory
    if smallest < low or largest > high:
        wrong = smallest if smallest < low else largest
        raise array_error(name, f"hold numbers in the range [{low}, {high}]", str(wrong))


def check_offsets(name: str, offsets: NDArray[np.int64], end: int) -> None:
    """Raise unless offsets of shape (n + 1,) or (R, n + 1) rise from 0 to `end`.

    In two dimensions, each row starts where the one before ends.

    Examples
    --------
    >>> check_offsets("offsets", np.array([[0, 2, 4], [4, 4, 9]]), 9)
    """
    starts, ends = offsets[..., :1].ravel(), offsets[..., -1:].ravel()
    joined = starts[0] == 0 and np.array_equal(starts[1:], ends[:-1]) and ends[-1] == end
    if not joined or (offsets[..., 1:] < offsets[..., :-1]).any():
        got = f"offsets from {offsets.min()} to {offsets.max()}, which do not"
        raise array_error(name, f"rise from 0 to {end}, row by row", got)


def check_buckets(
    offsets: NDArray[np.int64], items: NDArray[np.int32], shape: tuple[int, ...], count: int
) -> None:
    """Raise unless `offsets` and `items` are the buckets of `count` items.

    `shape` is (R, B): the repetitions and the buckets of each.
    """
    check_array("items", items, np.int32, None)
    check_range("items", items, 0, count - 1)
    check_array("offsets", offsets, np.int64, shape[0], shape[1] + 1)
    check_offsets("offsets", offsets, len(items))


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Raise if an array holds NaN or infinity.

    Examples
    --------
    >>> check_finite("tuning_queries", np.array([1.0, np.nan]))
    Traceback (most recent call last):
    irli.errors.FormatError: The array 'tuning_queries' of the index must hold finite numbers. Got
    nan instead. Restore the folder from a copy, or build the index again.
    """
    finite = np.isfinite(array)
    if not finite.all():
        raise array_error(name, "hold finite numbers", str(array[~finite][0]))


def check_history(history: Any) -> list[dict[str, Any]]:
    """Return a history that was read. Raise unless it is a list of objects.

    Examples
    --------
    >>> check_history([{"recall": 0.9}])
    [{'recall': 0.9}]
    """
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise damage_error("field 'history'", "be a list of objects", type(history).__name__)
    return history


def array_error(name: str, must: str, got: str) -> FormatError:
    """Return the error that an array of an index is not what it must be."""
    return damage_error(f"array '{name}'", must, got)


def damage_error(what: str, must: str, got: str) -> FormatError:
    """Return the error that a part of an index is not what it must be."""
    return FormatError(
        f"The {what} of the index must {must}. Got {got} instead. "
        "Restore the folder from a copy, or build the index again."
    )
