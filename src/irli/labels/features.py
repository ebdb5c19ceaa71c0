"""Features of rows: make rows sparse, and hash the features if there are too many."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.hashing import UniversalHash


def as_sparse(rows: Rows) -> Sparse:
    """Return dense or sparse rows as a CSR, which the kernels and the ranker read."""
    return sp.csr_array(rows) if isinstance(rows, np.ndarray) else rows


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
