"""Measure searches on held-out queries: `Meter` in one index, `Evaluator` in all parts of one.

An index in memory is one part. Several parts answer alike, and what they found is merged. So one
tuner serves both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.threads import thread_count
from irli.vectors.build.ground_truth import (
    GroundTruth,
    add_tie,
    are_as_near,
    find_truth,
    measure_own,
)
from irli.vectors.build.held_out import SAMPLE, HeldOut, make_strange_queries, sample_items
from irli.vectors.cost import Sizes, count_query_work
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Searcher

MARGIN = 1.3  # standard errors of the recall that are kept in reserve for other queries
MANY = 100  # from this k on fewer queries are enough: the recall varies less
_QUERIES, _NEIGHBORS = 50, 10_000  # so many, or as many as have so many neighbours
_LEAST = 1e-8  # smallest threshold that is tried before every bucket is probed, or smaller
_ROUTED = 64  # queries routed at a time

# Calls a method of the `Meter` of every part, and returns their answers.
Ask = Callable[..., list[Any]]


class Searched(NamedTuple):
    """What a search did, query by query, in one part or on average over all parts."""

    distances: NDArray[np.float32]  # (n, k), as the kernels compute them
    rows: NDArray[np.int64]  # (n, k)
    counts: NDArray[np.float64]  # (n, 8): see `WORK`
    work: NDArray[np.float64]  # (n,)


class Meter:
    """What tuning asks of one part of an index."""

    def __init__(self, searcher: Searcher, metric: str, threads: int | None = None) -> None:
        self.searcher, self.metric, self.threads = searcher, metric, threads

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the only part."""
        return [getattr(self, method)(*arguments)]

    def measure_sizes(self) -> Sizes:
        """Return the sizes that decide what a search costs."""
        return self.searcher.sizes

    def sample(self, most: int) -> NDArray[np.float32]:
        """Return some of the items."""
        return sample_items(self.searcher.layout.vectors, most)

    def find_truth(
        self, queries: NDArray[np.float32], rows: NDArray[np.int64], k: int
    ) -> GroundTruth:
        """Return the ground truth of queries among the items of this part."""
        vectors = self.searcher.layout.vectors
        return find_truth(vectors, self.metric, queries, rows, k, threads=self.threads)

    def route(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-probabilities of all buckets: (n, R, B)."""
        return self.searcher.route(queries)

    def find_scales(self) -> NDArray[np.float32]:
        """Return base and reach of each bucket (2, B), or an empty array: see `Centroids`."""
        centroids = self.searcher.layout.centroids
        return np.stack([centroids.base, centroids.reach])

    def measure(
        self, queries: NDArray[np.float32], k: int, parameters: SearchParameters, fill: bool
    ) -> Searched:
        """Search, and count the work. Without `fill`, more work never lowers the recall."""
        plan = parameters.to_plan(min(k, self.searcher.items), fill=fill)
        distances, rows, counts = self.searcher.measure(queries, plan, thread_count(self.threads))
        work = count_query_work(self.searcher.sizes, counts)
        return Searched(distances, rows, counts.astype(np.float64), work)


def find_tuning_truth(ask: Ask, held: HeldOut, metric: str, k: int) -> GroundTruth:
    """Return the ground truth of held-out queries, followed by strange ones, in all parts."""
    some = SAMPLE // len(ask("measure_sizes"))
    strange = make_strange_queries(np.concatenate(ask("sample", some)), metric)
    queries = np.concatenate([held.queries, strange])
    rows = np.concatenate([held.rows, np.full(len(strange), -1)])
    return merge_truths(ask("find_truth", queries, rows, k))


def merge_truths(parts: list[GroundTruth]) -> GroundTruth:
    """Return the ground truth among the items of all parts. `neighbors` are those of the first."""
    distances = np.concatenate([part.distances for part in parts], axis=1)
    k = parts[0].distances.shape[1]
    return parts[0]._replace(
        distances=np.sort(distances, axis=1)[:, :k],
        nearest=np.concatenate([part.nearest for part in parts], axis=1),
        copies=np.sum([part.copies for part in parts], axis=0),
    )


class Measured(NamedTuple):
    """What a search did on the held-out queries, on average. Work is that in one part."""

    recall: float
    safe_recall: float  # less a margin, for the chance in the choice of the queries
    probed: float
    scanned: float
    work: float


class Evaluator:
    """Queries with their true k nearest neighbours, to measure search parameters on."""

    def __init__(
        self, ask: Ask, metric: str, k: int, truth: GroundTruth, length: float | None = None
    ) -> None:
        self.ask, self.metric, self.k, self.length = ask, metric, k, length
        self.queries, self.are_items = np.ascontiguousarray(truth.queries), truth.are_items
        each: list[Sizes] = ask("measure_sizes")
        self.sizes, self.parts = each[0], len(each)
        self._own = np.where(self.are_items, measure_own(self.queries, metric), np.nan)[:, None]
        self._more = int(truth.copies.max(initial=0))  # the item itself, and its copies
        self._count = np.isfinite(truth.distances[:, :k]).sum(axis=1)
        last = truth.distances[np.arange(len(truth.copies)), np.maximum(self._count, 1) - 1]
        self._last = add_tie(last, metric)[:, None]
        self.nearest = truth.nearest
        if metric == "ip":  # so that it holds for queries of any length
            lengths = np.linalg.norm(self.queries, axis=1, keepdims=True)
            self.nearest = self.nearest / np.maximum(lengths, 1e-30)
        self.least = self._find_least()
        self.measure = cache(self._measure)
        self.self_hits = cache(self._count_self_hits)

    def _find_least(self) -> float:
        """Return the least threshold to try. For sharp routers it is tiny: it finds half of all."""
        logits = next(self.route())[1] if len(self.queries) else np.zeros(1)
        return float(np.clip(np.exp(np.median(np.float64(logits))), 1e-300, _LEAST))

    def route(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the log-probabilities (n, P, R, B) of a few queries at a time, in P parts."""
        for start in range(0, len(self.queries), _ROUTED):
            part = slice(start, start + _ROUTED)
            queries = self.queries[part]
            if self.length:
                lengths = np.linalg.norm(queries, axis=1, keepdims=True)
                factors = self.length / np.where(lengths > 0, lengths, self.length)
                queries = (queries * factors).astype(np.float32)
            yield part, np.stack(self.ask("route", queries), axis=1)

    def choose_point(self, parameters: SearchParameters) -> SearchParameters:
        """Return the parameters with the operating point for k alone, where no query is strange."""
        points = tuple(point for point in parameters.points if point.k == self.k)
        return dataclasses.replace(parameters, points=points, strange=None)

    def measure_each(
        self, parameters: SearchParameters
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return recall (n,), counts (n, 8) and work (n,). No query counts as its own neighbour."""
        parameters = dataclasses.replace(parameters, length=self.length)
        distances, _, counts, work = self.search(self.queries, self.k + self._more, parameters)
        with np.errstate(invalid="ignore"):  # missing items are infinitely far
            near = (distances <= self._last) & ~are_as_near(distances, self._own, self.metric)
        hits = np.minimum(near.sum(axis=1), self._count)
        recall = np.divide(hits, self._count, out=np.ones(len(hits)), where=self._count > 0)
        return recall, counts, work

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        parameters: SearchParameters,
        fill: bool = False,
    ) -> Searched:
        """Return the distances in all parts (n, k), and the counts and the work in one of them."""
        each: list[Searched] = self.ask("measure", queries, k, parameters, fill)
        if len(each) == 1:
            return each[0]
        return Searched(
            np.sort(np.concatenate([part.distances for part in each], axis=1), axis=1)[:, :k],
            each[0].rows[:, :0],
            np.mean([part.counts for part in each], axis=0),
            np.mean([part.work for part in each], axis=0),
        )

    def _measure(self, parameters: SearchParameters) -> Measured:
        """Return recall and work.

        The recall is that of the held-out items or that of the sample queries, whichever is lower:
        many easy items must not hide a few hard queries.
        """
        share, counts, work = self.measure_each(parameters)
        kinds = [share[kind] for kind in (self.are_items, ~self.are_items) if kind.any()]
        recalls = [float(each.mean()) for each in kinds]
        errors = [float(each.std() / math.sqrt(len(each))) for each in kinds]
        safe = [mean - MARGIN * error for mean, error in zip(recalls, errors, strict=True)]
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
        hits, count = 0, 0
        for items in self.ask("sample", SAMPLE // self.parts):
            found = self.search(items, 1, parameters, fill=True).distances[:, 0]
            hits += int((found <= add_tie(measure_own(items, self.metric), self.metric)).sum())
            count += len(items)
        return hits / count


def make_evaluators(
    ask: Ask, metric: str, truth: GroundTruth, ks: list[int], length: float | None = None
) -> list[Evaluator]:
    """Return an evaluator for each k. Fewer queries are enough for a large one."""
    evaluators = []
    for k in ks:
        most = max(_QUERIES, _NEIGHBORS // k) if k >= MANY else len(truth.queries)
        some = truth.take(slice(None, None, max(1, len(truth.queries) // max(1, most))))
        evaluators.append(Evaluator(ask, metric, k, some, length))
    return evaluators
