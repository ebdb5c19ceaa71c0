"""Measure what an index promises: recall, self-hits, the floor for strange queries, filters.

Answers are compared with exact ones by their distances: of equally near items, any will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.guarantees.shapes import Shape
from irli import VectorIndex
from irli.engine.metric import prepare_vectors
from irli.vectors.cost import Sizes, count_query_work

SHARES = (0.5, 0.1, 0.01, 0.001)  # of the items that a filter allows
FILTERS = ("random", "coordinate", "near", "far")

_TIE = 1e-5  # relative difference of equal distances
_CANCELLED = 1e-6  # the error of 1 - cos


def measure_recall(index: VectorIndex, queries: Any, k: int, filter: Any = None) -> float:
    """Return the share of the k nearest items found, or of equally near ones."""
    sign = -1 if index.metric == "ip" else 1
    true = sign * index.search(queries, k, filter=filter, exact=True).distances
    found = sign * index.search(queries, k, filter=filter).distances
    count = np.isfinite(true).sum(axis=1)
    last = true[np.arange(len(true)), np.maximum(count - 1, 0)]
    slack = _TIE * np.abs(last) + (_CANCELLED if index.metric == "cosine" else 0)
    hits = np.minimum((found <= (last + slack)[:, None]).sum(axis=1), count)
    return float(np.divide(hits, count, out=np.ones(len(hits)), where=count > 0).mean())


def measure_self_hits(index: VectorIndex, rows: NDArray[np.int64]) -> float:
    """Return the share of the items that find themselves, or an item with the same numbers."""
    vectors = index.vectors
    found = index.search(vectors[rows], 1).ids[:, 0]
    return float((vectors[found] == vectors[rows]).all(axis=1).mean())


def measure_work(index: VectorIndex, queries: Any, k: int = 10) -> float:
    """Return the counted nanoseconds of a query."""
    searcher = index._fitted().searcher
    prepared = prepare_vectors(np.ascontiguousarray(queries, dtype=np.float32), index.metric)
    work = searcher.measure(prepared, index.defaults.to_plan(k))[2]
    return float(count_query_work(Sizes.of(searcher.layout), work).mean())


def make_filter(shape: Shape, kind: str, share: float, seed: int = 0) -> NDArray[np.int64]:
    """Return the items that a filter allows.

    "random" ones, those with the largest first "coordinate", those "near" the mean of the queries,
    or those "far" from it.
    """
    count = max(1, round(share * len(shape.base)))
    if kind == "random":
        rng = np.random.default_rng([seed, count])
        return np.sort(rng.choice(len(shape.base), count, replace=False))
    if kind == "coordinate":
        value = -shape.base[:, 0]
    else:
        middle = shape.queries.mean(axis=0)
        value = -shape.base @ middle
        if shape.metric == "l2":
            value = np.square(shape.base - middle).sum(axis=1)
        value = -value if kind == "far" else value
    return np.sort(np.argsort(value, kind="stable")[:count])
