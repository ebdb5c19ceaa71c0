"""The centroids of the buckets, which find the way for queries that the routers do not know.

A router is right where it was trained. A query far from all training queries may be sent anywhere.
The mean distance from the query to the items of a bucket is a rougher guide, but holds everywhere:

    mean |q - x|^2 = |q - c|^2 + mean |x - c|^2,    with the centroid c of the bucket.

For inner products it is the inner product with the centroid. The nearest items of a bucket are
nearer than that, the more its items are spread. So the spread is kept, too. A single item far away
would make all others seem spread, so such items are left out; but not for inner products, where
they are the nearest ones.

How far the items of a bucket are from each other tells whether a query is far from them. Items may
be close together in one place and far apart in another, so no distance is far everywhere.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli.base.memory import release_pages
from irli.engine.outliers import is_usual, measure_from_middle
from irli.engine.vector_layout import Centroids

_BLOCK = 1 << 13  # entries summed at a time
_MATES = 256  # items of a bucket that are compared with each other, at most
_COPY = 1e-6  # a distance, relative to the largest, below which items are copies


def find_centroids(
    vectors: NDArray[np.float32],
    metric: str,
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
) -> Centroids:
    """Return the centroids of B buckets, with the spread and the reach of their items.

    Parameters
    ----------
    vectors : array of shape (N, d)
    offsets : array of shape (B + 1,)
        Where each bucket starts in `items`.

    Examples
    --------
    >>> vectors = np.array([[0.0], [2.0], [9.0]], dtype=np.float32)
    >>> found = find_centroids(vectors, "l2", np.array([0, 2, 3]), np.arange(3, dtype=np.int32))
    >>> (found.columns + found.centre[:, None]).tolist()
    [[1.0, 9.0]]
    >>> found.spread.tolist(), found.reach.tolist()
    ([1.0, 0.0], [4.0, 4.0])
    """
    l2 = metric == "l2"
    buckets, dim = len(offsets) - 1, vectors.shape[1]
    centre = _find_mean(vectors) if l2 else np.zeros(dim)
    bucket = np.repeat(np.arange(buckets), np.diff(offsets))
    entries = items[offsets[0] : offsets[-1]]
    if metric != "ip":
        usual = _find_usual(vectors, offsets, items)
        bucket, entries = bucket[usual], entries[usual]
    means, squares = _average(vectors, centre, bucket, entries, buckets)
    bias = -squares / 2 if l2 else np.zeros(buckets)
    bias[np.diff(offsets) == 0] = -np.inf  # nothing in there
    variance = np.maximum(squares - np.square(means).sum(axis=1), 0) / dim
    base, reach = _find_reach(vectors, metric, offsets, items)
    return Centroids(
        centre.astype(np.float32),
        np.ascontiguousarray(means.T, dtype=np.float32),
        bias.astype(np.float32),
        np.sqrt(variance).astype(np.float32),
        base.astype(np.float32),
        reach.astype(np.float32),
    )


def _average(
    vectors: NDArray[np.float32],
    centre: NDArray[np.float64],
    bucket: NDArray[np.int64],
    entries: NDArray[np.int32],
    buckets: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (B, d) of the entries of each bucket, and of their squared lengths (B,)."""
    sums, squares = np.zeros((buckets, len(centre))), np.zeros(buckets)
    for start in range(0, len(entries), _BLOCK):
        part = slice(start, start + _BLOCK)
        block = vectors[entries[part]] - centre.astype(np.float32)
        _native.add_rows(block, bucket[part], sums)
        lengths = np.einsum("ij,ij->i", block, block, dtype=np.float64)
        squares += np.bincount(bucket[part], lengths, minlength=buckets)
        release_pages(vectors)
    counts = np.maximum(np.bincount(bucket, minlength=buckets), 1)
    return sums / counts[:, None], squares / counts


def _find_usual(
    vectors: NDArray[np.float32], offsets: NDArray[np.int64], items: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return which entries are no outliers beside the others of their bucket."""
    far, counts = measure_from_middle(vectors, offsets, items), np.diff(offsets)
    bucket = np.repeat(np.arange(len(counts)), counts)
    place = np.cumsum(counts) - counts + counts // 2  # the upper median keeps half at least
    typical = np.zeros(len(counts))
    typical[counts > 0] = far[np.lexsort((far, bucket))][place[counts > 0]]
    return is_usual(far, typical[bucket])


def _find_reach(
    vectors: NDArray[np.float32],
    metric: str,
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the base and the reach (B,), which tell by its distance whether a query is far.

    A distance is that of the kernels, for a query of length 1 if it is an inner product. The reach
    is the median distance from an item to its nearest one in the bucket, from base 0 for l2 and -1
    for cosine, where a distance of -1 is none. An inner product has no such end: there the reach is
    the typical product, and the base minus the same.
    """
    typical = np.full(len(offsets) - 1, np.nan)
    for b, (first, last) in enumerate(itertools.pairwise(offsets)):
        if last - first > 1:
            typical[b] = _find_typical(vectors[items[first : min(last, first + _MATES)]], metric)
        release_pages(vectors)
    usable = np.isfinite(typical) & (typical > 0)
    reach = np.where(usable, typical, np.median(typical[usable]) if usable.any() else 1.0)
    base = {"l2": np.zeros(len(reach)), "cosine": np.full(len(reach), -1.0), "ip": -reach}
    return base[metric], reach


def _find_typical(mates: NDArray[np.float32], metric: str) -> float:
    """Return the median distance from an item to its nearest one, or product with its best one."""
    if metric == "l2":
        mates = mates - mates.mean(axis=0)
    near = (mates @ mates.T).astype(np.float64)
    lengths = near.diagonal().copy()
    if metric == "ip":
        np.fill_diagonal(near, -np.inf)
        return float(np.median(near.max(axis=1) / np.sqrt(np.maximum(lengths, 1e-30))))
    gaps = 1 - near if metric == "cosine" else lengths[:, None] + lengths - 2 * near
    gaps[gaps <= _COPY * max(1e-30, np.max(lengths))] = np.inf  # itself and its copies
    nearest = gaps.min(axis=1)
    return float(np.median(nearest[np.isfinite(nearest)])) if np.isfinite(nearest).any() else np.nan


def _find_mean(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), _BLOCK):
        total += vectors[start : start + _BLOCK].sum(axis=0, dtype=np.float64)
        release_pages(vectors)
    return total / len(vectors)
