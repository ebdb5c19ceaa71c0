"""k-means centroids for the first partition, in one level or in two for many buckets.

Where items are dense in some places, plain k-means gives these places too few centroids: a bucket
has a bound, and the items beyond it would have to go far away. So clusters that are too large can
be split, and the smallest are dissolved in return.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.engine.top_k import SCORES
from irli.learning.sizes import KMEANS_ITERATIONS, KMEANS_ROUNDS, KMEANS_SAMPLE
from irli.learning.torch_topk import top_k

_POLISH = 5  # iterations over all centroids after two levels, which regain most of the loss
_ONE_LEVEL = 4096  # with more centroids, two levels take far less time and lose little
_MANY, _FEW = 1.3, 0.6  # times the mean size: larger clusters are split, smaller ones dissolved


def kmeans(
    rows: NDArray[np.float32], count: int, generator: torch.Generator, even: bool = False
) -> Tensor:
    """Return the centroids (count, d) of `rows` (n, d). There must be at least `count` rows.

    With `even`, there are as many centroids in dense places as these have rows.

    Examples
    --------
    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]], dtype=np.float32)
    >>> kmeans(points, 2, torch.Generator().manual_seed(0)).sort(dim=0).values.T
    tensor([[0.0500, 5.0500]])
    """
    limit = count * KMEANS_SAMPLE
    chosen = np.arange(len(rows))
    if len(rows) > limit:
        chosen = torch.randperm(len(rows), generator=generator)[:limit].numpy()
    vectors = torch.from_numpy(np.asarray(rows[chosen]))
    run = _run_lloyd if count <= _ONE_LEVEL else _run_two_levels
    centroids, owner = run(vectors, count, generator)
    return _even_out(vectors, centroids, owner, generator) if even else centroids


def nearest_centroids(vectors: Tensor, centroids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` nearest centroids (n, count) and their scores q c - |c|^2 / 2."""
    offset = -centroids.square().sum(dim=1) / 2
    values, places = top_k(torch.addmm(offset, vectors, centroids.T), count)
    return places, values


def _run_lloyd(vectors: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    first = vectors[torch.randperm(len(vectors), generator=generator)[:count]]
    return _improve(vectors, first.clone(), KMEANS_ITERATIONS, generator)


def _improve(
    vectors: Tensor, centroids: Tensor, iterations: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the means of the clusters, and in which cluster each vector (n,) is."""
    count = len(centroids)
    for _ in range(iterations):
        owner = _find_owners(vectors, centroids)
        size = torch.bincount(owner, minlength=count)
        total = torch.zeros_like(centroids).index_add_(0, owner, vectors)
        filled = size > 0
        centroids[filled] = total[filled] / size[filled, None]
        empty = int((~filled).sum())
        if empty:  # a centroid without points restarts at a random point
            fresh = torch.randint(len(vectors), (empty,), generator=generator)
            centroids[~filled] = vectors[fresh]
    return centroids, owner


def _run_two_levels(
    vectors: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Split into about sqrt(count) groups, then split each group by its share of the points."""
    groups = math.isqrt(count)
    _, owner = _run_lloyd(vectors, groups, generator)
    size = torch.bincount(owner, minlength=groups)
    shares = _divide_in_proportion(size, count)
    parts = [
        _run_lloyd(vectors[owner == g], int(shares[g]), generator)[0]
        for g in range(groups)
        if shares[g] > 0
    ]
    return _improve(vectors, torch.cat(parts), _POLISH, generator)


def _even_out(
    vectors: Tensor, centroids: Tensor, owner: Tensor, generator: torch.Generator
) -> Tensor:
    """Split the largest clusters. The centroids for that are those of the smallest ones."""
    mean = len(vectors) / len(centroids)
    for _ in range(KMEANS_ROUNDS):
        size = torch.bincount(owner, minlength=len(centroids))
        order = torch.argsort(size, stable=True)
        spare = order[size[order] < _FEW * mean].tolist()
        large = order[size[order] > _MANY * mean].flip(0).tolist()
        if not spare or not large:
            break
        points = torch.tensor_split(torch.argsort(owner, stable=True), size.cumsum(0)[:-1])
        for cluster in large:
            more = math.ceil(len(points[cluster]) / (_MANY * mean)) - 1
            places = [cluster, *spare[:more]]
            spare = spare[more:]
            centroids[places], _ = _run_lloyd(vectors[points[cluster]], len(places), generator)
        centroids, owner = _improve(vectors, centroids, 1, generator)
    return centroids


def _divide_in_proportion(size: Tensor, count: int) -> Tensor:
    """Divide `count` in proportion to `size` by largest remainders. No share exceeds its size."""
    exact = size * (count / size.sum())
    share = exact.floor().long().minimum(size)
    while (missing := count - int(share.sum())) > 0:
        remainder = torch.where(share < size, exact - share, torch.tensor(-torch.inf))
        share[torch.argsort(remainder, descending=True, stable=True)[:missing]] += 1
        share = share.minimum(size)
    return share


def _find_owners(vectors: Tensor, centroids: Tensor) -> Tensor:
    """Return the nearest centroid of each vector (n,)."""
    offset = -centroids.square().sum(dim=1) / 2
    owner = torch.empty(len(vectors), dtype=torch.int64)
    size = max(1, SCORES // len(centroids))
    # One buffer for all blocks. With a new one for each, the heap would grow with every block.
    scores = torch.empty(min(size, len(vectors)), len(centroids))
    for start in range(0, len(vectors), size):
        block = vectors[start : start + size]
        part = torch.addmm(offset, block, centroids.T, out=scores[: len(block)])
        owner[start : start + size] = top_k(part, 1)[1][:, 0]
    return owner
