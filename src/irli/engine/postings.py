"""Near rows through postings, compiled: which labels the nearest rows of a row carry.

The Python side is `irli.labels.hard_negatives`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.engine.jit import inner, kernel
from irli.engine.select import insert_best, keep_best

_NEAREST = 30  # rows that vote for their labels
_VOTED = 300  # labels with the most votes that are taken
_LEAST = np.float32(1e-30)  # a vote is never zero


class QueryRows(NamedTuple):
    """Rows as a CSR, and which of the known rows each is, or -1."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[np.float32]
    known: NDArray[np.int64]


class Postings(NamedTuple):
    """Known rows by feature, and the labels of each as a CSR."""

    starts: NDArray[Any]  # (D + 1,)
    rows: NDArray[Any]
    values: NDArray[np.float32]
    label_starts: NDArray[Any]  # (known rows + 1,)
    labels: NDArray[Any]


@kernel
def vote_near_rows(
    first: int, last: int, asked: QueryRows, known: Postings, count: int
) -> tuple[Any, Any]:
    """Return how many labels the rows from `first` to `last` get from near rows, and which."""
    similar = np.zeros(len(known.label_starts) - 1, np.float32)
    nearest, nearness = np.empty(_NEAREST, np.int64), np.empty(_NEAREST, np.float32)
    votes, order = np.zeros(count, np.float32), np.empty(count, np.float32)
    voted = np.empty(count + 1, np.int32)  # room for one that is written before it is counted
    sizes, chosen, filled = np.empty(last - first, np.int64), np.empty(1024, np.int32), 0
    for i in range(first, last):
        part = slice(asked.indptr[i], asked.indptr[i + 1])
        near = _find_nearest(
            asked.indices[part], asked.data[part], asked.known[i], known, similar, nearest, nearness
        )
        found = 0
        for r in range(near):
            for e in range(known.label_starts[nearest[r]], known.label_starts[nearest[r] + 1]):
                label = np.uint32(known.labels[e])
                voted[found] = label
                found += votes[label] == 0
                votes[label] += max(nearness[r], _LEAST)
        everyone = voted[:found].copy()
        kept = keep_best(voted, found, _VOTED, votes, order)
        for label in everyone:
            votes[label] = 0
        if filled + kept > len(chosen):
            larger = np.empty(2 * (filled + kept), np.int32)
            larger[:filled] = chosen[:filled]
            chosen = larger
        for v in range(kept):
            chosen[filled + v] = voted[v]
        sizes[i - first] = kept
        filled += kept
    return sizes, chosen[:filled]


@inner
def _find_nearest(
    indices: Any,
    data: Any,
    itself: int,
    known: Postings,
    similar: Any,
    nearest: Any,
    nearness: Any,
) -> int:
    """List the known rows most like a row, nearest first, without `itself`; return how many.

    `similar` holds zeros, before and after.
    """
    starts, rows, values = known.starts, known.rows, known.values
    for e in range(len(indices)):
        value = data[e]
        for p in range(starts[indices[e]], starts[indices[e] + 1]):
            similar[np.uint32(rows[p])] += value * values[p]
    count = 0
    for e in range(len(indices)):
        for p in range(starts[indices[e]], starts[indices[e] + 1]):
            row = np.uint32(rows[p])
            value = similar[row]
            similar[row] = 0  # so that each is looked at once
            if 0 < value < np.inf and row != itself:
                count = insert_best(nearness, nearest, count, value, np.int64(row))
    return count
