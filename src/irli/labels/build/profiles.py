"""Dense embeddings: rows by a randomised SVD, and labels as the mean of their rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Rows, Sparse

_TINY = float(np.finfo(np.float32).tiny)
_RANK = 1e-6  # share of the largest squared length from which a direction counts
_POWER = 2  # power iterations of the SVD, which make the leading directions accurate


def embed_rows(rows: Rows, dim: int, seed: int) -> NDArray[np.float32]:
    """Return the rows in at most `dim` leading directions (n, p). Dense rows are returned as given.

    This is a randomised SVD: a few products of the sparse matrix with thin dense ones.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rows = sp.csr_array(np.eye(4, 50, dtype="f4"))
    >>> embed_rows(rows, 3, seed=0).shape
    (4, 3)
    """
    if isinstance(rows, np.ndarray):
        return rows
    rng = np.random.default_rng(seed)
    dim = min(dim, *rows.shape)
    thin = rng.standard_normal((rows.shape[1], dim), dtype=np.float32)
    for _ in range(_POWER):
        thin = _orthogonalize(rows.T @ _orthogonalize(rows @ thin))
    return np.asarray(rows @ thin, dtype=np.float32)


def _orthogonalize(columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return orthogonal columns that span the same space, or zeros where these are too few.

    Products of columns take a fifth of the time of a QR decomposition, and are accurate enough.
    """
    products = np.asarray(columns.T @ columns, dtype=np.float64)
    values, vectors = np.linalg.eigh(products)
    kept = values > _RANK * max(values.max(initial=0), _TINY)
    factors = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
    return columns @ (vectors * factors).astype(np.float32)


def average_profiles(embedded: NDArray[np.float32], labels: Sparse) -> NDArray[np.float32]:
    """Return the mean of each label's rows, of unit length (L, p). Labels without rows get zeros.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> labels = sp.csr_array(np.array([[1, 0], [1, 0]], dtype="f4"))
    >>> average_profiles(np.array([[3.0, 0.0], [0.0, 4.0]], dtype="f4"), labels)
    array([[0.70710677, 0.70710677],
           [0.        , 0.        ]], dtype=float32)
    """
    total = labels.T @ normalize(embedded)
    return normalize(np.asarray(total, dtype=np.float32))


def normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors (n, p) to unit length. Zeros stay zeros."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (vectors / np.where(length > 0, length, 1)).astype(np.float32)
    return scaled
