"""Features of rows: make rows sparse, give them to kernels, hash features if there are too many."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.hashing import UniversalHash

_SPREAD = 4  # hashed features for each one that a row has: then few share one

CsrArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def as_sparse(rows: Rows) -> Sparse:
    """Return dense or sparse rows as a CSR, which the kernels and the ranker read."""
    return sp.csr_array(rows) if isinstance(rows, np.ndarray) else rows


def to_arrays(rows: Rows) -> CsrArrays:
    """Return indptr, indices and data of a CSR with the types that the native kernels read.

    Examples
    --------
    >>> to_arrays(np.array([[0, 7, 0], [8, 0, 9]], dtype=np.float32))
    (array([0, 1, 3]), array([1, 0, 2], dtype=int32), array([7., 8., 9.], dtype=float32))
    """
    if isinstance(rows, np.ndarray):  # several times as fast as SciPy
        row, column = np.nonzero(rows)
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=len(rows)), out=indptr[1:])
        return indptr, column.astype(np.int32), rows[row, column]
    return (
        rows.indptr.astype(np.int64, copy=False),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
    )


def count_features(dim: int, recipe: Recipe) -> int:
    """Return how many features the routers see of rows with `dim` features.

    Examples
    --------
    >>> from irli.base.recipe import recipe
    >>> count_features(1000, recipe("labels", features=64))
    64
    """
    return min(dim, recipe.features) if recipe.features else dim


def limit_features(rows: Rows, recipe: Recipe) -> Recipe:
    """Return the recipe for rows (n, d), most of whose features no row may have.

    Nothing is learned of these, but in a hidden layer each has as many weights as any other.

    Examples
    --------
    >>> from irli.base.recipe import recipe
    >>> one = sp.csr_array(([1.0], ([0], [5])), shape=(1, 1_000_000))
    >>> limit_features(one, recipe("labels")).features
    4
    """
    if isinstance(rows, np.ndarray) or not recipe.features:
        return recipe
    enough = _SPREAD * max(1, len(np.unique(rows.indices)))
    if rows.shape[1] <= enough:
        return recipe
    return dataclasses.replace(recipe, features=min(recipe.features, enough))


def hash_features(rows: Rows, recipe: Recipe) -> Rows:
    """Return the rows as the routers see them: hashed to `recipe.features` if they have more."""
    width = count_features(rows.shape[1], recipe)
    if width == rows.shape[1]:
        return rows
    rows = as_sparse(rows)
    columns = UniversalHash(width, seed=recipe.seed)(rows.indices.astype(np.int64))
    folded: Sparse = sp.csr_array(
        (rows.data, columns, rows.indptr), shape=(rows.shape[0], width), copy=True
    )  # a copy, since `sum_duplicates` writes
    folded.sum_duplicates()
    return folded
