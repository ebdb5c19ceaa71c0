"""Top-k and log-sum-exp of every row of a score matrix, on many threads."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli.base.threads import run_all

SCORES = 1 << 22  # scores in a block of rows, so that the block stays in the cache
_ROWS = 64  # rows for a thread at a time

_MOST = 256  # that kernels look for


def top_k(
    scores: NDArray[np.float32], count: int, threads: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the `count` largest values of each row (n, count), largest first, and their columns.

    Of equal values the first comes first. NaN counts as -infinity. `count` must be at most the
    number of columns.

    Examples
    --------
    >>> values, columns = top_k(np.float32([[1.0, 3.0, 2.0]]), 2, threads=1)
    >>> columns
    array([[1, 2]])
    """
    if count > _MOST:
        known = np.where(np.isnan(scores), -np.inf, scores)
        columns = np.argsort(-known, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(known, columns, axis=1), columns
    rows = len(scores)
    scores = np.ascontiguousarray(scores)
    values = np.empty((rows, count), dtype=np.float32)
    columns = np.empty((rows, count), dtype=np.int64)
    jobs = [
        partial(_native.find_top_k, scores[part], values[part], columns[part])
        for part in _cut(rows)
    ]
    run_all(jobs, threads)
    return values, columns


def log_sum_exps(scores: NDArray[np.float32], threads: int) -> NDArray[np.float32]:
    """Return the log-sum-exp of each row (n, 1).

    Examples
    --------
    >>> np.exp(log_sum_exps(np.zeros((1, 4), dtype=np.float32), threads=1))
    array([[4.]], dtype=float32)
    """
    rows = len(scores)
    sums = np.empty(rows, dtype=np.float32)
    jobs = [partial(_native.log_sum_exps, scores[part], sums[part]) for part in _cut(rows)]
    run_all(jobs, threads)
    return sums[:, None]


def _cut(rows: int) -> list[slice]:
    return [slice(start, start + _ROWS) for start in range(0, rows, _ROWS)]
