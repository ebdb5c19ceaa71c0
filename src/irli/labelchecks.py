"""What comes in as rows of features and as their labels, checked and in one form."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.checks import as_array, as_vectors
from irli.errors import DimensionMismatch, InvalidParameter
from irli.problem import Rows, Sparse


def as_rows(x: Any, dim: int | None = None) -> Rows:
    """Return rows of features: float32 CSR with sorted, distinct columns, or a dense array.

    Parameters
    ----------
    x : array_like or sparse array of shape (n, d), or (d,) for a single dense row
    dim : int, optional
        The d that it must have.

    Examples
    --------
    >>> as_rows(sp.csr_array(np.eye(2))).dtype
    dtype('float32')
    >>> as_rows(np.ones((1, 2)), dim=3)
    Traceback (most recent call last):
    irli.errors.DimensionMismatch: The 'X' parameter must have 3 features, as the rows that the
    index was fitted on. Got 2 instead. Make the features in the same way.
    """
    if not sp.issparse(x):
        x = np.atleast_2d(x) if isinstance(x, np.ndarray) and x.ndim == 1 else x
        dense = as_vectors(x, "X")
        _check_width(dense.shape[1], dim)
        return dense
    # A single row in order is not copied: most of the time of its prediction would be spent here.
    rows = cast("Sparse", x) if _in_order(x) else _csr(x, "X")
    _check_width(rows.shape[1], dim)
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        raise InvalidParameter(
            f"The 'X' parameter must have at least one row and one feature. Got shape {rows.shape} "
            "instead. Pass the rows to learn from or to label."
        )
    wrong = ~np.isfinite(rows.data)
    if wrong.any():
        value, row = _first(rows, wrong)
        raise InvalidParameter(
            "The 'X' parameter must hold finite numbers (within float32). "
            f"Got {value} in row {row} instead. Drop or repair such rows."
        )
    return rows


def as_labels(y: Any, rows: int) -> Sparse:
    """Return which labels each row carries: CSR of ones, of shape (rows, L).

    Examples
    --------
    >>> as_labels(sp.csr_array(np.array([[0, 2.0], [0, 0]])), rows=2).data
    array([1.], dtype=float32)
    """
    if not sp.issparse(y):
        array = as_array(y, "Y")
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise InvalidParameter(
                "The 'Y' parameter must be a sparse array of shape (rows, labels), not zero where "
                f"a row carries a label. Got {type(y).__name__} of shape {array.shape} instead. "
                "Make one with scipy.sparse.csr_array((ones, (row, label)))."
            )
        y = sp.csr_array(array)
    labels = _csr(y, "Y")
    if labels.shape[0] != rows:
        raise InvalidParameter(
            f"The 'Y' parameter must have a row for each of the {rows} rows of X. "
            f"Got {labels.shape[0]} instead. Pass both in the same order and number."
        )
    wrong = ~(np.isfinite(labels.data) & (labels.data >= 0))
    if wrong.any():
        value, row = _first(labels, wrong)
        raise InvalidParameter(
            "The 'Y' parameter must hold zeros and positive numbers (within float32). "
            f"Got {value} in row {row} instead. Leave out what a row does not carry."
        )
    labels.eliminate_zeros()
    if labels.nnz == 0:
        raise InvalidParameter(
            "The 'Y' parameter must name a label for at least one row. Got none at all. "
            "Check that rows and labels were read from the right files."
        )
    labels.data[:] = 1
    return labels


def _csr(x: Any, name: str) -> Sparse:
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"The '{name}' parameter must be a sparse array of real numbers with two axes. "
            f"Got dtype {x.dtype} of shape {x.shape} instead. Convert it with .astype('float32')."
        )
    _check_format(x, name)  # before scipy follows its indices wherever they lead
    with np.errstate(over="ignore"):
        rows = sp.csr_array(x, dtype=np.float32, copy=True)
    rows.sum_duplicates()
    if max(rows.nnz, *rows.shape) < 2**31:  # one type, for which the kernels are compiled once
        rows.indices = rows.indices.astype(np.int32, copy=False)
        rows.indptr = rows.indptr.astype(np.int32, copy=False)
    return rows


def _in_order(x: Any) -> bool:
    """Tell whether this is a single row of float32 with ascending columns within bounds."""
    if not isinstance(x, sp.csr_array) or x.dtype != np.float32 or x.shape[0] != 1:
        return False
    columns = x.indices
    if columns.dtype != np.int32 or len(columns) != len(x.data):
        return False
    if x.indptr[0] != 0 or x.indptr[1] != len(columns):
        return False
    if len(columns) == 0:
        return True
    ascending = bool((columns[1:] > columns[:-1]).all())
    return ascending and bool(columns[0] >= 0 and columns[-1] < x.shape[1])


def _check_format(x: Any, name: str) -> None:
    if not hasattr(x, "check_format"):  # only the compressed formats can be malformed
        return
    try:
        x.check_format(full_check=True)
    except ValueError as error:
        raise InvalidParameter(
            f"The '{name}' parameter must be a well-formed sparse array. Got one with a fault "
            f"instead: {error}. Rebuild it from (row, column) pairs, numbered from 0 up."
        ) from error


def _first(rows: Sparse, wrong: NDArray[np.bool_]) -> tuple[float, int]:
    """Return the value and the row of the first wrong entry."""
    place = int(np.argmax(wrong))
    return rows.data[place], int(np.searchsorted(rows.indptr, place, side="right")) - 1


def _check_width(width: int, dim: int | None) -> None:
    if dim is not None and width != dim:
        raise DimensionMismatch(
            f"The 'X' parameter must have {dim} features, as the rows that the index was fitted "
            f"on. Got {width} instead. Make the features in the same way."
        )
