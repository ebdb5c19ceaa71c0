"""Binary trees of hyperplanes: along principal components, or random directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.paper.baselines.partition import Floats, Partition, Scores

Direct = Callable[[Floats, np.random.Generator], Floats]


class HyperplaneTree(Partition):
    """Each node divides its items at the median along a direction.

    A query walks best-first: the score of a node is minus the sum of the squared distances to the
    hyperplanes on whose other side it lies. The nodes are numbered as in a heap.
    """

    def __init__(self, items: Floats, depth: int, direct: Direct, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.depth, self.count = depth, 2**depth
        self.directions = np.zeros((self.count - 1, items.shape[1]), dtype=np.float32)
        self.medians = np.zeros(self.count - 1, dtype=np.float32)
        node = np.zeros(len(items), dtype=np.int64)
        for parent in range(self.count - 1):
            rows = np.flatnonzero(node == parent)
            if not len(rows):
                continue
            direction = direct(items[rows], rng)
            along = items[rows] @ direction
            right = np.zeros(len(rows), dtype=np.int64)
            right[np.argsort(along, kind="stable")[len(rows) // 2 :]] = 1  # halves, even with ties
            self.directions[parent], self.medians[parent] = direction, np.median(along)
            node[rows] = 2 * parent + 1 + right
        self.assignment = node - (self.count - 1)
        self.multiplications, self.opening = 0.0, float(items.shape[1])

    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        margins = queries @ self.directions.T - self.medians
        scores: NDArray[np.float32] = np.zeros((len(queries), 2 * self.count - 1), dtype=np.float32)
        for parent in range(self.count - 1):
            margin, bound = margins[:, parent], scores[:, parent]
            scores[:, 2 * parent + 1] = bound - np.maximum(margin, 0) ** 2
            scores[:, 2 * parent + 2] = bound - np.minimum(margin, 0) ** 2
        return Scores(scores[:, self.count - 1 :], scores[:, : self.count - 1])


def principal_direction(items: Floats, rng: np.random.Generator) -> Floats:
    """Return the direction (d,) along which the items (n, d) vary most."""
    centred = items - items.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.asarray(vectors[:, -1], dtype=np.float32)


def random_direction(items: Floats, rng: np.random.Generator) -> Floats:
    """Return a random direction (d,)."""
    direction = rng.normal(size=items.shape[1])
    return np.asarray(direction / np.linalg.norm(direction), dtype=np.float32)
