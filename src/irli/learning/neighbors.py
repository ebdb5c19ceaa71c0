"""Near neighbours to train on, found among the nearest clusters: nearly all of the exact ones.

All pairs of a million items are too many to compare, and a router learns as well from nearly all
neighbours. So the items are clustered, and each query is compared with the items of the nearest
clusters. How many these must be is measured with a sample, for the recall that is asked for.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli.base.logs import get_logger
from irli.base.memory import release_pages
from irli.base.progress import Progress, track
from irli.base.threads import limit_blas, run_all, thread_count
from irli.engine.exact import exact_neighbors, is_precise
from irli.learning.kmeans import find_owners, improve_centroids, nearest_centroids
from irli.learning.threads import current_threads, use_threads

log = get_logger(__name__)

_CLUSTERS = 4.0  # times the root of the items
_SAMPLED = 16  # items for each cluster that k-means is run on
_ITERATIONS = 4
_ASKED = 256  # queries with exact neighbours, which tell how many clusters are enough
_MOST = 0.4  # of the clusters: with more, exact search takes no longer
_QUERIES = 16_384  # in a block
_AT_ONCE = 16  # clusters searched in one call, so that an interrupt is seen
_FEWEST = 20_000  # items, with fewer exact search takes a second

Floats = NDArray[np.float32]


@limit_blas()
def near_neighbors(
    queries: Floats,
    base: Floats,
    k: int,
    metric: str,
    *,
    rows: NDArray[np.int64],
    out: NDArray[Any],
    threads: int | None = None,
    progress: Progress = False,
    recall: float,
) -> NDArray[Any]:
    """Find neighbours as `exact_neighbors` does, with about this recall.

    Inner products do not lead to clusters, and float32 cannot tell all neighbours far from the
    origin. There, exact neighbours are found.

    Examples
    --------
    >>> points = np.arange(6, dtype=np.float32)[:, None]
    >>> near = np.empty((6, 1), dtype=np.int64)
    >>> near_neighbors(points, points, 1, "l2", rows=np.arange(6), out=near, recall=0.9)[0]
    array([1])
    """
    plain = partial(exact_neighbors, threads=threads, progress=progress)
    few = len(base) < _FEWEST or len(queries) < 2 * _ASKED
    if few or metric == "ip" or (metric == "l2" and not is_precise(queries, base, rows)):
        return plain(queries, base, k, metric, rows=rows, out=out)
    rng = np.random.default_rng(0)
    with use_threads(thread_count(threads)):
        clusters = _Clusters(base, rng)
        # Items and other queries, which may be unlike them, need their own numbers.
        for chosen in (np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)):
            if len(chosen) == 0:
                continue
            asked = np.sort(rng.permutation(chosen)[:_ASKED])
            known = exact_neighbors(
                queries[asked], base, k, metric, rows=rows[asked], threads=threads
            )
            probes = clusters.count_probes(queries[asked], known, recall)
            if probes > _MOST * clusters.count:
                out[chosen] = plain(queries[chosen], base, k, metric, rows=rows[chosen])
                continue
            log.info("neighbours: %d of %d clusters", probes, clusters.count)
            blocks = np.split(chosen, range(_QUERIES, len(chosen), _QUERIES))
            for block in track(blocks, progress, "near neighbours"):
                out[block] = clusters.search(queries[block], rows[block], k, probes)
    return out


def count_compared(queries: int, items: int, recall: float) -> int:
    """Return how many pairs are compared to find neighbours, if a tenth of the clusters is enough.

    Examples
    --------
    >>> count_compared(1000, 1000, 0.97), count_compared(200_000, 1_000_000, 0.97)
    (1000000, 25824000000)
    """
    if recall == 1.0 or items < _FEWEST:
        return queries * items
    clusters = int(_CLUSTERS * math.sqrt(items))
    grouped = (items + queries + _ITERATIONS * min(items, _SAMPLED * clusters)) * clusters
    return grouped + queries * items // 10


class _Clusters:
    """Items in the order of their clusters."""

    def __init__(self, base: Floats, rng: np.random.Generator) -> None:
        self.base, self.count = base, max(1, int(_CLUSTERS * math.sqrt(len(base))))
        size = min(len(base), self.count * _SAMPLED)
        sample = np.array(base[np.sort(rng.choice(len(base), size, replace=False))])
        self.centre = sample.mean(axis=0)  # squares are small around it
        sample -= self.centre
        first = sample[np.sort(rng.choice(size, self.count, replace=False))]
        self.centroids = improve_centroids(sample, first, _ITERATIONS, rng)[0]
        owner = np.empty(len(base), dtype=np.int64)
        for start in range(0, len(base), _QUERIES):
            part = slice(start, start + _QUERIES)
            owner[part] = find_owners(self.move(base[part]), self.centroids)
            release_pages(base)
        self.owner = owner
        self.order = np.argsort(owner, kind="stable")
        self.ends = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=self.count))])
        self.place = np.empty(len(base), dtype=np.int64)  # of each item in this order
        self.place[self.order] = np.arange(len(base))

    def move(self, vectors: Floats) -> Floats:
        return np.ascontiguousarray(vectors - self.centre)

    def count_probes(self, queries: Floats, known: NDArray[Any], recall: float) -> int:
        """Return how many of the nearest clusters hold this share of known neighbours (n, k)."""
        nearest = nearest_centroids(self.move(queries), self.centroids, self.count)[0]
        rank = np.empty_like(nearest)
        np.put_along_axis(rank, nearest, np.arange(self.count)[None], axis=1)
        needed = np.take_along_axis(rank, self.owner[known], axis=1)
        return int(np.quantile(needed, recall, method="higher")) + 1

    def search(
        self, queries: Floats, rows: NDArray[np.int64], k: int, probes: int
    ) -> NDArray[np.int64]:
        """Return the k nearest items (n, k) of the queries in the nearest clusters."""
        moved = self.move(queries)
        probed = nearest_centroids(moved, self.centroids, probes)[0]
        found = np.full((len(queries), k), -1, dtype=np.int64)
        own = np.where(rows >= 0, self.place[rows], -1)
        threads = current_threads()
        size = -(-len(queries) // threads)
        parts = [slice(start, start + size) for start in range(0, len(queries), size)]
        run_all(
            [partial(self._fill, moved[p], own[p], probed[p], found[p]) for p in parts], threads
        )
        release_pages(self.base)
        return np.where(found >= 0, self.order[found], -1)

    def _fill(
        self,
        moved: Floats,
        own: NDArray[np.int64],
        probed: NDArray[np.int64],
        found: NDArray[np.int64],
    ) -> None:
        """Write the places of the nearest items, cluster by cluster: each is read once."""
        value = np.full(found.shape, -np.inf, dtype=np.float32)
        order = np.argsort(probed.reshape(-1), kind="stable")
        starts = np.searchsorted(probed.reshape(-1)[order], np.arange(self.count + 1))
        asking = order // probed.shape[1]
        for first in range(0, self.count, _AT_ONCE):
            last = min(first + _AT_ONCE, self.count)
            _native.search_clusters(
                moved,
                own,
                self.base,
                self.centre,
                self.order,
                self.ends,
                asking,
                starts,
                first,
                last,
                value,
                found,
            )
