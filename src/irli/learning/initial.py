"""The start of learning: the first partition (hash or k-means) and the untrained network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.base.recipe import Recipe
from irli.engine.hashing import UniversalHash, mix_numbers
from irli.engine.top_k import SCORES, top_k
from irli.learning.kmeans import kmeans, nearest_centroids
from irli.learning.partition import Partition, Ranking, assign_bounded, bucket_capacity
from irli.learning.problem import Problem
from irli.learning.sizes import count_linear
from irli.learning.threads import current_threads
from irli.learning.weights import Weights, draw_weights

Score = Callable[[NDArray[np.int64]], NDArray[np.float32]]
_Ranked = tuple[NDArray[np.int64], NDArray[np.float32]]  # places and scores (n, width), best first


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


def place_new(partition: Partition, score: Score, recipe: Recipe) -> Partition:
    """Put the items that have no bucket, -1, into their best ones with room.

    `score` returns the scores (n, B) of the buckets for some items.
    """
    assignment = partition.assignment.copy()
    new = np.flatnonzero(assignment[:, 0] < 0)

    def rank_new(items: NDArray[np.int64], among: NDArray[np.int64] | None, width: int) -> _Ranked:
        scores = score(new[items])
        chosen = scores if among is None else np.ascontiguousarray(scores[:, among])
        values, places = top_k(chosen, width, current_threads())
        return places, values

    rank = _make_ranking(rank_new, partition.buckets)
    loads, limit = partition.loads(), limit_load(len(assignment), recipe)
    taken = None
    for column in range(assignment.shape[1] if len(new) else 0):
        taken = assign_bounded(rank, len(new), limit, recipe.choices, loads, taken)
        assignment[new, column] = taken
    return Partition(partition.buckets, assignment)


def _assign_nearest(
    vectors: NDArray[np.float32], centroids: NDArray[np.float32], recipe: Recipe
) -> Partition:
    """Put each vector into the bucket of its nearest centroid that has room."""

    def rank_near(items: NDArray[np.int64], among: NDArray[np.int64] | None, width: int) -> _Ranked:
        chosen = centroids if among is None else centroids[among]
        found = nearest_centroids(np.ascontiguousarray(vectors[items]), chosen, width)
        release_pages(vectors)
        return found

    rank = _make_ranking(rank_near, len(centroids))
    loads = np.zeros(len(centroids), dtype=np.int64)
    most = limit_load(len(vectors), recipe)
    chosen = assign_bounded(rank, len(vectors), most, recipe.choices, loads)
    return Partition(len(centroids), chosen[:, None])


def _make_ranking(
    rank_some: Callable[[NDArray[np.int64], NDArray[np.int64] | None, int], _Ranked], buckets: int
) -> Ranking:
    """Return a ranking in blocks by what returns places and scores (n, width) for some items."""
    size = max(1, SCORES // buckets)

    def rank(
        items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        names = np.arange(buckets) if among is None else among
        width = min(count, len(names))
        best = np.full((len(items), count), -1, dtype=np.int32)
        lead = np.empty(len(items), dtype=np.float32)
        for start in range(0, len(items), size):
            part = slice(start, start + size)
            places, values = rank_some(items[part], among, width)
            best[part, :width] = names[places]
            lead[part] = values[:, 0] - values[:, min(1, width - 1)]
        return best, lead

    return rank
