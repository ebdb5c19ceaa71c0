"""k-means centroids for the first partition, in one level or, for many buckets, in two."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.engine.top_k import SCORES
from irli.learning.sizes import KMEANS_ITERATIONS, KMEANS_SAMPLE
from irli.learning.torch_topk import top_k

_POLISH = 5  # iterations over all centroids after two levels: they win back most of the loss
_ONE_LEVEL = 4096  # beyond this many centroids two levels cost far less and lose little


def kmeans(rows: NDArray[np.float32], count: int, generator: torch.Generator) -> Tensor:
    """Return `count` centroids (count, d) of `rows` (n, d), n >= count.

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
    if count <= _ONE_LEVEL:
        return _lloyd(vectors, count, generator)
    return _two_level(vectors, count, generator)


def nearest_centroids(vectors: Tensor, centroids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` best centroids (n, count) and their scores q c - |c|^2 / 2."""
    offset = -centroids.square().sum(dim=1) / 2
    values, places = top_k(torch.addmm(offset, vectors, centroids.T), count)
    return places, values


def _lloyd(vectors: Tensor, count: int, generator: torch.Generator) -> Tensor:
    first = vectors[torch.randperm(len(vectors), generator=generator)[:count]]
    return _improve(vectors, first.clone(), KMEANS_ITERATIONS, generator)


def _improve(
    vectors: Tensor, centroids: Tensor, iterations: int, generator: torch.Generator
) -> Tensor:
    count = len(centroids)
    for _ in range(iterations):
        owner = _owners(vectors, centroids)
        size = torch.bincount(owner, minlength=count)
        total = torch.zeros_like(centroids).index_add_(0, owner, vectors)
        filled = size > 0
        centroids[filled] = total[filled] / size[filled, None]
        empty = int((~filled).sum())
        if empty:  # an empty centroid starts again at a random point
            fresh = torch.randint(len(vectors), (empty,), generator=generator)
            centroids[~filled] = vectors[fresh]
    return centroids


def _two_level(vectors: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Split into about sqrt(count) groups, then each group by its share of the points."""
    groups = math.isqrt(count)
    owner = _owners(vectors, _lloyd(vectors, groups, generator))
    size = torch.bincount(owner, minlength=groups)
    shares = _shares(size, count)
    parts = [
        _lloyd(vectors[owner == g], int(shares[g]), generator)
        for g in range(groups)
        if shares[g] > 0
    ]
    return _improve(vectors, torch.cat(parts), _POLISH, generator)


def _shares(size: Tensor, count: int) -> Tensor:
    """Divide `count` in proportion to `size`, never more than `size`, by largest remainders."""
    exact = size * (count / size.sum())
    share = exact.floor().long().minimum(size)
    while (missing := count - int(share.sum())) > 0:
        remainder = torch.where(share < size, exact - share, torch.tensor(-torch.inf))
        share[torch.argsort(remainder, descending=True, stable=True)[:missing]] += 1
        share = share.minimum(size)
    return share


def _owners(vectors: Tensor, centroids: Tensor) -> Tensor:
    """Return the nearest centroid of each vector (n,)."""
    offset = -centroids.square().sum(dim=1) / 2
    owner = torch.empty(len(vectors), dtype=torch.int64)
    size = max(1, SCORES // len(centroids))
    scores = torch.empty(min(size, len(vectors)), len(centroids))  # one for all: else the heap
    for start in range(0, len(vectors), size):  # grows by every block, with its owners behind it
        block = vectors[start : start + size]
        part = torch.addmm(offset, block, centroids.T, out=scores[: len(block)])
        owner[start : start + size] = top_k(part, 1)[1][:, 0]
    return owner
