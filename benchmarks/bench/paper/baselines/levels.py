"""Two levels: each bucket of a partition is divided again, by a partition of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.paper.baselines.partition import Floats, Partition, Scores

Divide = Callable[[Floats], Partition]


class TwoLevels(Partition):
    """A partition whose buckets are partitioned.

    The score of a leaf is that of its parent plus its own, which is a logarithm of a probability in
    both. So no leaf scores higher than its parent, and the best leaves are found by opening few
    parents.
    """

    def __init__(self, top: Partition, items: Floats, divide: Divide) -> None:
        self.top = top
        self.rows = [np.flatnonzero(top.assignment == bucket) for bucket in range(top.count)]
        self.below = [divide(items[rows]) if len(rows) else None for rows in self.rows]
        made = [child for child in self.below if child is not None]
        self.width = max(child.count for child in made)
        self.count = top.count * self.width
        self.assignment = np.empty(len(items), dtype=np.int64)
        for parent, (rows, child) in enumerate(zip(self.rows, self.below, strict=True)):
            if child is not None:
                self.assignment[rows] = parent * self.width + child.assignment
        self.multiplications = top.multiplications
        self.opening = float(np.mean([child.multiplications for child in made]))
        self.temperatures = made[0].temperatures

    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        own = temperature if temperature in self.top.temperatures else self.top.temperatures[0]
        parents = self.top.score(queries, own).buckets
        leaves = np.full((len(queries), self.top.count, self.width), -np.inf, dtype=np.float32)
        for parent, child in enumerate(self.below):
            if child is not None:
                scores = child.score(queries, temperature).buckets
                leaves[:, parent, : child.count] = parents[:, parent, None] + scores
        return Scores(leaves.reshape(len(queries), self.count), parents)
