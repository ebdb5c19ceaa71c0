"""Validate sparse arguments of users: the relevance of items, rows of features, their labels.

They are converted to CSR. SciPy takes longer to import than NumPy, so a search does without.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli import _native
from irli.base.checks import as_array, as_vectors, check_padded_range
from irli.base.types import Rows, Sparse
from irli.errors import DimensionMismatch, InvalidParameter, IrliError


def as_relevance(y: Any, n_queries: int, n_items: int) -> Sparse:
    """Return the relevant items of each query: float32 weights of shape (n_queries, n_items).

    Parameters
    ----------
    y : sparse array of shape (n_queries, n_items), or int array of shape (n_queries, j)
        Either non-negative weights, or the row numbers of the relevant items of each query. Rows
        with fewer than j relevant items are padded with -1. A query may have no relevant item.

    Examples
    --------
    >>> as_relevance([[2, 0], [1, -1]], n_queries=2, n_items=3).toarray()
    array([[1., 0., 1.],
           [0., 1., 0.]], dtype=float32)
    """
    if sp.issparse(y):
        return _check_sparse_relevance(y, n_queries, n_items)
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
    advice = "Pass positions in the base vectors, not ids."
    check_padded_range("relevance", array, n_items, "item rows", advice)
    rows, columns = np.nonzero(array != -1)
    relevance = sp.csr_array(
        (np.ones(len(rows), dtype=np.float32), (rows, array[rows, columns])),
        shape=(n_queries, n_items),
    )
    # An item that a row names twice still has weight 1.
    relevance.sum_duplicates()
    relevance.data[:] = 1
    return relevance


def as_rows(x: Any, dim: int | None = None) -> Rows:
    """Return rows of features as float32: CSR with sorted, distinct columns, or a dense array.

    Parameters
    ----------
    x : array_like or sparse array of shape (n, d), or (d,) for a single dense row
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
        x = np.atleast_2d(x) if isinstance(x, np.ndarray) and x.ndim == 1 else x
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


def as_labels(y: Any, rows: int) -> Sparse:
    """Return the labels of each row as a CSR of ones, of shape (rows, L).

    Examples
    --------
    >>> as_labels(sp.csr_array(np.array([[0, 2.0], [0, 0]])), rows=2).data
    array([1.], dtype=float32)
    """
    if not sp.issparse(y):
        array = as_array(y, "Y")
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise InvalidParameter(
                "The 'Y' parameter must be a sparse array of shape (rows, labels), nonzero where "
                f"a row has a label. Got {type(y).__name__} of shape {array.shape} instead. "
                "Make one with scipy.sparse.csr_array((ones, (row, label)))."
            )
        y = sp.csr_array(array)
    labels = _as_csr(y, "Y")
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
    labels.data[:] = 1
    return labels


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
