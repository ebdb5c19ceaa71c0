"""What users pass in, turned into the arrays that the rest of irli works on, or refused.

Every message says which parameter is at fault, what it must be, what it is, and what to do.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.errors import DimensionMismatch, InvalidParameter

# Values looked at in one go: keeps the scratch memory of a check at a megabyte.
_BLOCK = 1 << 20


def as_vectors(x: Any, name: str, dim: int | None = None) -> NDArray[np.float32]:
    """Return `x` as C-contiguous float32 of shape (n, d), copied only if it is not yet so.

    Parameters
    ----------
    x : array_like of shape (n, d)
        Real numbers of any width, integers or booleans; memory-mapped arrays stay mapped.
    name : str
        What the caller calls `x`, for the messages.
    dim : int, optional
        The number of dimensions that `x` must have.

    Examples
    --------
    >>> as_vectors([[1, 2], [3, 4]], "X")
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    array = _as_real(x, name)
    if array.ndim != 2:
        raise InvalidParameter(
            f"The '{name}' parameter must be an array of shape (n, d), one vector in each row. "
            f"Got shape {array.shape} instead. Reshape it, for one vector with x[None, :]."
        )
    if array.size == 0:
        raise InvalidParameter(
            f"The '{name}' parameter must hold at least one vector of at least one dimension. "
            f"Got shape {array.shape} instead. Check that the data was loaded."
        )
    return _as_float32(array, name, dim)


def as_queries(x: Any, dim: int) -> tuple[NDArray[np.float32], bool]:
    """Return `x` as float32 of shape (n, dim), and whether it was a single 1-D query.

    No queries at all, shape (0, dim), are allowed: they have an empty answer.

    Examples
    --------
    >>> as_queries([1, 2], dim=2)
    (array([[1., 2.]], dtype=float32), True)
    """
    plain = type(x) is np.ndarray and x.dtype == np.float32
    array = x if plain else _as_real(x, "queries")
    single = array.ndim == 1
    if single:
        array = array[None, :]
    if array.ndim != 2:
        raise InvalidParameter(
            "The 'queries' parameter must be one query of shape (d,) or an array of shape (n, d). "
            f"Got shape {array.shape} instead. Reshape it to one query in each row."
        )
    return _as_float32(array, "queries", dim), single


def as_ids(ids: Any, n: int) -> NDArray[np.int64]:
    """Return `ids` as int64 of shape (n,): one for each item, not negative, none twice.

    Examples
    --------
    >>> as_ids([7, 3, 5], n=3)
    array([7, 3, 5])
    """
    array = as_array(ids, "ids")
    if array.shape != (n,):
        raise InvalidParameter(
            f"The 'ids' parameter must have shape ({n},), one id for each item. "
            f"Got shape {array.shape} instead. Pass as many ids as vectors, or none to number them."
        )
    if n == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidParameter(
            "The 'ids' parameter must hold integers that fit into 64 bits. "
            f"Got dtype {array.dtype} instead. Keep other names in a list and pass its positions."
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        row = int(array.argmax())
        raise InvalidParameter(
            "The 'ids' parameter must hold integers that fit into int64. "
            f"Got {array[row]} in row {row} instead. Use smaller ids."
        )
    array = np.ascontiguousarray(array, dtype=np.int64)
    if array.min() < 0:
        row = int(np.argmax(array < 0))
        raise InvalidParameter(
            "The 'ids' parameter must not hold negative ids, -1 stands for 'no item'. "
            f"Got {array[row]} in row {row} instead. Number the items from 0 up."
        )
    order = np.argsort(array, kind="stable")
    again = order[1:][array[order[1:]] == array[order[:-1]]]
    if again.size:
        row = int(again.min())
        first = int(np.argmax(array == array[row]))
        raise InvalidParameter(
            "The 'ids' parameter must not hold an id twice. "
            f"Got {array[row]} in rows {first} and {row}. Drop one of them or give it a new id."
        )
    return array


def as_relevance(y: Any, n_queries: int, n_items: int) -> sp.csr_array[np.float32, tuple[int, int]]:
    """Return which items each query wants, as float32 weights of shape (n_queries, n_items).

    Parameters
    ----------
    y : sparse array of shape (n_queries, n_items), or int array of shape (n_queries, j)
        Weights that are not negative; or in each row the row numbers of the wanted items, with -1
        where there are fewer than j. A query may want nothing.

    Examples
    --------
    >>> as_relevance([[2, 0], [1, -1]], n_queries=2, n_items=3).toarray()
    array([[1., 0., 1.],
           [0., 1., 0.]], dtype=float32)
    """
    if sp.issparse(y):
        return _relevance_from_sparse(y, n_queries, n_items)
    array = as_array(y, "relevance")
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidParameter(
            "The 'relevance' parameter must be a sparse array of weights or an integer array of "
            f"item rows. Got dtype {array.dtype} instead. "
            "Wrap dense weights: scipy.sparse.csr_array(y)."
        )
    if array.ndim != 2 or len(array) != n_queries:
        raise InvalidParameter(
            f"The 'relevance' parameter must have shape ({n_queries}, j), one row for each query. "
            f"Got shape {array.shape} instead. Pad short rows with -1."
        )
    wrong = (array < -1) | (array >= n_items)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidParameter(
            f"The 'relevance' parameter must hold item rows in the range [0, {n_items - 1}], or -1 "
            f"as padding. Got {array[row, column]} in row {row} instead. "
            "Pass positions in the base vectors, not ids."
        )
    rows, columns = np.nonzero(array != -1)
    relevance = sp.csr_array(
        (np.ones(len(rows), dtype=np.float32), (rows, array[rows, columns])),
        shape=(n_queries, n_items),
    )
    # An item that is named twice is wanted no more than once.
    relevance.sum_duplicates()
    relevance.data[:] = 1
    return relevance


def check_int(
    name: str,
    value: Any,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    owner: str = "",
) -> int:
    """Return `value` as an int within the given bounds.

    Examples
    --------
    >>> check_int("k", 0, at_least=1, owner="search")
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'k' parameter of search must be an int in the range [1, inf).
    Got 0 instead. Use 1 or more.
    """
    if type(value) is int and (at_least is None or value >= at_least) and at_most is None:
        return value  # nearly always, and a single query has no time for the rest
    interval = _interval(at_least, at_most)
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise _refusal(name, owner, f"an int{interval}", value, "Pass a whole number.")
    _check_bounds(name, value, at_least, at_most, owner, f"an int{interval}")
    return int(value)


def check_float(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    owner: str = "",
) -> float:
    """Return `value` as a finite float within the given bounds.

    Examples
    --------
    >>> check_float("recall", 95, at_least=0, at_most=1, owner="tune")
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'recall' parameter of tune must be a finite number in the
    range [0, 1]. Got 95 instead. Use 1 or less.
    """
    must = f"a finite number{_interval(at_least, at_most)}"
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
        raise _refusal(name, owner, must, value, "Pass a number such as 0.5.")
    _check_bounds(name, value, at_least, at_most, owner, must)
    return float(value)


def check_choice(name: str, value: Any, allowed: Iterable[str], *, owner: str = "") -> str:
    """Return `value` if it is one of the `allowed` words.

    Examples
    --------
    >>> check_choice("metric", "cosin", ["l2", "ip", "cosine"])
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'metric' parameter must be one of 'l2', 'ip', 'cosine'.
    Got 'cosin' instead. Did you mean 'cosine'?
    """
    words = list(allowed)
    if isinstance(value, str) and value in words:
        return value
    near = difflib.get_close_matches(str(value), words, n=1)
    advice = f"Did you mean {near[0]!r}?" if near else "Choose one of them."
    raise _refusal(name, owner, "one of " + ", ".join(map(repr, words)), value, advice)


def check_bool(name: str, value: Any, *, owner: str = "") -> bool:
    """Return `value` if it is True or False.

    Examples
    --------
    >>> check_bool("boost", True)
    True
    """
    if not isinstance(value, bool):
        raise _refusal(name, owner, "True or False", value, "Choose one of them.")
    return value


def as_array(x: Any, name: str) -> NDArray[Any]:
    """Return `numpy.asarray(x)`, or say which parameter is no array."""
    try:
        return np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidParameter(
            f"The '{name}' parameter must be something that numpy.asarray takes. "
            f"Got {type(x).__name__} instead: {error}. Give every row the same length."
        ) from error


def _as_real(x: Any, name: str) -> NDArray[Any]:
    if sp.issparse(x):
        raise InvalidParameter(
            f"The '{name}' parameter must be a dense array of real numbers. "
            f"Got a sparse {type(x).__name__} instead. Make it dense with .toarray()."
        )
    array = as_array(x, name)
    if array.dtype.kind not in "fiub":
        raise InvalidParameter(
            f"The '{name}' parameter must hold real numbers. "
            f"Got dtype {array.dtype} instead. Convert it with .astype('float32')."
        )
    return array


def _as_float32(array: NDArray[Any], name: str, dim: int | None) -> NDArray[np.float32]:
    if dim is not None and array.shape[1] != dim:
        raise DimensionMismatch(
            f"The '{name}' parameter must have {dim} dimensions, as the vectors of the index. "
            f"Got {array.shape[1]} dimensions instead. Encode them in the same way."
        )
    # Numbers beyond float32 become infinite here, and are named below.
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = np.ascontiguousarray(array, dtype=np.float32)
        if math.isfinite(vectors.sum()):  # then all are; a sum may overflow without a fault
            return vectors
    rows = max(1, _BLOCK // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), rows):
        finite = np.isfinite(vectors[start : start + rows]).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            value = vectors[row][~np.isfinite(vectors[row])][0]
            raise InvalidParameter(
                f"The '{name}' parameter must hold finite numbers (within float32). "
                f"Got {value} in row {row} instead. Drop or repair such rows."
            )
    return vectors


def _relevance_from_sparse(
    y: Any, n_queries: int, n_items: int
) -> sp.csr_array[np.float32, tuple[int, int]]:
    if y.shape != (n_queries, n_items):
        raise InvalidParameter(
            f"The 'relevance' parameter must have shape ({n_queries}, {n_items}), queries by "
            f"items. Got shape {y.shape} instead. Check that rows are queries and columns items."
        )
    if y.dtype.kind not in "fiub":
        raise InvalidParameter(
            "The 'relevance' parameter must hold real weights. "
            f"Got dtype {y.dtype} instead. Convert it with .astype('float32')."
        )
    relevance = sp.csr_array(y, copy=True)
    try:
        relevance.check_format(full_check=True)
    except ValueError as error:
        raise InvalidParameter(
            f"The 'relevance' parameter must be a well-formed sparse array. Got one with a fault "
            f"instead: {error}. Rebuild it from (row, column) pairs."
        ) from error
    with np.errstate(over="ignore"):
        relevance = relevance.astype(np.float32)
    wrong = ~(np.isfinite(relevance.data) & (relevance.data >= 0))
    if wrong.any():
        entry = int(np.argmax(wrong))
        row = int(np.searchsorted(relevance.indptr, entry, side="right")) - 1
        raise InvalidParameter(
            "The 'relevance' parameter must hold finite weights that are not negative. "
            f"Got {relevance.data[entry]} in row {row} instead. Leave out unwanted items."
        )
    relevance.sum_duplicates()
    relevance.eliminate_zeros()
    return relevance


def _interval(at_least: float | None, at_most: float | None) -> str:
    if at_least is None and at_most is None:
        return ""
    low = "(-inf" if at_least is None else f"[{at_least}"
    high = "inf)" if at_most is None else f"{at_most}]"
    return f" in the range {low}, {high}"


def _check_bounds(
    name: str, value: Any, at_least: float | None, at_most: float | None, owner: str, must: str
) -> None:
    if at_least is not None and value < at_least:
        raise _refusal(name, owner, must, value, f"Use {at_least} or more.")
    if at_most is not None and value > at_most:
        raise _refusal(name, owner, must, value, f"Use {at_most} or less.")


def _refusal(name: str, owner: str, must: str, value: Any, advice: str) -> InvalidParameter:
    of = f" of {owner}" if owner else ""
    return InvalidParameter(
        f"The '{name}' parameter{of} must be {must}. Got {value!r} instead. {advice}"
    )
