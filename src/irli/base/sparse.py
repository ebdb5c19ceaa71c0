"""Validate sparse arguments of users: the relevance of items, rows of features, their labels.

They are converted to CSR. SciPy takes longer to import than NumPy, so a search does without.

Relevance and labels come in one of two forms, which mean the same for every index and metric:

- a matrix with a column for each item or label, nonzero where a row has it: sparse, or a dense
  array of bools or floats;
- an integer array of shape (n, j): the numbers of the items or labels of each row, padded with -1.

An integer array that may be a matrix of the first form is refused. Labels may also be lists of
numbers, of any lengths, or an array of shape (n,) with one number for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli import _native
from irli.base.checks import as_array, as_vectors, check_padded_range
from irli.base.types import Rows, Sparse
from irli.errors import DimensionMismatch, InvalidParameter, IrliError

_MOST_LABELS = 2**31 - 1  # label numbers have 32 bits
_MOST_UNUSED = 1000  # label numbers for each one that a row carries: more are a mistake


def as_relevance(y: Any, n_queries: int, n_items: int) -> Sparse:
    """Return the relevant items of each query: float32 weights of shape (n_queries, n_items).

    Parameters
    ----------
    y : matrix of shape (n_queries, n_items), or int array of shape (n_queries, j)
        Either non-negative weights (sparse, or a dense array of bools or floats), or the row
        numbers of the relevant items of each query. Rows with fewer than j relevant items are
        padded with -1. A query may have no relevant item.

    Examples
    --------
    >>> as_relevance([[2, 0], [1, -1]], n_queries=2, n_items=3).toarray()
    array([[1., 0., 1.],
           [0., 1., 0.]], dtype=float32)
    """
    if sp.issparse(y):
        return _check_sparse_relevance(y, n_queries, n_items)
    array = as_array(y, "relevance")
    if array.ndim != 2 or len(array) != n_queries:
        raise InvalidParameter(
            f"The 'relevance' parameter must have shape ({n_queries}, j), one row for each query. "
            f"Got shape {array.shape} instead. Pad short rows with -1."
        )
    if array.dtype.kind not in "iu" and array.size:
        return _check_sparse_relevance(_as_matrix(array, "relevance"), n_queries, n_items)
    advice = "Pass positions in the base vectors, not ids."
    check_padded_range("relevance", array, n_items, "item rows", advice)
    if array.shape[1] == n_items:
        _refuse_indicator(array, "relevance", "item rows")
    return _numbers_to_csr(array, n_items)


def as_rows(x: Any, dim: int | None = None) -> Rows:
    """Return rows of features as float32: CSR with sorted, distinct columns, or a dense array.

    Parameters
    ----------
    x : array_like or sparse array of shape (n, d)
    dim : int, optional
        The number of features that `x` must have.

    Examples
    --------
    >>> as_rows(sp.csr_array(np.eye(2))).dtype
    dtype('float32')
    >>> as_rows(np.ones((1, 2)), dim=3)
    Traceback (most recent call last):
    irli.errors.DimensionMismatch: The 'X' parameter must have 3 features, like the rows that the
    index was fitted on. Got 2 instead. Make the features in the same way.
    """
    # Rows that need no repair are not copied: it would take most of a prediction.
    plain = isinstance(x, sp.csr_array) and x.shape[1:] == (dim,) and x.shape[0] > 0
    if plain and _native.are_ordered_rows(x.indptr, x.indices, x.data, x.shape[1]):
        return cast("Sparse", x)
    if not sp.issparse(x):
        dense = as_vectors(x, "X")
        _check_width(dense.shape[1], dim)
        return dense
    rows = _as_csr(x, "X")
    _check_width(rows.shape[1], dim)
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        raise InvalidParameter(
            f"The 'X' parameter must have at least one row and one feature. Got shape {rows.shape} "
            "instead. Pass the rows to learn from or to label."
        )
    wrong = ~np.isfinite(rows.data)
    if wrong.any():
        value, row = _find_first(rows, wrong)
        raise InvalidParameter(
            "The 'X' parameter must hold finite numbers (within float32). "
            f"Got {value} in row {row} instead. Drop or repair such rows."
        )
    return rows


def as_query_rows(x: Any, dim: int) -> tuple[Rows, bool]:
    """Return rows to predict as `as_rows` does, and whether it was a single row of shape (d,).

    There may be no rows at all, in an array of shape (0, dim).

    Examples
    --------
    >>> as_query_rows([1, 2], dim=2)
    (array([[1., 2.]], dtype=float32), True)
    """
    given: Any = x if sp.issparse(x) else as_array(x, "X")
    if given.ndim == 1:
        return as_rows(given.reshape(1, -1), dim), True
    if given.ndim == 2 and given.shape[0] == 0:
        _check_width(given.shape[1], dim)
        return np.empty((0, dim), dtype=np.float32), False
    return as_rows(given, dim), False


def as_labels(y: Any, rows: int, least: int = 0) -> Sparse:
    """Return the labels of each row as a CSR of ones, of shape (rows, L).

    Parameters
    ----------
    y : labels of so many rows
        In one of the forms of `as_label_matrix`.
    least : int
        The least number of labels, where label numbers do not say how many there are.

    Examples
    --------
    >>> as_labels(sp.csr_array(np.array([[0, 2.0], [0, 0]])), rows=2).data
    array([1.], dtype=float32)
    """
    labels = _as_csr(as_label_matrix(y, "Y", least), "Y")
    if labels.shape[0] != rows:
        raise InvalidParameter(
            f"The 'Y' parameter must have a row for each of the {rows} rows of X. "
            f"Got {labels.shape[0]} instead. Pass both in the same order and number."
        )
    wrong = ~(np.isfinite(labels.data) & (labels.data >= 0))
    if wrong.any():
        value, row = _find_first(labels, wrong)
        raise InvalidParameter(
            "The 'Y' parameter must hold zeros and positive numbers (within float32). "
            f"Got {value} in row {row} instead. Leave out the labels that a row does not have."
        )
    labels.eliminate_zeros()
    if labels.nnz == 0:
        raise InvalidParameter(
            "The 'Y' parameter must give a label to at least one row. Got none at all. "
            "Check that rows and labels were read from the right files."
        )
    if are_numbers(y) and labels.shape[1] > least:
        _refuse_codes(labels)
    labels.data[:] = 1
    return labels


def as_label_matrix(y: Any, name: str, least: int = 0) -> Any:
    """Return labels as a sparse array of shape (n, L), nonzero where a row has a label.

    Parameters
    ----------
    y : matrix of shape (n, L), int array of shape (n, j) or (n,), or n lists of int
        The matrix is sparse, or a dense array of bools or floats. The integers are label numbers,
        padded with -1; L is then the largest number + 1, or `least` if that is more.
    least : int
        A matrix has at least so many columns: fewer columns of integers are label numbers.

    Examples
    --------
    >>> as_label_matrix([[2, 0], [1]], "Y").toarray()
    array([[1., 0., 1.],
           [0., 1., 0.]], dtype=float32)
    >>> as_label_matrix([[1, 0, 1], [0, 1, 0]], "Y")
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'Y' parameter must hold label numbers if it holds integers.
    Got 0 twice in row 1 instead, as in a matrix of zeros and ones. Pass a matrix as y.astype(bool),
    and numbers with one more column of -1.
    """
    if sp.issparse(y):
        return y
    array = as_array(_pad_lists(y), name)
    if array.ndim == 1 and array.dtype.kind in "iu":
        array, least = array[:, None], 2  # one number for each row: not a matrix
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"The '{name}' parameter must say which labels each row carries: a matrix of shape "
            "(rows, labels), nonzero where a row has a label, or lists of label numbers from 0 up, "
            f"or one number for each row. Got {type(y).__name__} of dtype {array.dtype} and shape "
            f"{array.shape} instead. Pass for example [[0, 2], [1]]."
        )
    if array.dtype.kind in "bf":
        return _as_matrix(array, name)
    check_padded_range(name, array, _MOST_LABELS, "label numbers", "Number the labels from 0 up.")
    if array.shape[1] >= least:
        _refuse_indicator(array, name, "label numbers")
    largest = int(array.max()) if array.size else -1
    return _numbers_to_csr(array, max(least, largest + 1))


def are_numbers(y: Any) -> bool:
    """Whether labels are given by their numbers."""
    return not sp.issparse(y) and np.asarray(_pad_lists(y)).dtype.kind in "iu"


def count_labels(labels: Sparse) -> NDArray[np.int64]:
    """Return how many rows carry each label (L,)."""
    return np.bincount(labels.indices, minlength=labels.shape[1])


def _pad_lists(y: Any) -> Any:
    """Return lists of integers, of different lengths or not, as an array padded with -1."""
    if getattr(y, "ndim", 1) != 1 or getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return y
    rows = list(y) if isinstance(y, Iterable) and not isinstance(y, str | bytes) else []
    if not rows or not all(_is_list(row) for row in rows):
        return y
    lengths = np.array([len(row) for row in rows])
    numbers = np.array(list(chain.from_iterable(rows)), dtype=object)
    whole = all(isinstance(number, int | np.integer) for number in numbers)
    if numbers.ndim != 1 or not whole or any(isinstance(one, bool) for one in numbers):
        return y
    padded = np.full((len(rows), max(1, lengths.max())), -1, dtype=object)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = numbers
    return padded.astype(np.int64)


def _is_list(row: Any) -> bool:
    return isinstance(row, Collection) and not isinstance(row, str | bytes)


def _refuse_codes(labels: Sparse) -> None:
    """Raise if nearly all label numbers are unused: then they are codes of something else."""
    carried = np.count_nonzero(count_labels(labels))
    if labels.shape[1] > _MOST_UNUSED * carried:
        raise InvalidParameter(
            "The 'Y' parameter must number the labels from 0 up. Got numbers up to "
            f"{labels.shape[1] - 1}, of which rows carry {carried}. Pass codes as strings, which "
            "become names, or a sparse matrix if there are so many labels."
        )


def check_sparse_format(x: Any, what: str, error: type[IrliError] = InvalidParameter) -> None:
    """Raise unless a sparse array is well-formed. Kernels do not check its indices again."""
    if not hasattr(x, "check_format"):  # only the compressed formats can be malformed
        return
    try:
        x.check_format(full_check=True)
    except ValueError as fault:
        raise error(
            f"{what} must be a well-formed sparse array. Got a malformed one instead: {fault}. "
            "Rebuild it from (row, column) pairs, numbered from 0 up."
        ) from fault


def _numbers_to_csr(numbers: NDArray[Any], width: int) -> Sparse:
    """Return a CSR of ones in the columns that each row (n, j) names, padded with -1."""
    rows, columns = np.nonzero(numbers != -1)
    matrix: Sparse = sp.csr_array(
        (np.ones(len(rows), np.float32), (rows, numbers[rows, columns].astype(np.int64))),
        shape=(len(numbers), width),
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1  # also where a row names a number twice
    return matrix


def _refuse_indicator(numbers: NDArray[Any], name: str, what: str) -> None:
    """Raise if integers (n, j), meant to be numbers, look like a matrix of zeros and ones.

    Padding shows that they are numbers. Without it, a matrix repeats 0 in a row, or is too narrow
    or too full to tell.
    """
    if numbers.size == 0 or (numbers == -1).any():
        return
    again = (numbers == 0).sum(axis=1) > 1
    if again.any():
        got = f"0 twice in row {int(np.argmax(again))} instead, as in"
    elif numbers.max() <= 1:
        got = "nothing but 0 and 1 instead, which may also be"
    else:
        return
    raise InvalidParameter(
        f"The '{name}' parameter must hold {what} if it holds integers. "
        f"Got {got} a matrix of zeros and ones. "
        "Pass a matrix as y.astype(bool), and numbers with one more column of -1."
    )


def _as_matrix(array: NDArray[Any], name: str) -> Any:
    """Return a dense matrix as a CSR. Complex numbers, strings and objects are refused."""
    if array.dtype.kind not in "bf":
        raise InvalidParameter(
            f"The '{name}' parameter must be a matrix of real numbers or an integer array. "
            f"Got dtype {array.dtype} instead. Convert it with .astype('float32')."
        )
    with np.errstate(over="ignore"):  # later checks report what float32 cannot hold
        return sp.csr_array(array.astype(np.float32))


def _check_sparse_relevance(y: Any, n_queries: int, n_items: int) -> Sparse:
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
    check_sparse_format(y, "The 'relevance' parameter")
    relevance = sp.csr_array(y, copy=True)
    with np.errstate(over="ignore"):
        relevance = relevance.astype(np.float32)
    wrong = ~(np.isfinite(relevance.data) & (relevance.data >= 0))
    if wrong.any():
        value, row = _find_first(relevance, wrong)
        raise InvalidParameter(
            "The 'relevance' parameter must hold finite weights that are not negative. "
            f"Got {value} in row {row} instead. Leave out items that are not relevant."
        )
    relevance.sum_duplicates()
    relevance.eliminate_zeros()
    return relevance


def _as_csr(x: Any, name: str) -> Sparse:
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"The '{name}' parameter must be a sparse array of real numbers with two axes. "
            f"Got dtype {x.dtype} of shape {x.shape} instead. Convert it with .astype('float32')."
        )
    check_sparse_format(x, f"The '{name}' parameter")  # SciPy does not check the indices again
    with np.errstate(over="ignore"):
        rows = sp.csr_array(x, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    if max(rows.nnz, *rows.shape) < 2**31:  # the index type that needs no conversion
        rows.indices = rows.indices.astype(np.int32, copy=False)
        rows.indptr = rows.indptr.astype(np.int32, copy=False)
    return rows


def _find_first(rows: Sparse, wrong: NDArray[np.bool_]) -> tuple[float, int]:
    """Return the value and the row of the first wrong entry."""
    place = int(np.argmax(wrong))
    return rows.data[place], int(np.searchsorted(rows.indptr, place, side="right")) - 1


def _check_width(width: int, dim: int | None) -> None:
    if dim is not None and width != dim:
        raise DimensionMismatch(
            f"The 'X' parameter must have {dim} features, like the rows that the index was fitted "
            f"on. Got {width} instead. Make the features in the same way."
        )


def find_heaviest(relevance: Sparse, most: int) -> NDArray[np.int64]:
    """Return the columns with the largest weights in each row (n, most), padded with -1.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> find_heaviest(sp.csr_array([[1, 3, 2], [0, 0, 1]]), 2)
    array([[ 1,  2],
           [ 2, -1]])
    """
    best = np.full((relevance.shape[0], most), -1, dtype=np.int64)
    for row in range(len(best)):
        start, stop = relevance.indptr[row], relevance.indptr[row + 1]
        order = np.argsort(-relevance.data[start:stop], kind="stable")[:most]
        best[row, : len(order)] = relevance.indices[start:stop][order]
    return best
