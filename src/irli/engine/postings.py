"""Kernels that find the nearest rows through inverted lists, and the labels that they vote for.

`irli.labels.hard_negatives` calls them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.engine.jit import inner, kernel
from irli.engine.select import insert_best, keep_best

_NEAREST = 30  # nearest rows that vote for their labels
_VOTED = 300  # labels returned for a row, at most: those with the most votes
_LEAST_VOTE = np.float32(1e-30)  # a vote must not be zero


class QueryRows(NamedTuple):
    """Query rows as a CSR, and the number of the known row that each one is, or -1."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[np.float32]
    known: NDArray[np.int64]


class Postings(NamedTuple):
    """The inverted lists of the known rows by feature, and the labels of each row as a CSR."""

    starts: NDArray[Any]  # (D + 1,)
    rows: NDArray[Any]
    values: NDArray[np.float32]
    label_starts: NDArray[Any]  # (known rows + 1,)
    labels: NDArray[Any]


@kernel
def vote_near_rows(
    first: int, last: int, queries: QueryRows, known: Postings, count: int
) -> tuple[Any, Any]:
    """Return the number of labels found for each row from `first` to `last`, and the labels."""
    similar = np.zeros(len(known.label_starts) - 1, np.float32)
    nearest, nearness = np.empty(_NEAREST, np.int64), np.empty(_NEAREST, np.float32)
    votes, order = np.zeros(count, np.float32), np.empty(count, np.float32)
    voted = np.empty(count + 1, np.int32)  # one more: a label is written before it is counted
    sizes, chosen, filled = np.empty(last - first, np.int64), np.empty(1024, np.int32), 0
    for i in range(first, last):
        part = slice(queries.indptr[i], queries.indptr[i + 1])
        near = _find_nearest(
            queries.indices[part],
            queries.data[part],
            queries.known[i],
            known,
            similar,
            nearest,
            nearness,
        )
        found = 0
        for r in range(near):
            for e in range(known.label_starts[nearest[r]], known.label_starts[nearest[r] + 1]):
                label = np.uint32(known.labels[e])
                voted[found] = label
                found += votes[label] == 0
                votes[label] += max(nearness[r], _LEAST_VOTE)
        all_voted = voted[:found].copy()
        kept = keep_best(voted, found, _VOTED, votes, order)
        for label in all_voted:
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
    """List the known rows most similar to a row, nearest first, without `itself`.

    `similar` must hold zeros, and holds zeros again afterwards. Returns the number of rows.
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
            similar[row] = 0  # so that each row is considered only once
            if 0 < value < np.inf and row != itself:
                count = insert_best(nearness, nearest, count, value, np.int64(row))
    return count
