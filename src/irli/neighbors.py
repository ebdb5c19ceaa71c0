"""Exact nearest neighbours by exhaustive search: the relevance that vectors are trained with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.checks import check_int
from irli.kernels import kernel
from irli.progress import Progress, track

_BLOCK_BYTES = 128 << 20  # the scores of one block of queries against the whole base


def exact_neighbors(
    queries: NDArray[np.float32],
    base: NDArray[np.float32],
    k: int,
    metric: str = "l2",
    *,
    rows: NDArray[np.int64] | None = None,
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
    found = np.empty((len(queries), check_int("k", k, at_least=1)), dtype=np.int64)
    if rows is None:
        rows = np.full(len(queries), -1)
    # argmax of q x - |x|^2 / 2 is argmin of |q - x|^2
    penalty = np.zeros(len(base), dtype=np.float32)
    if metric == "l2":
        np.einsum("ij,ij->i", base, base, out=penalty)
        penalty /= 2
    step = max(1, _BLOCK_BYTES // (4 * len(base)))
    scores = np.empty((min(step, len(queries)), len(base)), dtype=np.float32)
    for start in track(range(0, len(queries), step), progress, "exact neighbours"):
        block = queries[start : start + step]
        np.matmul(block, base.T, out=scores[: len(block)])
        end = start + len(block)
        _best_of_rows(scores[: len(block)], penalty, rows[start:end], found[start:end])
    return found


@kernel
def _best_of_rows(scores: Any, penalty: Any, skip: Any, found: Any) -> None:
    """Write the columns of the largest scores of each row, largest first; ties by column."""
    k = found.shape[1]
    value = np.empty(k, dtype=np.float32)
    for row in range(len(scores)):
        value[:] = -np.inf
        found[row] = -1
        weakest = value[k - 1]
        for item in range(scores.shape[1]):
            score = scores[row, item] - penalty[item]
            if score > weakest and item != skip[row]:
                place = k - 1
                while place > 0 and value[place - 1] < score:
                    value[place] = value[place - 1]
                    found[row, place] = found[row, place - 1]
                    place -= 1
                value[place] = score
                found[row, place] = item
                weakest = value[k - 1]
