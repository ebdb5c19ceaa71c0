"""How far the probes of held-out queries must reach to find neighbours, and what that scans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.engine.exact import exact_neighbors
from irli.engine.vector_layout import VectorLayout
from irli.vectors.build.held_out import HeldOut
from irli.vectors.searcher import Searcher

_WIDTH = 10  # neighbours of a held-out query
_BLOCK = 1 << 21  # log-probabilities computed at a time


def find_homes(layout: VectorLayout) -> NDArray[np.int32]:
    """Return the buckets of each item (N, w), as r B + bucket. The last one fills up the row."""
    repetitions, buckets = layout.bias.shape
    loads = np.diff(layout.offsets, axis=1).ravel()
    place = np.repeat(np.arange(repetitions * buckets, dtype=np.int32), loads)
    order = np.argsort(layout.items, kind="stable")
    counts = np.bincount(layout.items, minlength=len(layout.vectors))
    ends = np.cumsum(counts)
    column = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
    homes: NDArray[np.int32] = place[order][(ends - counts)[:, None] + column]
    return homes


def find_truth(layout: VectorLayout, metric: str, held: HeldOut) -> NDArray[np.int64]:
    """Return the nearest items of the held-out queries (n, 10), padded with -1."""
    width = min(_WIDTH, max(1, len(layout.vectors) - 1))
    return exact_neighbors(held.queries, layout.vectors, width, metric, rows=held.rows)


def find_threshold(
    searcher: Searcher,
    homes: NDArray[np.int32],
    held: HeldOut,
    truth: NDArray[np.int64],
    recall: float,
) -> float:
    """Return the log-probability of buckets that finds this share of the true neighbours."""
    reach = [
        logits[np.arange(len(logits))[:, None, None], homes[np.maximum(rows, 0)]].max(axis=2)
        for logits, rows in zip(
            route(searcher, held.queries), split_rows(searcher, truth), strict=True
        )
    ]
    known = np.concatenate(reach)[truth >= 0]
    return float(np.quantile(known, 1 - recall)) if len(known) else 0.0  # a single item


def count_scanned(searcher: Searcher, held: HeldOut, threshold: float) -> float:
    """Return the entries that a held-out query scans on average, down to the threshold."""
    loads = np.diff(searcher.layout.offsets, axis=1).ravel()
    scanned = [(logits >= threshold) @ loads for logits in route(searcher, held.queries)]
    return float(np.concatenate(scanned).mean())


def split_rows(searcher: Searcher, rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Return blocks of rows, as `route` makes them."""
    step = max(1, _BLOCK // searcher.layout.bias.size)
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def route(searcher: Searcher, queries: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yield the log-probabilities (n, R B) of a few queries at a time."""
    for part in split_rows(searcher, queries):
        yield searcher.route(part).reshape(len(part), -1)
