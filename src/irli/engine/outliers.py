"""Outliers: items much farther from the middle of their bucket than others are.

A few items far away outweigh all others in a mean, a variance or a squared error. So centroids and
codewords are learned without them.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages

_BLOCK = 1 << 12  # entries measured at a time, so that they stay in the cache
_SOME = 32  # items of a bucket that tell its middle
_OUTLIER = 100.0  # times a usual squared distance from the middle


def measure_from_middle(
    vectors: NDArray[np.float32], offsets: NDArray[np.int64], items: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the squared distance from each entry of B buckets to the middle of its bucket.

    The middle is the median in each coordinate: outliers would draw a mean away from the others. An
    item that is alone in a bucket has no others near it, and is infinitely far.

    Parameters
    ----------
    vectors : array of shape (N, d)
    offsets : array of shape (B + 1,)
        Where each bucket starts in `items`.

    Examples
    --------
    >>> vectors = np.array([[0], [1], [2], [90], [7]], dtype=np.float32)
    >>> items = np.arange(5, dtype=np.int32)
    >>> measure_from_middle(vectors, np.array([0, 4, 5]), items).tolist()
    [2.25, 0.25, 0.25, 7832.25, inf]
    """
    middles = np.zeros((len(offsets) - 1, vectors.shape[1]), dtype=np.float32)
    for b, (first, last) in enumerate(itertools.pairwise(offsets)):
        if last > first:
            some = vectors[items[first:last][:: max(1, (last - first) // _SOME)]]
            both = [(len(some) - 1) // 2, len(some) // 2]
            middles[b] = np.partition(some, both, axis=0)[both].mean(axis=0)
        release_pages(vectors)
    bucket = np.repeat(np.arange(len(middles)), np.diff(offsets))
    entries = items[offsets[0] : offsets[-1]]
    far = np.empty(len(entries))
    for start in range(0, len(entries), _BLOCK):
        part = slice(start, start + _BLOCK)
        off = vectors[entries[part]] - middles[bucket[part]]
        with np.errstate(over="ignore"):  # such an item is far enough
            far[part] = np.einsum("ij,ij->i", off, off)
        release_pages(vectors)
    far[np.diff(offsets)[bucket] == 1] = np.inf
    return far


def is_usual(far: NDArray[np.float64], typical: Any) -> NDArray[np.bool_]:
    """Return which distances are not much larger than typical ones. Copies tell nothing: all are.

    Examples
    --------
    >>> is_usual(np.array([1.0, 99.0, 101.0, 5.0]), np.array([1.0, 1.0, 1.0, 0.0])).tolist()
    [True, True, False, True]
    """
    usual: NDArray[np.bool_] = (far <= _OUTLIER * typical) | (typical == 0)
    return usual
