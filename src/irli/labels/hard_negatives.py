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

from irli.base.threads import run_all
from irli.base.types import Sparse
from irli.engine.postings import Postings, QueryRows, vote_near_rows

_READ = 20_000  # postings that a row reads on average, at most
_BLOCK = 1024


def find_near_labels(
    rows: Sparse, labels: Sparse, among: NDArray[np.int64], threads: int = 1
) -> Sparse:
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
    >>> find_near_labels(rows, labels, np.arange(3)).toarray()
    array([[0, 1],
           [1, 0],
           [0, 0]], dtype=int8)
    """
    n, count = labels.shape
    own = np.full(n, -1, dtype=np.int64)
    own[among] = np.arange(len(among))
    asked = QueryRows(rows.indptr, rows.indices, rows.data, own)
    kept = labels[among]
    known = Postings(*_make_postings(rows[among]), kept.indptr, kept.indices)
    found: list[Any] = [None] * -(-n // _BLOCK)

    def block(number: int) -> None:
        first = number * _BLOCK
        found[number] = vote_near_rows(first, min(first + _BLOCK, n), asked, known, count)

    run_all([partial(block, number) for number in range(len(found))], threads)
    sizes, chosen = (np.concatenate(part) for part in zip(*found, strict=True))
    ones = np.ones(len(chosen), dtype=np.int8)
    return sp.csr_array((ones, chosen, np.concatenate([[0], np.cumsum(sizes)])), shape=(n, count))


def _make_postings(rows: Sparse) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """Return rows (n, D) of length 1 by feature: where each starts, the rows and the values."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    length = np.sqrt(np.bincount(row, weights=rows.data**2, minlength=rows.shape[0]))
    values = (rows.data / np.where(length > 0, length, 1)[row]).astype(np.float32)
    kept = _find_rare_features(rows)[rows.indices]
    places = (rows.indices[kept], row[kept])
    by_feature = sp.csr_array((values[kept], places), shape=rows.shape[::-1])
    return by_feature.indptr, by_feature.indices, by_feature.data


def _find_rare_features(rows: Sparse) -> NDArray[np.bool_]:
    """Return which features (D,) are rare enough to be read."""
    count = np.bincount(rows.indices, minlength=rows.shape[1]).astype(np.float64)
    order = np.argsort(count, kind="stable")
    read = np.cumsum(count[order] ** 2) / max(rows.shape[0], 1)
    rare = np.zeros(len(count), dtype=np.bool_)
    rare[order[read <= _READ]] = True
    return rare
