"""Features of rows: make rows sparse, give them to kernels, hash features if there are too many."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.hashing import UniversalHash

CsrArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def as_sparse(rows: Rows) -> Sparse:
    """Return dense or sparse rows as a CSR, which the kernels and the ranker read."""
    return sp.csr_array(rows) if isinstance(rows, np.ndarray) else rows


def to_arrays(rows: Sparse) -> CsrArrays:
    """Return indptr, indices and data of a CSR with the types that the native kernels read."""
    return (
        rows.indptr.astype(np.int64, copy=False),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
    )


def hash_features(rows: Rows, recipe: Recipe) -> Rows:
    """Return the rows as the routers see them: hashed to `recipe.features` if they have more."""
    width = recipe.features
    if width == 0 or rows.shape[1] <= width:
        return rows
    rows = as_sparse(rows)
    columns = UniversalHash(width, seed=recipe.seed)(rows.indices.astype(np.int64))
    folded: Sparse = sp.csr_array(
        (rows.data, columns, rows.indptr), shape=(rows.shape[0], width), copy=True
    )  # a copy, since `sum_duplicates` writes
    folded.sum_duplicates()
    return folded
