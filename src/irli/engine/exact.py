"""Exact nearest neighbours by exhaustive search, for ground truth and training relevance."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from irli import _native
from irli.base.checks import check_int
from irli.base.progress import Progress, track
from irli.base.threads import run_all, thread_count

# The size of a tile. Its scores stay in the cache between the product and the selection.
_QUERIES, _ITEMS = 512, 2048


def exact_neighbors(
    queries: NDArray[np.float32],
    base: NDArray[np.float32],
    k: int,
    metric: str = "l2",
    *,
    rows: NDArray[np.int64] | None = None,
    threads: int | None = None,
    progress: Progress = False,
) -> NDArray[np.int64]:
    """Return the k nearest rows of `base` for each query, nearest first.

    Parameters
    ----------
    queries : float32 array of shape (n, d)
    base : float32 array of shape (N, d)
    metric : {"l2", "ip", "cosine"}
        For "cosine", both queries and base must be normalized.
    rows : int64 array of shape (n,), optional
        The row of `base` that is the query itself, or -1. It is left out.
    threads : int, optional
        How many blocks of queries run at the same time.

    Returns
    -------
    int64 array of shape (n, k)
        Rows of `base`, padded with -1 if there are fewer than k.

    Examples
    --------
    >>> base = np.array([[0.0], [1.0], [3.0]], dtype=np.float32)
    >>> exact_neighbors(base, base, k=1, rows=np.arange(3))
    array([[1],
           [0],
           [1]])
    """
    found = np.full((len(queries), check_int("k", k, at_least=1)), -1, dtype=np.int64)
    if rows is None:
        rows = np.full(len(queries), -1, dtype=np.int64)
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    offset = np.zeros(len(base), dtype=np.float32)
    if metric == "l2":  # argmax of q x - |x|^2 / 2 is argmin of |q - x|^2
        np.einsum("ij,ij->i", base, base, out=offset)
        offset /= -2
    parts = [slice(start, start + _QUERIES) for start in range(0, len(queries), _QUERIES)]
    threads = thread_count(threads)
    with threadpool_limits(1, user_api="blas"):  # each thread has its own block
        for first in track(range(0, len(parts), threads), progress, "exact neighbours"):
            jobs = [
                partial(_search_tiles, queries[part], base, offset, rows[part], found[part])
                for part in parts[first : first + threads]
            ]
            run_all(jobs, threads)
    return found


def _search_tiles(queries: Any, base: Any, offset: Any, skip: Any, found: Any) -> None:
    """Fill `found` with the nearest rows for a block of queries, one tile of the base at a time."""
    count, dim = queries.shape
    width = min(_ITEMS, len(base))
    block = np.ones((count, dim + 1), dtype=np.float32)  # the last column adds the offset
    block[:, :dim] = queries
    tile = np.zeros((width, dim + 1), dtype=np.float32)
    scores = np.empty((count, width), dtype=np.float32)
    value = np.full(found.shape, -np.inf, dtype=np.float32)
    for low in range(0, len(base), _ITEMS):
        part = base[low : low + width]
        tile[: len(part), :dim] = part
        tile[: len(part), dim] = offset[low : low + width]
        tile[len(part) :, dim] = -np.inf
        np.matmul(block, tile.T, out=scores)
        _native.merge_best(scores, low, skip, value, found)
