"""Order a batch of queries so that near ones follow each other, which suits the CPU cache.

Near queries probe the same buckets. If they come one after the other, these are still cached.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli import _native

_PIVOTS = 64  # queries around which the others are grouped
_TINY = np.float32(1e-30)  # smallest norm to divide by
_DIMS = 64  # dimensions that are compared, enough to find near queries

FEWEST = 8 * _PIVOTS  # smallest batch that is worth ordering


def order_batch(queries: NDArray[np.float32], angle: bool = False) -> NDArray[np.int64]:
    """Return an order (n,) of queries (n, d) in which near ones follow each other.

    With `angle`, queries are near if they point the same way, whatever their lengths.

    Examples
    --------
    >>> queries = np.array([[0.0], [9.0], [0.1], [9.1]], dtype=np.float32)
    >>> order_batch(queries)
    array([0, 2, 1, 3])
    """
    points = np.ascontiguousarray(queries[:, :: -(-queries.shape[1] // _DIMS)])
    with np.errstate(over="ignore", invalid="ignore"):  # the result is still a valid order
        if angle:
            points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), _TINY)
        pivots = np.ascontiguousarray(points[:: -(-len(points) // _PIVOTS)].T)
        scores = np.empty((len(points), pivots.shape[1]), dtype=np.float32)
        offset = -np.square(pivots).sum(axis=0) / 2
        # The nearest pivot has the largest score.
        _native.multiply_rows(points, pivots, offset, scores)
        place = _chain_pivots(pivots.T @ pivots + offset)
    return np.argsort(place[scores.argmax(axis=1)], kind="stable")


def _chain_pivots(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the position of each pivot in a chain, where the nearest one left comes next."""
    place = np.zeros(len(scores), dtype=np.int64)
    last = 0
    for link in range(1, len(scores)):
        scores[:, last] = -np.inf
        last = int(scores[last].argmax())
        place[last] = link
    return place
