"""Searching a layout with the native engine: a batch, one query, or stage by stage."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import PLAIN, SearchPlan, VectorSearcher
from irli.engine.vector_layout import VectorLayout

Allowed = NDArray[np.bool_] | None


def plan(**changes: Any) -> SearchPlan:
    """Return a plan that looks at everything, but for the changes."""
    made = SearchPlan()
    made.k = 5
    if "threshold" in changes:  # of the only level
        changes["thresholds"] = [changes.pop("threshold")]
    for name in sorted(changes, reverse=True):  # thresholds before centroids
        setattr(made, name, changes[name])
    return made


class Answer(NamedTuple):
    """What a batch of queries found, and whether all of them are finite."""

    distances: NDArray[np.float32]
    items: NDArray[np.int64]
    finite: bool
    work: NDArray[np.int64] | None = None  # (n, 8): see `WORK`


def list_rows(allowed: Allowed) -> NDArray[np.int32] | None:
    """Return the allowed rows in ascending order, as kernels read them."""
    return None if allowed is None else np.flatnonzero(allowed).astype(np.int32)


def search(
    searcher: VectorSearcher,
    queries: NDArray[np.float32],
    plan: SearchPlan,
    allowed: Allowed = None,
    ids: NDArray[np.int64] | None = None,
    form: int = PLAIN,
    removed: Allowed = None,
) -> Answer:
    """Search a batch (n, d), called again until its end is reached."""
    shape = len(queries), plan.k
    distances, items = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int64)
    work = np.empty((len(queries), 8), dtype=np.int64)
    reached, count = 0, len(queries)
    rows = list_rows(allowed)
    while 0 <= reached < count:
        reached = searcher.search(
            queries, plan, allowed, rows, removed, ids, form, reached, count, distances, items, work
        )
    return Answer(distances, items, reached >= 0, work)


def search_one(
    searcher: VectorSearcher,
    query: NDArray[np.float32],
    plan: SearchPlan,
    ids: NDArray[np.int64],
    form: int = PLAIN,
) -> Answer:
    """Search one query (d,)."""
    distances, items = np.empty(plan.k, dtype=np.float32), np.empty(plan.k, dtype=np.int64)
    finite = searcher.search_one(query, plan, ids, form, distances, items)
    return Answer(distances, items, finite)


class Stages(NamedTuple):
    """What each stage of a search did for one query."""

    logits: NDArray[np.float32]  # (R, B): log-probabilities of the buckets
    probed: list[tuple[int, int]]  # repetition and bucket
    found: int  # items in the probed buckets, or those that a scan of codes chose
    read: int  # entries of the probed buckets
    candidates: list[int]  # in the order in which they are reranked
    items: NDArray[np.int64]
    distances: NDArray[np.float32]
    votes: NDArray[np.int32]
    chosen: int  # exact distances computed, in both scans of a strange query
    level: float
    exact: bool
    strange: bool


def explain(
    layout: VectorLayout,
    query: NDArray[np.float32],
    plan: SearchPlan,
    allowed: Allowed = None,
    searcher: VectorSearcher | None = None,
    removed: Allowed = None,
) -> Stages:
    """Run the stages for one query (d,)."""
    searcher = VectorSearcher(layout) if searcher is None else searcher
    told = searcher.explain(query.reshape(1, -1), plan, allowed, list_rows(allowed), removed)
    shape = layout.bias.shape
    return Stages(
        logits=told["log_probabilities"].reshape(-1, shape[1]),  # nothing for an exact plan
        probed=[divmod(c, shape[1]) for c in told["probed"].tolist()],
        found=told["found"],
        read=told["read"],
        candidates=told["candidates"].tolist(),
        items=told["items"],
        distances=told["distances"],
        votes=told["votes"],
        chosen=told["chosen"],
        level=told["level"],
        exact=told["exact"],
        strange=told["strange"],
    )
