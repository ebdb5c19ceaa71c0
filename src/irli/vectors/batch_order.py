"""A cache-friendly order for a batch of queries: near queries follow each other.

They probe the same buckets, which are then still in the cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.engine.dense import multiply

_MARKS = 64  # queries that the others are grouped around
_TINY = np.float32(1e-30)  # the least length
_DIMS = 64  # dimensions that are enough to tell who is near whom

FEWEST = 8 * _MARKS  # queries from which on an order is worth its time


def order_batch(queries: NDArray[np.float32], angle: bool = False) -> NDArray[np.int64]:
    """Return an order (n,) of queries (n, d) in which near ones follow each other.

    With `angle`, near are those that point the same way, however long they are.

    Examples
    --------
    >>> queries = np.array([[0.0], [9.0], [0.1], [9.1]], dtype=np.float32)
    >>> order_batch(queries)
    array([0, 2, 1, 3])
    """
    points = np.ascontiguousarray(queries[:, :: -(-queries.shape[1] // _DIMS)])
    with np.errstate(over="ignore", invalid="ignore"):  # then the order is any, but an order
        if angle:
            points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), _TINY)
        marks = np.ascontiguousarray(points[:: -(-len(points) // _MARKS)].T)
        scores = np.empty((len(points), marks.shape[1]), dtype=np.float32)
        offset = -np.square(marks).sum(axis=0) / 2
        multiply(points, marks, offset, scores)  # the largest is that of the nearest mark
        place = _chain(marks.T @ marks + offset)
    return np.argsort(place[scores.argmax(axis=1)], kind="stable")


def _chain(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the places of marks in a chain: each is followed by the nearest that is left."""
    place = np.zeros(len(scores), dtype=np.int64)
    last = 0
    for link in range(1, len(scores)):
        scores[:, last] = -np.inf
        last = int(scores[last].argmax())
        place[last] = link
    return place
