"""How far the probes of held-out queries must reach to find neighbours, and what that scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 21  # log-probabilities computed at a time

# Returns the log-probabilities (n, R B) of queries (n, d).
Route = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def find_homes(offsets: NDArray[np.int64], items: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the buckets of each item (N, w), as r B + bucket. The last one fills up the row."""
    loads = np.diff(offsets, axis=1).ravel()
    place = np.repeat(np.arange(len(loads), dtype=np.int32), loads)
    order = np.argsort(items, kind="stable")
    counts = np.bincount(items)
    ends = np.cumsum(counts)
    column = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
    homes: NDArray[np.int32] = place[order][(ends - counts)[:, None] + column]
    return homes


def find_threshold(
    route: Route,
    queries: NDArray[np.float32],
    neighbors: NDArray[np.int64],
    homes: NDArray[np.int32],
    width: int,
    recall: float,
) -> float:
    """Return the log-probability of buckets that finds this share of the neighbours (n, w)."""
    reached = [
        logits[np.arange(len(logits))[:, None, None], homes[np.maximum(neighbors[part], 0)]]
        for part, logits in route_blocks(route, queries, width)
    ]
    known = np.concatenate(reached).max(axis=2)[neighbors >= 0]
    return float(np.quantile(known, 1 - recall)) if len(known) else 0.0  # a single item


def count_scanned(
    route: Route, queries: NDArray[np.float32], loads: NDArray[np.int64], threshold: float
) -> float:
    """Return the entries that a query scans on average, down to the threshold."""
    blocks = route_blocks(route, queries, len(loads))
    return float(np.concatenate([(logits >= threshold) @ loads for _, logits in blocks]).mean())


def route_blocks(
    route: Route, queries: NDArray[np.float32], width: int
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield the log-probabilities (n, R B) of a few queries at a time, R B = `width`."""
    step = max(1, _BLOCK // width)
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        yield part, route(queries[part])
