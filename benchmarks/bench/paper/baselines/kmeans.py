"""k-means by FAISS, plain and balanced: a query goes to the buckets with the nearest centroids."""

from __future__ import annotations

import faiss
import numpy as np
from numpy.typing import NDArray

from bench.paper.baselines.partition import Floats, Partition, Scores, log_softmax, no_parents

_ITERATIONS = 25
_BALANCED_ITERATIONS = 10
_PRICE_STEPS = 60
_ENOUGH = 10**9  # points of a centroid; FAISS would draw a sample of more


class NearestCentroids(Partition):
    """Items in buckets with centroids (B, d)."""

    temperatures = (0.01, 0.02, 0.05, 0.1, 0.2)

    def __init__(self, assignment: NDArray[np.int64], centroids: Floats) -> None:
        self.assignment, self.centroids = assignment, centroids
        self.count = len(centroids)
        self.multiplications = float(centroids.size)

    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        squares = faiss.pairwise_distances(queries, self.centroids)
        return no_parents(log_softmax(-squares / np.float32(temperature)))


def kmeans(items: Floats, count: int, seed: int) -> NearestCentroids:
    """Partition the items (N, d) by k-means."""
    count = min(count, len(items))
    found = faiss.Kmeans(
        items.shape[1],
        count,
        niter=_ITERATIONS,
        seed=seed + 1,
        min_points_per_centroid=1,
        max_points_per_centroid=_ENOUGH,
    )
    found.train(items)
    _, nearest = found.index.search(items, 1)
    return NearestCentroids(nearest[:, 0], found.centroids)


def balanced_kmeans(items: Floats, count: int, seed: int) -> NearestCentroids:
    """Partition the items (N, d) by k-means whose buckets hold at most ceil(N / B) items.

    As Malinen and Fränti do, it alternates a balanced assignment with the centroids of its buckets.
    Their assignment is the best one and takes time N^3. This one comes close by prices.
    """
    centroids = kmeans(items, count, seed).centroids
    count = len(centroids)
    for _ in range(_BALANCED_ITERATIONS):
        squares = faiss.pairwise_distances(items, centroids)
        assignment = assign_balanced(squares, -(-len(items) // count))
        sums = np.zeros((count, items.shape[1]), dtype=np.float32)
        np.add.at(sums, assignment, items)
        loads = np.bincount(assignment, minlength=count)[:, None]
        centroids = np.where(loads > 0, sums / np.maximum(loads, 1), centroids)
    return NearestCentroids(assignment, centroids)


def assign_balanced(costs: Floats, room: int) -> NDArray[np.int64]:
    """Assign each row of the costs (N, B) to a column, at most `room` to each.

    Columns that too many rows want get a price, until hardly any is overfull. The rows that are
    still too many, and would lose least elsewhere, move to their cheapest column with room.

    Examples
    --------
    >>> assign_balanced(np.float32([[0, 1], [0, 9], [5, 6], [0, 7]]), room=2)
    array([1, 0, 1, 0])
    """
    priced = costs - costs.min(axis=1, keepdims=True)
    step = np.float32(np.sort(priced, axis=1)[:, 1:2].mean()) if costs.shape[1] > 1 else 0.0
    for rate in step * np.geomspace(1, 0.01, _PRICE_STEPS, dtype=np.float32):
        loads = np.bincount(priced.argmin(axis=1), minlength=costs.shape[1])
        priced += rate * (loads / np.float32(room) - 1).astype(np.float32)
    assignment = priced.argmin(axis=1)
    loads = np.bincount(assignment, minlength=costs.shape[1])
    for column in np.flatnonzero(loads > room):
        rows = np.flatnonzero(assignment == column)
        other = np.delete(priced[rows], column, axis=1).min(axis=1)
        kept = np.argsort(priced[rows, column] - other, kind="stable")
        for row in rows[kept[room:]]:
            loads[column] -= 1
            assignment[row] = np.where(loads < room, priced[row], np.inf).argmin()
            loads[assignment[row]] += 1
    return assignment
