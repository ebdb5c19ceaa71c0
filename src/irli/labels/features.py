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


def count_features(dim: int, recipe: Recipe) -> int:
    """Return how many features the routers see of rows with `dim` features.

    Examples
    --------
    >>> count_features(1000, Recipe(features=64)), count_features(1000, Recipe(features=0))
    (64, 1000)
    """
    return min(dim, recipe.features) if recipe.features else dim


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
