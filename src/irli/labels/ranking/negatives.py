"""Hard negatives: the labels that a ranker must learn to tell from a row's own.

They come from every source: what the routers propose for a row, the labels of near rows, random
rows for each label, and labels that a first ranker itself puts among the best. With the last two a
ranker can be asked about all labels, not only about those that the routers propose.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.threads import run_all
from irli.base.types import Sparse
from irli.engine.linear import find_best_outputs
from irli.labels.build.features import to_arrays
from irli.labels.ranking.near_rows import find_near_labels
from irli.labels.ranking.ranker import Ranker

_RANDOM = 100  # rows drawn for each label
_MINED = 50  # labels that a ranker puts first in a row
_MOST = 20_000_000  # negatives of one source, in all
_LEAST = 10  # of them for a row
_BLOCK = 8192  # rows ranked at once


def gather_negatives(
    rows: Sparse,
    labels: Sparse,
    proposed: Sparse,
    among: NDArray[np.int64],
    seed: int,
    threads: int,
) -> Sparse:
    """Return the negatives of each row, before mining: a CSR of shape (n, L).

    Parameters
    ----------
    rows, labels : CSRs of shape (n, D) and (n, L)
    proposed : CSR of shape (n, L)
        What the routers propose.
    among : int64 array
        The rows that count as near ones.
    """
    near = find_near_labels(rows, labels, among, _limit(300, rows.shape[0]), threads)
    return join(proposed, near, draw_negatives(labels, seed))


def mine_negatives(ranker: Ranker, rows: Sparse, negatives: Sparse, threads: int) -> Sparse:
    """Return the negatives with those labels that the ranker puts first in a row."""
    n, count = negatives.shape
    width = min(_limit(_MINED, n), count)
    arrays = to_arrays(rows)
    found: list[Any] = [None] * -(-n // _BLOCK)

    def rank_block(number: int) -> None:
        first = number * _BLOCK
        last = min(first + _BLOCK, n)
        best = find_best_outputs(first, last, arrays, ranker.packed, width, bias=ranker.bias)[1]
        found[number] = as_pattern(best, count)  # now: it takes a third of the memory

    run_all([partial(rank_block, number) for number in range(len(found))], threads)
    return join(negatives, sp.csr_array(sp.vstack(found)))


def as_pattern(found: NDArray[np.int64], count: int) -> Sparse:
    """Return the labels found (n, k), padded with -1, as a CSR of ones (n, count).

    Examples
    --------
    >>> as_pattern(np.array([[2, 0], [1, -1]]), 3).toarray()
    array([[1, 0, 1],
           [0, 1, 0]], dtype=int8)
    """
    there = found >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    columns = found[there].astype(np.int32)
    ones = np.ones(len(columns), dtype=np.int8)
    pattern: Sparse = sp.csr_array((ones, columns, starts), shape=(len(found), count))
    pattern.sort_indices()
    return pattern


def join(*parts: Sparse) -> Sparse:
    """Return a CSR of ones where any of the parts has one."""
    whole = parts[0]
    for part in parts[1:]:
        whole = sp.csr_array(whole + part)
        whole.data = np.ones(whole.nnz, dtype=np.int8)  # sums of bytes would overflow
    return whole


def keep_rows(matrix: Sparse, rows: NDArray[np.int64]) -> Sparse:
    """Return a CSR with the entries of some rows; the others are empty.

    Examples
    --------
    >>> keep_rows(as_pattern(np.array([[2], [0], [1]]), 3), np.array([0, 2])).toarray()
    array([[0, 0, 1],
           [0, 0, 0],
           [0, 1, 0]], dtype=int8)
    """
    kept = np.zeros(matrix.shape[0], dtype=np.bool_)
    kept[rows] = True
    lengths = np.diff(matrix.indptr)
    there = np.repeat(kept, lengths)
    starts = np.concatenate([[0], np.cumsum(np.where(kept, lengths, 0))])
    return sp.csr_array((matrix.data[there], matrix.indices[there], starts), shape=matrix.shape)


def keep_labels(matrix: Sparse, labels: NDArray[np.bool_]) -> Sparse:
    """Return a CSR with the entries of some labels, a mask (L,).

    Examples
    --------
    >>> pattern = as_pattern(np.array([[2, 0], [1, 0]]), 3)
    >>> keep_labels(pattern, np.array([True, False, False])).toarray()
    array([[1, 0, 0],
           [1, 0, 0]], dtype=int8)
    """
    there = labels[matrix.indices]
    starts = np.concatenate([[0], np.cumsum(there)])[matrix.indptr]
    return sp.csr_array((matrix.data[there], matrix.indices[there], starts), shape=matrix.shape)


def draw_negatives(labels: Sparse, seed: int) -> Sparse:
    """Draw random rows for each label: a CSR of ones (n, L)."""
    n, count = labels.shape
    each = min(_limit(_RANDOM, count), n)
    rng = np.random.default_rng([seed, 0x9E])
    drawn = rng.integers(n, size=(count, each))
    return sp.csr_array(as_pattern(drawn, n).T)


def _limit(wanted: int, rows: int) -> int:
    """Return how many negatives each of so many rows may have."""
    return min(wanted, max(_LEAST, _MOST // max(rows, 1)))
