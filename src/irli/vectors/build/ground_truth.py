"""GroundTruth: queries with their exact neighbours, found once for the build and for tuning.

A held-out item stands for a new query. A new query has no copies among the items, so the item and
its copies do not count as neighbours of it: they are as near to it as it is to itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.progress import Progress
from irli.engine.exact import exact_neighbors

NEIGHBORS = 10  # whose rows are kept, and which a build looks for
_COPIES = 32  # of an item that are left out
_TIE = {"l2": 1e-5, "ip": 1e-6, "cosine": 1e-6}  # a relative difference that is due to rounding


class GroundTruth(NamedTuple):
    """Queries with their exact neighbours among the items. Distances are those of the kernels."""

    queries: NDArray[np.float32]  # (n, d)
    are_items: NDArray[np.bool_]  # (n,)
    neighbors: NDArray[np.int64]  # (n, 10): rows without the item itself, padded with -1
    distances: NDArray[np.float32]  # (n, k): without copies, padded with infinity
    nearest: NDArray[np.float32]  # (n, P): the first of the distances in each of P parts
    copies: NDArray[np.int64]  # (n,): items that are left out in `distances`

    def take(self, part: slice) -> GroundTruth:
        """Return the ground truth of some of the queries."""
        parts: Any = (array[part] for array in self)
        return GroundTruth(*parts)


def find_truth(
    vectors: NDArray[np.float32],
    metric: str,
    queries: NDArray[np.float32],
    rows: NDArray[np.int64],
    k: int,
    *,
    threads: int | None = None,
    progress: Progress = False,
) -> GroundTruth:
    """Return the ground truth of queries (n, d) for up to k neighbours.

    Parameters
    ----------
    rows : array of shape (n,)
        The row of the item that each query is, or -1.

    Examples
    --------
    >>> items = np.array([[0.0], [1.0], [3.0], [1.0]], dtype=np.float32)
    >>> truth = find_truth(items, "l2", items[1:2], np.array([1]), k=2)
    >>> truth.neighbors[0, :4].tolist(), truth.distances.tolist()
    ([3, 0, 2, -1], [[1.0, 4.0]])
    """
    width = min(max(k, NEIGHBORS) + _COPIES + 1, len(vectors))
    found = exact_neighbors(queries, vectors, width, metric, threads=threads, progress=progress)
    distances = np.full((len(queries), k), np.inf, dtype=np.float32)
    copies = np.zeros(len(queries), dtype=np.int64)
    own, are_items = measure_own(queries, metric), rows >= 0
    for i, query in enumerate(queries):
        near = vectors[found[i]]
        each = np.square(near - query).sum(axis=1) if metric == "l2" else -(near @ query)
        if are_items[i]:
            equal = are_as_near(each, own[i], metric)
            copies[i], each = equal.sum(), each[~equal]
        distances[i, : len(each)] = each[:k]
    itself = found == rows[:, None]
    last = np.argsort(itself, axis=1, kind="stable")[:, :NEIGHBORS]  # the item itself comes last
    neighbors = np.full((len(queries), NEIGHBORS), -1, dtype=np.int64)
    neighbors[:, : last.shape[1]] = np.take_along_axis(np.where(itself, -1, found), last, axis=1)
    return GroundTruth(queries, are_items, neighbors, distances, distances[:, :1], copies)


def measure_own(queries: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Return the kernel distance (n,) of each query to an item with equal numbers."""
    own: NDArray[np.float32] = -np.einsum("ij,ij->i", queries, queries)
    return np.zeros_like(own) if metric == "l2" else own


def are_as_near(distances: NDArray[np.float32], own: Any, metric: str) -> NDArray[np.bool_]:
    """Whether items are as near to a query as equal numbers would be, up to rounding."""
    return np.asarray(np.abs(distances - own) <= _TIE[metric] * np.abs(own))


def add_tie(distances: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Return the distances up to which items are as near, up to rounding."""
    return np.asarray(distances + np.float32(_TIE[metric]) * np.abs(distances))
