"""Near rows: the labels of the training rows that are most like a row, as lessons for the ranker.

Where rows carry many labels, what near rows carry is easily taken for a row's own. Rows are
compared through their postings by feature, without the commonest features: these take the most time
and tell the least.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.compiled import inner, kernel, kth_largest
from irli.problem import Sparse
from irli.threads import run_all

_NEAREST = 30  # rows that vote for their labels
_VOTED = 300  # labels of the most votes, that are taken
_READ = 20_000  # postings that a row reads on average, at most
_BLOCK = 1024
_LEAST = np.float32(1e-30)  # a vote is never nothing


def near_labels(rows: Sparse, labels: Sparse, among: NDArray[np.int64], threads: int = 1) -> Sparse:
    """Return which labels the nearest rows of each row carry (n, L), by cosine.

    Parameters
    ----------
    rows : CSR of shape (n, D)
    labels : CSR of shape (n, L)
    among : int64 array
        The rows that may be near; a row is not near to itself.

    Examples
    --------
    >>> rows = sp.csr_array(np.array([[1, 1, 0], [2, 1, 0], [0, 0, 1]], dtype="f4"))
    >>> labels = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> near_labels(rows, labels, np.arange(3)).toarray()
    array([[0, 1],
           [1, 0],
           [0, 0]], dtype=int8)
    """
    n, count = labels.shape
    own = np.full(n, -1, dtype=np.int64)
    own[among] = np.arange(len(among))
    asked = (rows.indptr, rows.indices, rows.data, own)
    kept = labels[among]
    known = (*_postings(rows[among]), kept.indptr, kept.indices)
    found: list[Any] = [None] * -(-n // _BLOCK)

    def block(number: int) -> None:
        first = number * _BLOCK
        found[number] = _vote_all(first, min(first + _BLOCK, n), asked, known, count)

    run_all([partial(block, number) for number in range(len(found))], threads)
    sizes, chosen = (np.concatenate(part) for part in zip(*found, strict=True))
    ones = np.ones(len(chosen), dtype=np.int8)
    return sp.csr_array((ones, chosen, np.concatenate([[0], np.cumsum(sizes)])), shape=(n, count))


def _postings(rows: Sparse) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """Return rows (n, D) of length 1 by feature: where each starts, the rows and the values."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    length = np.sqrt(np.bincount(row, weights=rows.data**2, minlength=rows.shape[0]))
    values = (rows.data / np.where(length > 0, length, 1)[row]).astype(np.float32)
    told = _telling(rows)[rows.indices]
    places = (rows.indices[told], row[told])
    by_feature = sp.csr_array((values[told], places), shape=rows.shape[::-1])
    return by_feature.indptr, by_feature.indices, by_feature.data


def _telling(rows: Sparse) -> NDArray[np.bool_]:
    """Return which features (D,) are rare enough to be read."""
    count = np.bincount(rows.indices, minlength=rows.shape[1]).astype(np.float64)
    order = np.argsort(count, kind="stable")
    read = np.cumsum(count[order] ** 2) / max(rows.shape[0], 1)
    telling = np.zeros(len(count), dtype=np.bool_)
    telling[order[read <= _READ]] = True
    return telling


@kernel
def _vote_all(first: int, last: int, asked: Any, known: Any, count: int) -> tuple[Any, Any]:
    """Return how many labels the rows from `first` to `last` get from near rows, and which."""
    indptr, indices, data, own = asked
    carried, labels = known[3], known[4]
    similar = np.zeros(len(carried) - 1, np.float32)
    nearest, nearness = np.empty(_NEAREST, np.int64), np.empty(_NEAREST, np.float32)
    votes, order = np.zeros(count, np.float32), np.empty(count, np.float32)
    voted = np.empty(count + 1, np.int32)  # room for one that is written before it is counted
    sizes, chosen, filled = np.empty(last - first, np.int64), np.empty(1024, np.int32), 0
    for i in range(first, last):
        part = slice(indptr[i], indptr[i + 1])
        near = _nearest(indices[part], data[part], own[i], known, similar, nearest, nearness)
        found = 0
        for r in range(near):
            for e in range(carried[nearest[r]], carried[nearest[r] + 1]):
                label = np.uint32(labels[e])
                voted[found] = label
                found += votes[label] == 0
                votes[label] += max(nearness[r], _LEAST)
        kept = _most(votes, voted, found, order)
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
def _nearest(
    indices: Any, data: Any, own: int, known: Any, similar: Any, nearest: Any, nearness: Any
) -> int:
    """List the rows most like a row, nearest first, without its `own`; return how many.

    `similar` holds zeros, before and after.
    """
    starts, rows, values, _, _ = known
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
            if not 0 < value < np.inf or row == own:
                continue
            if count == _NEAREST and not _before(value, row, nearness, nearest, count - 1):
                continue
            place = min(count, _NEAREST - 1)
            while place > 0 and _before(value, row, nearness, nearest, place - 1):
                nearness[place], nearest[place] = nearness[place - 1], nearest[place - 1]
                place -= 1
            nearness[place], nearest[place] = value, row
            count = min(count + 1, _NEAREST)
    return count


@inner
def _before(value: Any, row: Any, nearness: Any, nearest: Any, place: int) -> bool:
    """Whether a row is nearer than the one listed at `place`; of equals, the smaller number."""
    if value != nearness[place]:
        return bool(value > nearness[place])
    return bool(row < nearest[place])


@inner
def _most(votes: Any, voted: Any, found: int, order: Any) -> int:
    """Keep the labels with the most votes, of equals those of the nearer rows; clear all votes."""
    cut, ties = np.float32(0.0), 0
    if found > _VOTED:
        for v in range(found):
            order[v] = votes[voted[v]]
        cut, ties = kth_largest(order[:found], _VOTED), _VOTED
        for v in range(found):
            ties -= votes[voted[v]] > cut
    kept = 0
    for v in range(found):
        label = voted[v]
        equal = votes[label] == cut
        if votes[label] > cut or (equal and ties > 0):
            ties -= equal
            voted[kept] = label
            kept += 1
        votes[label] = 0
    return kept
