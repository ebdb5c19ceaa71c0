"""k-means centroids for the first partition, in one level or in two for many buckets.

Where items are dense in some places, plain k-means gives these places too few centroids: a bucket
has a bound, and the items beyond it would have to go far away. So clusters that are too large can
be split, and the smallest are dissolved in return.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli.base.threads import run_all
from irli.engine.top_k import top_k
from irli.learning.sizes import KMEANS_ITERATIONS, KMEANS_ROUNDS, KMEANS_SAMPLE
from irli.learning.threads import current_threads

_POLISH = 5  # iterations over all centroids after two levels, which regain most of the loss
_ONE_LEVEL = 4096  # with more centroids, two levels take far less time and lose little
_MANY, _FEW = 1.3, 0.6  # times the mean size: larger clusters are split, smaller ones dissolved
_ROWS = 1024  # vectors for a thread at a time

Floats = NDArray[np.float32]
Clusters = tuple[Floats, NDArray[np.int64]]  # the centroids, and in which cluster each vector is


def kmeans(rows: Floats, count: int, rng: np.random.Generator, even: bool = False) -> Floats:
    """Return the centroids (count, d) of `rows` (n, d). There must be at least `count` rows.

    With `even`, there are as many centroids in dense places as these have rows.

    Examples
    --------
    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]], dtype=np.float32)
    >>> np.sort(kmeans(points, 2, np.random.default_rng(0)), axis=0).T
    array([[0.05, 5.05]], dtype=float32)
    """
    limit = count * KMEANS_SAMPLE
    vectors = np.ascontiguousarray(rows)
    if len(rows) > limit:
        vectors = np.ascontiguousarray(rows[np.sort(rng.choice(len(rows), limit, replace=False))])
    run = _run_lloyd if count <= _ONE_LEVEL else _run_two_levels
    centroids, owner = run(vectors, count, rng)
    return _even_out(vectors, centroids, owner, rng) if even else centroids


def nearest_centroids(
    vectors: Floats, centroids: Floats, count: int
) -> tuple[NDArray[np.int64], Floats]:
    """Return the `count` nearest centroids (n, count) and their scores q c - |c|^2 / 2."""
    scores = np.empty((len(vectors), len(centroids)), dtype=np.float32)
    score = _offer(centroids).score
    jobs = [partial(score, vectors[part], scores[part]) for part in _cut(vectors)]
    run_all(jobs, current_threads())
    values, places = top_k(scores, count, current_threads())
    return places, values


def find_owners(vectors: Floats, centroids: Floats) -> NDArray[np.int64]:
    """Return the nearest centroid of each vector (n,)."""
    owner = np.empty(len(vectors), dtype=np.int64)
    find = _offer(centroids).find_best
    jobs = [partial(find, vectors[part], owner[part]) for part in _cut(vectors)]
    run_all(jobs, current_threads())
    return owner


def _run_lloyd(vectors: Floats, count: int, rng: np.random.Generator) -> Clusters:
    first = vectors[np.sort(rng.choice(len(vectors), count, replace=False))]
    return improve_centroids(vectors, first, KMEANS_ITERATIONS, rng)


def improve_centroids(
    vectors: Floats, centroids: Floats, iterations: int, rng: np.random.Generator
) -> Clusters:
    """Return the means of the clusters, and in which cluster each vector (n,) is."""
    for _ in range(iterations):
        owner = find_owners(vectors, centroids)
        size = np.bincount(owner, minlength=len(centroids))
        filled = size > 0
        sums = np.zeros(centroids.shape)
        _native.add_rows(vectors, owner, sums)
        centroids = centroids.copy()
        centroids[filled] = sums[filled] / size[filled, None]
        empty = int((~filled).sum())
        if empty:  # a centroid without points restarts at a random point
            centroids[~filled] = vectors[rng.integers(len(vectors), size=empty)]
    return centroids, owner


def _run_two_levels(vectors: Floats, count: int, rng: np.random.Generator) -> Clusters:
    """Split into about sqrt(count) groups, then split each group by its share of the points."""
    groups = math.isqrt(count)
    _, owner = _run_lloyd(vectors, groups, rng)
    shares = _divide_in_proportion(np.bincount(owner, minlength=groups), count)
    parts = [
        _run_lloyd(vectors[owner == g], int(shares[g]), rng)[0]
        for g in range(groups)
        if shares[g] > 0
    ]
    return improve_centroids(vectors, np.concatenate(parts), _POLISH, rng)


def _even_out(
    vectors: Floats, centroids: Floats, owner: NDArray[np.int64], rng: np.random.Generator
) -> Floats:
    """Split the largest clusters. The centroids for that are those of the smallest ones."""
    mean = len(vectors) / len(centroids)
    for _ in range(KMEANS_ROUNDS):
        size = np.bincount(owner, minlength=len(centroids))
        order = np.argsort(size, kind="stable")
        spare = order[size[order] < _FEW * mean].tolist()
        large = order[size[order] > _MANY * mean][::-1].tolist()
        if not spare or not large:
            break
        points = np.split(np.argsort(owner, kind="stable"), size.cumsum()[:-1])
        for cluster in large:
            more = math.ceil(len(points[cluster]) / (_MANY * mean)) - 1
            places = [cluster, *spare[:more]]
            spare = spare[more:]
            centroids[places] = _run_lloyd(vectors[points[cluster]], len(places), rng)[0]
        centroids, owner = improve_centroids(vectors, centroids, 1, rng)
    return centroids


def _divide_in_proportion(size: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Divide `count` in proportion to `size` by largest remainders. No share exceeds its size."""
    exact = size * (count / size.sum())
    share = np.minimum(np.floor(exact).astype(np.int64), size)
    while (missing := count - int(share.sum())) > 0:
        remainder = np.where(share < size, exact - share, -np.inf)
        share[np.argsort(-remainder, kind="stable")[:missing]] += 1
        share = np.minimum(share, size)
    return np.asarray(share)


def _offer(centroids: Floats) -> _native.Panels:
    """Return the centroids as kernels compare them."""
    offset = -np.square(centroids).sum(axis=1) / 2
    return _native.Panels(np.ascontiguousarray(centroids), np.ascontiguousarray(offset))


def _cut(vectors: Floats) -> list[slice]:
    return [slice(start, start + _ROWS) for start in range(0, len(vectors), _ROWS)]
