"""The centroids of the buckets, which find the way for queries that the routers do not know.

A router is right where it was trained. A query far from all training queries may be sent anywhere.
The mean distance from the query to the items of a bucket is a rougher guide, but holds everywhere:

    mean |q - x|^2 = |q - c|^2 + mean |x - c|^2,    with the centroid c of the bucket.

For inner products it is the inner product with the centroid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.engine.vector_layout import Centroids

_BLOCK = 1 << 16  # entries summed at a time


def find_centroids(
    vectors: NDArray[np.float32],
    l2: bool,
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
) -> Centroids:
    """Return the centroids of B buckets.

    Parameters
    ----------
    vectors : array of shape (N, d)
    offsets : array of shape (B + 1,)
        Where each bucket starts in `items`.

    Examples
    --------
    >>> vectors = np.array([[0.0], [2.0], [9.0]], dtype=np.float32)
    >>> found = find_centroids(vectors, True, np.array([0, 2, 3]), np.arange(3, dtype=np.int32))
    >>> (found.columns + found.centre[:, None]).tolist()
    [[1.0, 9.0]]
    """
    buckets, dim = len(offsets) - 1, vectors.shape[1]
    centre = _find_mean(vectors) if l2 else np.zeros(dim)
    sums, squares = np.zeros((buckets, dim)), np.zeros(buckets)
    bucket = np.repeat(np.arange(buckets), np.diff(offsets))
    entries = items[offsets[0] : offsets[-1]]
    for start in range(0, len(entries), _BLOCK):
        part = slice(start, start + _BLOCK)
        block = vectors[entries[part]] - centre
        first, place = np.unique(bucket[part], return_index=True)
        sums[first] += np.add.reduceat(block, place, axis=0)
        if l2:
            squares[first] += np.add.reduceat(np.einsum("ij,ij->i", block, block), place)
        release_pages(vectors)
    counts = np.maximum(np.diff(offsets), 1)
    bias = np.where(np.diff(offsets) > 0, -squares / counts / 2, -np.inf)  # nothing in there
    return Centroids(
        centre.astype(np.float32),
        np.ascontiguousarray((sums / counts[:, None]).T, dtype=np.float32),
        bias.astype(np.float32),
    )


def _find_mean(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), _BLOCK):
        total += vectors[start : start + _BLOCK].sum(axis=0, dtype=np.float64)
        release_pages(vectors)
    return total / len(vectors)
