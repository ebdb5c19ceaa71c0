"""Hard negatives for the ranker: the labels of the nearest training rows of each row.

If rows carry many labels, the labels of near rows are easily mistaken for a row's own. Near rows
are found with an inverted index from features to rows. The most common features are left out: they
take the most time and say the least.
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
from irli.labels.features import CsrArrays, to_arrays

_READ = 20_000  # postings read per row on average, at most
_BLOCK = 1024  # rows compared at once


def find_near_labels(
    rows: Sparse, labels: Sparse, among: NDArray[np.int64], threads: int = 1
) -> Sparse:
    """Return the labels of the nearest rows, by cosine, of each row: a CSR of shape (n, L).

    Parameters
    ----------
    rows : CSR of shape (n, D)
    labels : CSR of shape (n, L)
    among : int64 array
        The rows that count as neighbours. A row is never its own neighbour.

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
    position = np.full(n, -1, dtype=np.int64)
    position[among] = np.arange(len(among))
    queries = QueryRows(*to_arrays(rows), position)
    postings = Postings(*_make_postings(rows[among]), *to_arrays(labels[among])[:2])
    found: list[Any] = [None] * -(-n // _BLOCK)

    def vote_block(number: int) -> None:
        first = number * _BLOCK
        found[number] = vote_near_rows(first, min(first + _BLOCK, n), queries, postings, count)

    run_all([partial(vote_block, number) for number in range(len(found))], threads)
    sizes, chosen = (np.concatenate(part) for part in zip(*found, strict=True))
    ones = np.ones(len(chosen), dtype=np.int8)
    return sp.csr_array((ones, chosen, np.concatenate([[0], np.cumsum(sizes)])), shape=(n, count))


def _make_postings(rows: Sparse) -> CsrArrays:
    """Return the postings of rows scaled to unit length: starts (D + 1,), rows and values."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    length = np.sqrt(np.bincount(row, weights=rows.data**2, minlength=rows.shape[0]))
    values = (rows.data / np.where(length > 0, length, 1)[row]).astype(np.float32)
    kept = _find_rare_features(rows)[rows.indices]
    places = (rows.indices[kept], row[kept])
    by_feature = sp.csr_array((values[kept], places), shape=rows.shape[::-1])
    return to_arrays(by_feature)


def _find_rare_features(rows: Sparse) -> NDArray[np.bool_]:
    """Return a mask (D,) of the features that are rare enough to be read."""
    count = np.bincount(rows.indices, minlength=rows.shape[1]).astype(np.float64)
    order = np.argsort(count, kind="stable")
    read = np.cumsum(count[order] ** 2) / max(rows.shape[0], 1)
    rare = np.zeros(len(count), dtype=np.bool_)
    rare[order[read <= _READ]] = True
    return rare
