"""Sizes that decide how much work learning does. Used by learning and by the cluster planner."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irli.base.recipe import Recipe

KMEANS_ITERATIONS = 6
KMEANS_ROUNDS = 5  # of splitting large clusters, at most; most is gained by the first three
KMEANS_SAMPLE = 64  # vectors for each centroid that k-means is run on

_LINEAR = 128  # features of a warm router that skip the ReLU, at most
_SMALL = 32_768  # up to this many training queries an epoch draws all, and half of more
_KEPT = 64  # best buckets kept for each point; the others are hardly ever probed
_LEAST_KEPT, _MEMORY = 32, 160 << 20  # down to 32 if 64 would take more than 160 MB
_ENTRY = 6  # bytes of a bucket number and its chance


def count_drawn(queries: int, recipe: Recipe) -> int:
    """Return how many training queries an epoch draws.

    Examples
    --------
    >>> count_drawn(200_000, Recipe()), count_drawn(1000, Recipe(epoch_size=0))
    (65536, 1000)
    """
    size = recipe.epoch_size
    return min(queries, size, max(_SMALL, queries // 2)) if size else queries


def count_linear(dim: int, recipe: Recipe) -> int:
    """Return the width of the linear part of a router. Only a warm one has it.

    Examples
    --------
    >>> count_linear(384, Recipe()), count_linear(50, Recipe())
    (128, 50)
    """
    return min(_LINEAR, dim) if recipe.router == "warm" else 0


def count_repartitions(recipe: Recipe) -> int:
    """Return how often a repetition is re-partitioned, at most.

    Examples
    --------
    >>> count_repartitions(Recipe(epochs=10, repartition_every=2))
    4
    """
    return max(0, math.ceil(recipe.epochs / recipe.repartition_every) - 1)


def bucket_dtype(buckets: int) -> Any:
    """Return the smallest dtype for bucket numbers.

    The best buckets of all points take most of the memory of learning.
    """
    return np.uint16 if buckets <= 1 << 16 else np.int32


def count_kept_buckets(points: int, recipe: Recipe) -> int:
    """Return how many of the best buckets are kept for each point: at least `choices`.

    With 32 instead of 64, a search on WordNet-MiniLM scans a few percent more for the same recall.
    The least loaded of an item's own best `choices` needs no more than these.

    Examples
    --------
    >>> recipe = Recipe(choices=32)
    >>> [count_kept_buckets(points, recipe) for points in (400_000, 600_000, 10_000_000)]
    [64, 46, 32]
    """
    if recipe.repartition == "least-loaded" and recipe.affinity == "item":
        return recipe.choices
    wanted = min(_KEPT, max(_LEAST_KEPT, _MEMORY // (_ENTRY * max(1, points))))
    return max(recipe.choices, wanted)
