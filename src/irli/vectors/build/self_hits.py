"""Phase 4, add_self_hits: an item that its own query would miss gets one more bucket.

Affinity places an item where the queries of its neighbours go. An item that is nobody's neighbour
may end up in a bucket that its own query does not probe. Then a search for it finds others. Such
items also get one of the buckets that their own query probes first, the best that has room. They
are few where routers know the data, since the threshold is one that finds most neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.memory import release_pages
from irli.engine.vector_layout import VectorLayout
from irli.vectors.build.ground_truth import GroundTruth
from irli.vectors.build.thresholds import Route, find_homes, find_threshold, route_blocks
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Searcher

log = get_logger(__name__)

_RECALL = 0.8  # no search is tuned to less, as a rule
_CHOICES = 8  # buckets that an item tries
_SLACK = 2.0  # times the mean load, which a bucket may reach


def add_self_hits(
    layout: VectorLayout, metric: str, truth: GroundTruth
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return offsets (R, B + 1) and items of the buckets in which every item finds itself.

    The layout needs no codes. With inner products, other items may be nearer than the item itself.
    Then nothing is changed.
    """
    if metric == "ip" or layout.bias.shape[1] == 1:  # one bucket holds all
        return layout.offsets, layout.items
    searcher = Searcher(layout)

    def route(queries: NDArray[np.float32]) -> NDArray[np.float32]:
        return searcher.route(queries).reshape(len(queries), -1)

    homes = find_homes(layout.offsets, layout.items)
    threshold = find_threshold(
        route, truth.queries, truth.neighbors, homes, layout.bias.size, _RECALL
    )
    missed, first, lead = _list_missed(route, layout, homes, threshold)
    parameters = SearchParameters(threshold=float(np.exp(threshold)))
    items = np.ascontiguousarray(layout.vectors[missed])
    found = searcher.search(items, parameters.to_plan(1))[1][:, 0]
    equal = (layout.vectors[found] == items).all(axis=1)  # a duplicate will do
    missed, first, lead = missed[~equal], first[~equal], lead[~equal]
    order = np.argsort(-lead, kind="stable")  # the others have more buckets to go to
    missed, first = missed[order], first[order]
    missed, chosen = _choose_buckets(layout, missed, first, homes[missed])
    log.info("self-hits: %d of %d items get one more bucket", len(missed), len(layout.vectors))
    return _add_entries(layout, missed, chosen)


def _list_missed(
    route: Route, layout: VectorLayout, homes: NDArray[np.int32], threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the items that no probed bucket of theirs holds.

    Also their best buckets of repetition 0, and how far the first of these is ahead.
    """
    repetitions, buckets = layout.bias.shape
    missed, first, lead = [], [], []
    for part, logits in route_blocks(route, layout.vectors, layout.bias.size):
        own = homes[part]
        tops = logits.reshape(-1, repetitions, buckets).max(axis=2)
        reach = np.take_along_axis(logits, own, axis=1)
        top = np.take_along_axis(tops, own // buckets, axis=1)
        rows = np.flatnonzero(~((reach >= threshold) | (reach >= top)).any(axis=1))
        missed.append(part.start + rows)
        ranked = _rank_buckets(logits[rows, :buckets])
        first.append(ranked)
        lead.append(logits[rows, ranked[:, 0]] - logits[rows, ranked[:, 1]])
        release_pages(layout.vectors)
    return np.concatenate(missed), np.concatenate(first), np.concatenate(lead)


def _rank_buckets(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the best buckets (n, c) of each row, best first."""
    count = min(_CHOICES, logits.shape[1])
    best = np.argpartition(-logits, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(logits, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def _choose_buckets(
    layout: VectorLayout,
    items: NDArray[np.int64],
    ranked: NDArray[np.int64],
    homes: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the items that find room, and the best other bucket with room for each of them."""
    loads = np.diff(layout.offsets[0])
    room = np.maximum(0, np.ceil(_SLACK * loads.mean()).astype(np.int64) - loads)
    chosen = np.full(len(items), -1, dtype=np.int64)
    for i, buckets in enumerate(ranked):
        free = buckets[(room[buckets] > 0) & ~np.isin(buckets, homes[i])]
        if len(free):
            chosen[i] = free[0]
            room[free[0]] -= 1
    return items[chosen >= 0], chosen[chosen >= 0]


def _add_entries(
    layout: VectorLayout, items: NDArray[np.int64], buckets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return offsets and items with one more entry for each of `items`, in repetition 0."""
    order = np.argsort(buckets, kind="stable")
    ends = layout.offsets[0, 1:][buckets[order]]
    entries = np.insert(layout.items, ends, items[order].astype(np.int32))
    offsets = layout.offsets + len(items)
    more = np.bincount(buckets, minlength=layout.bias.shape[1])
    offsets[0] = layout.offsets[0] + np.concatenate([[0], np.cumsum(more)])
    return offsets, entries
