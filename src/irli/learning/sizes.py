"""How much work learning does, as plain numbers: learning goes by them, and the planner too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irli.base.recipe import Recipe

KMEANS_ITERATIONS = 10
KMEANS_SAMPLE = 64  # vectors for each centroid that k-means looks at

_SMALL = 32_768  # training queries up to which an epoch draws all; of more it draws half
_KEPT = 64  # best buckets kept of each f: the rest are hardly ever probed
_FEWER, _MEMORY = 32, 160 << 20  # as few as 32 where 64 would take more than 160 MB
_PLACE = 6  # bytes of a bucket and its chance


def count_drawn(queries: int, recipe: Recipe) -> int:
    """Return how many training queries an epoch draws.

    Examples
    --------
    >>> count_drawn(200_000, Recipe()), count_drawn(1000, Recipe(epoch_size=0))
    (65536, 1000)
    """
    size = recipe.epoch_size
    return min(queries, size, max(_SMALL, queries // 2)) if size else queries


def count_repartitions(recipe: Recipe) -> int:
    """Return how often the items of a repetition are re-partitioned, at most.

    Examples
    --------
    >>> count_repartitions(Recipe(epochs=10, repartition_every=2))
    4
    """
    return max(0, math.ceil(recipe.epochs / recipe.repartition_every) - 1)


def bucket_dtype(buckets: int) -> Any:
    """Return the smallest type for the numbers of buckets.

    The best buckets of all items are most of the memory that learning takes.
    """
    return np.uint16 if buckets <= 1 << 16 else np.int32


def count_kept_buckets(points: int, choices: int) -> int:
    """Return how many of the best buckets are kept of each f: at least `choices`.

    With half as many, a search on WordNet-MiniLM scans a few percent more for the same recall.

    Examples
    --------
    >>> [count_kept_buckets(points, 32) for points in (400_000, 600_000, 10_000_000)]
    [64, 46, 32]
    """
    return max(choices, min(_KEPT, max(_FEWER, _MEMORY // (_PLACE * max(1, points)))))
