"""Validate the arguments of users and convert them to the arrays that irli works on.

Every error message says which parameter is wrong, what it must be, what it is, and what to do.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.errors import DimensionMismatch, InvalidParameter

# A search may ask for this many answers even if there are fewer items.
_MOST_PADDED = 1 << 16
# Values checked at a time. This limits the scratch memory of a check to a megabyte.
_BLOCK = 1 << 20
LONGEST = 1e18  # length of a vector; its square is a float32, with room for a sum


def as_vectors(x: Any, name: str, dim: int | None = None) -> NDArray[np.float32]:
    """Return `x` as C-contiguous float32 of shape (n, d), copied only if necessary.

    Parameters
    ----------
    x : array_like of shape (n, d)
        Floats of any width, integers or booleans. A memory-mapped float32 array stays mapped.
    name : str
        The parameter name for error messages.
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

    An empty batch of shape (0, dim) is allowed.

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


def check_norms(vectors: NDArray[np.float32], name: str, *, least: float = 0.0) -> None:
    """Raise unless the squared lengths of vectors (n, d) are float32 numbers.

    Otherwise distances would be infinite, or all of them zero. `least` is the smallest length that
    the longest vector may have, unless all are zero.

    Examples
    --------
    >>> check_norms(np.array([[3.0, 4.0], [1e20, 0.0]], dtype=np.float32), "X")
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'X' parameter must hold vectors of a length of at most 1e+18.
    Got 1e+20 in row 1 instead. Divide all vectors by the same number, or use the metric 'cosine'.
    """
    longest = 0.0
    rows = max(1, _BLOCK // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), rows):
        block = vectors[start : start + rows]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            squares = np.einsum("ij,ij->i", block, block)
        row = int(squares.argmax())
        if not squares[row] <= LONGEST**2:
            length = np.linalg.norm(block[row].astype(np.float64))
            raise InvalidParameter(
                f"The '{name}' parameter must hold vectors of a length of at most {LONGEST:g}. "
                f"Got {length:.3g} in row {start + row} instead. Divide all vectors by the same "
                "number, or use the metric 'cosine'."
            )
        if longest < least:
            longest = max(longest, float(np.linalg.norm(block.astype(np.float64), axis=1).max()))
    if 0 < longest < least:
        raise InvalidParameter(
            f"The '{name}' parameter must hold a vector of a length of at least {least:g}. Got "
            f"{longest:.3g} as the largest instead. Multiply all vectors by the same number, or "
            "use the metric 'cosine'."
        )


def as_ids(ids: Any, n: int) -> NDArray[np.int64]:
    """Return `ids` as int64 of shape (n,). They must be non-negative and distinct.

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
            "The 'ids' parameter must hold integers that fit into 64 bits, or strings. "
            f"Got dtype {array.dtype} instead. Convert all ids with int or str."
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
        return value  # the usual case, kept fast for single queries
    interval = _format_interval(at_least, at_most)
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise _parameter_error(name, owner, f"an int{interval}", value, "Pass a whole number.")
    _check_bounds(name, value, at_least, at_most, owner, f"an int{interval}")
    return int(value)


def check_k(k: Any, count: int, *, owner: str) -> int:
    """Return `k`, how many answers to give for each query, out of `count`.

    More than there are is padding. A little of it is harmless; a billion columns are a mistake.

    Examples
    --------
    >>> check_k(12, 10, owner="search")
    12
    >>> check_k(10**9, 10, owner="search")
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'k' parameter of search must be an int in the range [1,
    65536]. Got 1000000000 instead. Use 65536 or less.
    """
    if type(k) is int and 0 < k <= count:
        return k  # the usual case, kept fast for single queries
    return check_int("k", k, at_least=1, at_most=max(count, _MOST_PADDED), owner=owner)


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
    must = f"a finite number{_format_interval(at_least, at_most)}"
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
        raise _parameter_error(name, owner, must, value, "Pass a number such as 0.5.")
    _check_bounds(name, value, at_least, at_most, owner, must)
    return float(value)


def check_choice(name: str, value: Any, allowed: Iterable[str], *, owner: str = "") -> str:
    """Return `value` if it is one of the `allowed` strings.

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
    advice = "Choose one of them."
    if isinstance(value, str):
        advice = suggest(value.lower(), words, otherwise=advice)
    raise _parameter_error(name, owner, "one of " + ", ".join(map(repr, words)), value, advice)


def check_bool(name: str, value: Any, *, owner: str = "") -> bool:
    """Return `value` if it is True or False.

    Examples
    --------
    >>> check_bool("boost", True)
    True
    """
    if not isinstance(value, bool):
        raise _parameter_error(name, owner, "True or False", value, "Choose one of them.")
    return value


def check_padded_range(name: str, array: NDArray[Any], limit: int, what: str, advice: str) -> None:
    """Raise unless every number of an array (n, j) is in [0, limit), or -1 as padding."""
    wrong = (array < -1) | (array >= limit)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidParameter(
            f"The '{name}' parameter must hold {what} in the range [0, {limit - 1}], or -1 as "
            f"padding. Got {array[row, column]} in row {row} instead. {advice}"
        )


def check_keywords(
    given: Iterable[str], known: Iterable[str], *, owner: str, also: Iterable[str] = ()
) -> None:
    """Raise the TypeError that Python raises for an unknown keyword argument.

    The owner has arguments `also`, which are not among those given here.

    Examples
    --------
    >>> check_keywords(["probe"], ["probes", "threshold"], owner="search")
    Traceback (most recent call last):
    TypeError: search() got an unexpected keyword argument 'probe'. Did you mean 'probes'?
    """
    words = list(known)
    for name in given:
        if name not in words:
            every = [*words, *also]
            advice = suggest(name, every, otherwise=f"It has: {', '.join(every)}.")
            raise TypeError(f"{owner}() got an unexpected keyword argument '{name}'. {advice}")


def suggest(word: str, words: list[str], *, otherwise: str) -> str:
    """Return the advice to use the most similar of `words`, or another one if none is similar.

    Examples
    --------
    >>> suggest("probe", ["probes", "threshold"], otherwise="Choose one of them.")
    "Did you mean 'probes'?"
    """
    import difflib

    near = difflib.get_close_matches(word, words, n=1)
    return f"Did you mean '{near[0]}'?" if near else otherwise


def as_array(x: Any, name: str) -> NDArray[Any]:
    """Return `numpy.asarray(x)`, or raise an error that names the parameter.

    Masked values are refused: `numpy.asarray` would take what is below the mask.
    """
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise InvalidParameter(
            f"The '{name}' parameter must not have masked values. Got {x.mask.sum()} of {x.size} "
            "masked instead. Replace them with x.filled(value), or drop their rows."
        )
    try:
        return np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        advice = "Give every row the same length."
        part = x[0] if isinstance(x, list | tuple) and x else x
        # A tensor of torch, or a list of them: with gradients, in bfloat16, or on a device
        if hasattr(part, "detach"):
            advice = "Pass the tensor as x.detach().cpu().float().numpy()."
        raise InvalidParameter(
            f"The '{name}' parameter must be something that numpy.asarray accepts. "
            f"Got {type(x).__name__} instead: {str(error).rstrip('.')}. {advice}"
        ) from error


def _is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse array of SciPy. Whoever has made one has imported SciPy."""
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and scipy.issparse(x)


def _as_real(x: Any, name: str) -> NDArray[Any]:
    if _is_sparse(x):
        raise InvalidParameter(
            f"The '{name}' parameter must be a dense array of real numbers. "
            f"Got a sparse {type(x).__name__} instead. Make it dense with .toarray()."
        )
    array = as_array(x, name)
    if array.dtype.kind not in "fiub":
        advice = "Convert it with .astype('float32')."
        if array.dtype.kind == "U":  # perhaps a path, or texts
            advice = "Read a file first, with numpy.load for example. For texts, there are "
            advice += "fit_text and predict_text of a LabelIndex."
        raise InvalidParameter(
            f"The '{name}' parameter must hold real numbers. "
            f"Got dtype {array.dtype} instead. {advice}"
        )
    return array


def _as_float32(array: NDArray[Any], name: str, dim: int | None) -> NDArray[np.float32]:
    if dim is not None and array.shape[1] != dim:
        raise DimensionMismatch(
            f"The '{name}' parameter must have {dim} dimensions, like the vectors of the index. "
            f"Got {array.shape[1]} dimensions instead. Encode them in the same way."
        )
    # Numbers beyond float32 become infinite here. The check below reports them.
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = np.ascontiguousarray(array, dtype=np.float32)
        # A finite sum means that every value is finite. An infinite one may be mere overflow.
        if math.isfinite(vectors.sum()):
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


def _format_interval(at_least: float | None, at_most: float | None) -> str:
    if at_least is None and at_most is None:
        return ""
    low = "(-inf" if at_least is None else f"[{at_least}"
    high = "inf)" if at_most is None else f"{at_most}]"
    return f" in the range {low}, {high}"


def _check_bounds(
    name: str, value: Any, at_least: float | None, at_most: float | None, owner: str, must: str
) -> None:
    if at_least is not None and value < at_least:
        raise _parameter_error(name, owner, must, value, f"Use {at_least} or more.")
    if at_most is not None and value > at_most:
        raise _parameter_error(name, owner, must, value, f"Use {at_most} or less.")


def _parameter_error(name: str, owner: str, must: str, value: Any, advice: str) -> InvalidParameter:
    of = f" of {owner}" if owner else ""
    return InvalidParameter(
        f"The '{name}' parameter{of} must be {must}. Got {value!r} instead. {advice}"
    )
