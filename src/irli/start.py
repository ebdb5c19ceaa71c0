"""Where learning begins: the first partition, and a router that already knows it if it can."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.config import Recipe
from irli.hashing import UniversalHash
from irli.kmeans import kmeans, nearest_centroids
from irli.largest import SCORES
from irli.mapped import let_go
from irli.network import RouterNetwork
from irli.partition import Partition, bounded, capacity
from irli.problem import Problem


def first_network(problem: Problem, recipe: Recipe, heads: int) -> RouterNetwork:
    """Return an untrained network for `heads` repetitions."""
    queries = problem.queries
    dim, sparse = queries.shape[1], not isinstance(queries, np.ndarray)
    network = RouterNetwork(dim, recipe.linear, recipe.hidden, recipe.buckets, heads, sparse)
    network.standardise(problem.items if problem.own else queries)
    return network


def first_partition(
    items: NDArray[np.float32], recipe: Recipe, number: int, rng: np.random.Generator
) -> tuple[Partition, Tensor | None]:
    """Return the first partition of repetition `number`, and the centroids that it comes from.

    A 2-universal hash (section 3.1), a bucket for every item alone, or bounded k-means buckets.
    """
    count = len(items)
    if recipe.start == "hash":
        hashed = UniversalHash(recipe.buckets, seed=recipe.seed * 10_007 + number)
        return Partition(recipe.buckets, hashed(np.arange(count))[:, None]), None
    if recipe.start == "alone":
        return Partition(count, np.arange(count, dtype=np.int32)[:, None]), None
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    centroids = kmeans(items, recipe.buckets, generator)
    return _nearest_with_room(items, centroids, recipe), centroids


def limit(items: int, recipe: Recipe) -> int:
    """Return how many items a bucket may hold under the recipe."""
    return capacity(items * recipe.buckets_per_item, recipe.buckets, recipe.slack)


def _nearest_with_room(
    vectors: NDArray[np.float32], centroids: Tensor, recipe: Recipe
) -> Partition:
    size = max(1, SCORES // len(centroids))

    def rank(
        items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        buckets = np.arange(len(centroids)) if among is None else among
        chosen = centroids if among is None else centroids[among]
        there = min(count, len(chosen))
        best = np.full((len(items), count), -1, dtype=np.int32)
        decided = np.empty(len(items), dtype=np.float32)
        for start in range(0, len(items), size):
            part = slice(start, start + size)
            points = torch.from_numpy(np.asarray(vectors[items[part]]))
            places, values = nearest_centroids(points, chosen, there)
            best[part, :there] = buckets[places.numpy()]
            decided[part] = values[:, 0] - values[:, min(1, there - 1)]
            let_go(vectors)
        return best, decided

    loads = np.zeros(len(centroids), dtype=np.int64)
    chosen = bounded(rank, len(vectors), limit(len(vectors), recipe), recipe.choices, loads)
    return Partition(len(centroids), chosen[:, None])
