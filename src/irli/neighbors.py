"""Exact nearest neighbours by exhaustive search: the relevance that vectors are trained with."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from irli.checks import check_int
from irli.compiled import kernel
from irli.progress import Progress, track
from irli.threads import run_all, thread_count

# The scores of a tile stay in the cache between the product and the selection.
_QUERIES, _ITEMS = 512, 4096


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
    """Return the k nearest of `base` for each query, nearest first.

    Parameters
    ----------
    queries : float32 array of shape (n, d)
    base : float32 array of shape (N, d)
    metric : {"l2", "ip", "cosine"}
        For "cosine" both sides must be normalised.
    rows : int64 array of shape (n,), optional
        The row of `base` that is the query itself and is left out, -1 for none.
    threads : int, optional
        Blocks of queries that are worked on at a time.

    Returns
    -------
    int64 array of shape (n, k)
        -1 where there are fewer than k.

    Examples
    --------
    >>> base = np.array([[0.0], [1.0], [3.0]], dtype=np.float32)
    >>> exact_neighbors(base, base, k=1, rows=np.arange(3))
    array([[1],
           [0],
           [1]])
    """
    found = np.full((len(queries), check_int("k", k, at_least=1)), -1)
    if rows is None:
        rows = np.full(len(queries), -1)
    # argmax of q x - |x|^2 / 2 is argmin of |q - x|^2
    penalty = np.zeros(len(base), dtype=np.float32)
    if metric == "l2":
        np.einsum("ij,ij->i", base, base, out=penalty)
        penalty /= 2
    parts = [slice(start, start + _QUERIES) for start in range(0, len(queries), _QUERIES)]
    threads = thread_count(threads)
    with threadpool_limits(1, user_api="blas"):  # a block for each thread, not threads for a block
        for first in track(range(0, len(parts), threads), progress, "exact neighbours"):
            jobs = [
                partial(_find, queries[part], base, penalty, rows[part], found[part])
                for part in parts[first : first + threads]
            ]
            run_all(jobs, threads)
    return found


def _find(block: Any, base: Any, penalty: Any, skip: Any, found: Any) -> None:
    """Fill `found` with the nearest of each query of a block, tile by tile of the base."""
    value = np.full(found.shape, -np.inf, dtype=np.float32)
    for low in range(0, len(base), _ITEMS):
        scores = block @ base[low : low + _ITEMS].T
        _keep_best(scores, penalty[low : low + _ITEMS], low, skip, value, found)


@kernel
def _keep_best(scores: Any, penalty: Any, low: int, skip: Any, value: Any, found: Any) -> None:
    """Put the largest scores of each row among the best so far, largest first; ties by column."""
    last = found.shape[1] - 1
    for row in range(len(scores)):
        weakest = value[row, last]
        for column in range(scores.shape[1]):
            score = scores[row, column] - penalty[column]
            if score > weakest and low + column != skip[row]:
                place = last
                while place > 0 and value[row, place - 1] < score:
                    value[row, place] = value[row, place - 1]
                    found[row, place] = found[row, place - 1]
                    place -= 1
                value[row, place] = score
                found[row, place] = low + column
                weakest = value[row, last]
