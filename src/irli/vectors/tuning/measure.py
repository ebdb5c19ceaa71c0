"""Trial: held-out queries with their true neighbours, to measure search parameters on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.threads import thread_count
from irli.engine.exact import exact_neighbors
from irli.errors import FormatError
from irli.vectors.build.held_out import HeldOut
from irli.vectors.cost import count_query_work
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Searcher

_MANY, _QUERIES = 100, 100  # so many queries are enough from this k on: the recall varies less
_MARGIN = 1.3  # standard errors of the recall that are kept in reserve for other queries
_SELF_SAMPLE = 10_000  # items that are tried whether they find themselves
_LEAST = 1e-8  # smallest threshold that is tried before every bucket is probed, or smaller
_COPIES = 32  # of an item that are left out
ROUTED = 64  # queries routed at a time
_TIE = {"l2": 1e-5, "ip": 1e-6, "cosine": 1e-6}  # a relative difference that is due to rounding


class Measured(NamedTuple):
    """What a search did on the held-out queries, on average."""

    recall: float
    safe_recall: float  # less a margin, for the chance in the choice of the queries
    probed: float
    scanned: float
    work: float


class MeasuredQueries(NamedTuple):
    """What a search did, query by query."""

    recall: NDArray[np.float64]  # (n,)
    counts: NDArray[np.int64]  # (n, 8): see `WORK`
    work: NDArray[np.float64]  # (n,)


def make_trials(
    searcher: Searcher, held: HeldOut, metric: str, ks: list[int], length: float | None = None
) -> list[Trial]:
    """Return a trial for each k. The true neighbours are computed once for few and for many."""
    trials: dict[int, Trial] = {}
    for part, step in (
        ([k for k in ks if k < _MANY], 1),
        ([k for k in ks if k >= _MANY], max(1, len(held.rows) // _QUERIES)),
    ):
        if part:
            some = HeldOut(held.queries[::step], held.rows[::step], held.relevant[::step])
            truth = _find_truth(searcher, some, metric, max(part))
            trials |= {k: Trial(searcher, some, metric, k, truth, length) for k in part}
    return [trials[k] for k in ks]


def _find_truth(
    searcher: Searcher, held: HeldOut, metric: str, k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the kernel distances of the k nearest items (n, k), and how many copies were left out.

    A held-out item stands for a new query. A new query has no copies among the items, so those of
    the item are no neighbours either. Missing distances are infinite.
    """
    vectors = searcher.layout.vectors
    width = min(k + _COPIES, len(vectors))
    rows = exact_neighbors(held.queries, vectors, width, metric, rows=held.rows)
    near = np.full((len(rows), k), np.inf, dtype=np.float32)
    copies = np.zeros(len(rows), dtype=np.int64)
    for i, query in enumerate(held.queries):
        found = vectors[rows[i][rows[i] >= 0]]
        equal = (found == query).all(axis=1) & (held.rows[i] >= 0)
        copies[i] = equal.sum()
        found = found[~equal][:k]
        if metric == "l2":
            near[i, : len(found)] = np.square(found - query).sum(axis=1)
        else:
            near[i, : len(found)] = -(found @ query)
    return near, copies


class Trial:
    """Held-out queries with the distances of their true neighbours, to measure parameters on."""

    def __init__(
        self,
        searcher: Searcher,
        held: HeldOut,
        metric: str,
        k: int,
        truth: tuple[NDArray[np.float32], NDArray[np.int64]],
        length: float | None = None,
    ) -> None:
        self.searcher, self.metric, self.k, self.length = searcher, metric, k, length
        self.queries, self.rows = np.ascontiguousarray(held.queries), np.asarray(held.rows)
        near, self._copies = truth
        self._count = np.isfinite(near[:, :k]).sum(axis=1)
        self._last = near[np.arange(len(near)), np.maximum(self._count, 1) - 1]
        self.nearest = near[:, 0]
        if metric == "ip":  # so that it holds for queries of any length
            self.nearest = self.nearest / np.maximum(np.linalg.norm(self.queries, axis=1), 1e-30)
        self.least = self._find_least()
        self.measure = cache(self._measure)
        self.self_hits = cache(self._count_self_hits)

    def _find_least(self) -> float:
        """Return the least threshold to try. For sharp routers it is tiny: it finds half of all."""
        some = next(self.route(), np.zeros(1, dtype=np.float32))
        return float(np.clip(np.exp(np.median(some.astype(np.float64))), 1e-300, _LEAST))

    def route(self) -> Iterator[NDArray[np.float32]]:
        """Yield the log-probabilities (n, R, B) of a few queries at a time."""
        for start in range(0, len(self.queries), ROUTED):
            queries = self.queries[start : start + ROUTED]
            if self.length:
                lengths = np.linalg.norm(queries, axis=1, keepdims=True)
                factors = self.length / np.where(lengths > 0, lengths, self.length)
                queries = (queries * factors).astype(np.float32)
            yield self.searcher.route(queries)

    def choose_point(self, parameters: SearchParameters) -> SearchParameters:
        """Return the parameters with the operating point for k alone, where no query is strange."""
        points = tuple(point for point in parameters.points if point.k == self.k)
        return dataclasses.replace(parameters, points=points, far=None)

    def measure_each(self, parameters: SearchParameters) -> MeasuredQueries:
        """Return recall and work of each query. A query never counts as its own neighbour."""
        spare = self._copies.max(initial=0) + bool((self.rows >= 0).any())  # copies, and itself
        more = int(min(self.k + spare, len(self.searcher.layout.vectors)))
        parameters = dataclasses.replace(parameters, length=self.length)
        plan = parameters.to_plan(more, fill=False)  # so that more work never lowers the recall
        distances, found, counts = self.searcher.measure(self.queries, plan, thread_count(None))
        near = distances <= (self._last + _TIE[self.metric] * np.abs(self._last))[:, None]
        others = (found >= 0) & (found != self.rows[:, None])
        hits = (near & others).sum(axis=1) - self._copies
        hits = np.clip(hits, 0, self._count)
        recall = np.divide(hits, self._count, out=np.ones(len(hits)), where=self._count > 0)
        return MeasuredQueries(recall, counts, count_query_work(self.searcher.layout, counts))

    def _measure(self, parameters: SearchParameters) -> Measured:
        """Return recall and work.

        The recall is that of the held-out items or that of the sample queries, whichever is lower:
        many easy items must not hide a few hard queries.
        """
        share, counts, work = self.measure_each(parameters)
        kinds = [share[kind] for kind in (self.rows >= 0, self.rows < 0) if kind.any()]
        recalls = [float(each.mean()) for each in kinds]
        errors = [float(each.std() / math.sqrt(len(each))) for each in kinds]
        safe = [mean - _MARGIN * error for mean, error in zip(recalls, errors, strict=True)]
        return Measured(
            recall=min(recalls, default=1.0),
            safe_recall=min(safe, default=1.0),
            probed=float(counts[:, 0].mean()),
            scanned=float(counts[:, 1].mean()),
            work=float(work.mean()),
        )

    def _count_self_hits(self, parameters: SearchParameters) -> float:
        """Return the share of the items that find themselves, or an item with equal numbers."""
        if self.metric == "ip":
            return 1.0
        vectors = self.searcher.layout.vectors
        rows = np.arange(len(vectors))[:: max(1, len(vectors) // _SELF_SAMPLE)]
        items = np.ascontiguousarray(vectors[rows])
        require_finite(items)
        plan = parameters.to_plan(1)
        distances, found, _ = self.searcher.measure(items, plan, thread_count(None))
        own = np.zeros(len(items)) if self.metric == "l2" else -np.square(items).sum(axis=1)
        near = distances[:, 0] <= own + _TIE[self.metric] * np.abs(own)  # as near as itself
        equal = (found[:, 0] >= 0) & near
        return float(equal.mean())


def require_finite(vectors: NDArray[Any]) -> None:
    """Raise if vectors of the index are not finite: only a forged folder has such."""
    if not np.isfinite(vectors).all():
        raise FormatError(
            "The vectors of the index must be finite numbers, and some are not. "
            "Build the index again."
        )
