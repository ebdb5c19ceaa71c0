"""The start of learning: the first partition (hash or k-means) and the untrained network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.base.recipe import Recipe
from irli.engine.hashing import UniversalHash, mix_numbers
from irli.engine.top_k import SCORES
from irli.learning.kmeans import kmeans, nearest_centroids
from irli.learning.partition import Partition, Ranking, assign_bounded, bucket_capacity
from irli.learning.problem import Problem
from irli.learning.sizes import count_linear
from irli.learning.weights import Weights, draw_weights


def make_weights(problem: Problem, recipe: Recipe, heads: int, rng: np.random.Generator) -> Weights:
    """Return the weights of an untrained network for `heads` repetitions."""
    queries = problem.queries
    dim, sparse = queries.shape[1], not isinstance(queries, np.ndarray)
    shape = dim, count_linear(dim, recipe), recipe.hidden
    weights = draw_weights(shape, recipe.buckets, heads, sparse, rng)
    if recipe.standardize:
        weights.standardize(problem.items if problem.items_are_queries else queries)
    return weights


def make_first_partition(
    items: NDArray[np.float32], recipe: Recipe, number: int, rng: np.random.Generator
) -> tuple[Partition, NDArray[np.float32] | None]:
    """Return the first partition of repetition `number`, and its centroids if it has any.

    It is a 2-universal hash (section 3.1), one bucket for each item, or bounded k-means.
    """
    count = len(items)
    if recipe.start == "hash":
        hashed = UniversalHash(recipe.buckets, seed=recipe.seed * 10_007 + number)
        return Partition(recipe.buckets, hashed(mix_numbers(np.arange(count)))[:, None]), None
    if recipe.start == "one-per-item":
        return Partition(count, np.arange(count, dtype=np.int32)[:, None]), None
    # A warm router sends queries to the centroids, so these have to be where the items are.
    centroids = kmeans(items, recipe.buckets, rng, even=recipe.router == "warm")
    return _assign_nearest(items, centroids, recipe), centroids


def limit_load(items: int, recipe: Recipe) -> int:
    """Return how many items a bucket may hold by the recipe."""
    return bucket_capacity(items * recipe.buckets_per_item, recipe.buckets, recipe.slack)


def place_new(
    partition: Partition, rank_beside: Callable[[NDArray[np.int32] | None], Ranking], recipe: Recipe
) -> Partition:
    """Put the items that have no bucket, -1, into their best ones with room.

    `rank_beside` returns a ranking of the first bucket of each item, or of the second one where it
    gets the first ones (N,).
    """
    assignment = partition.assignment.copy()
    new = np.flatnonzero(assignment[:, 0] < 0)
    if len(new) == 0:
        return partition
    loads, limit = partition.loads(), limit_load(len(assignment), recipe)
    taken = None
    for column in range(assignment.shape[1]):
        rank = rank_beside(None if column == 0 else np.ascontiguousarray(assignment[:, 0]))

        def rank_new(
            items: NDArray[np.int64],
            count: int,
            among: NDArray[np.int64] | None = None,
            rank: Ranking = rank,
        ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
            return rank(new[items], count, among)

        taken = assign_bounded(rank_new, len(new), limit, recipe.choices, loads, taken)
        assignment[new, column] = taken
    return Partition(partition.buckets, assignment)


def _assign_nearest(
    vectors: NDArray[np.float32], centroids: NDArray[np.float32], recipe: Recipe
) -> Partition:
    """Put each vector into the bucket of its nearest centroid that has room."""
    size = max(1, SCORES // len(centroids))

    def rank(
        items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        buckets = np.arange(len(centroids)) if among is None else among
        chosen = centroids if among is None else centroids[among]
        width = min(count, len(chosen))
        best = np.full((len(items), count), -1, dtype=np.int32)
        lead = np.empty(len(items), dtype=np.float32)
        for start in range(0, len(items), size):
            part = slice(start, start + size)
            points = np.ascontiguousarray(vectors[items[part]])
            places, values = nearest_centroids(points, chosen, width)
            best[part, :width] = buckets[places]
            lead[part] = values[:, 0] - values[:, min(1, width - 1)]
            release_pages(vectors)
        return best, lead

    loads = np.zeros(len(centroids), dtype=np.int64)
    chosen = assign_bounded(
        rank, len(vectors), limit_load(len(vectors), recipe), recipe.choices, loads
    )
    return Partition(len(centroids), chosen[:, None])
