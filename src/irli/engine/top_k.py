"""Top-k and log-sum-exp of every row of a score matrix (NumPy), on many threads.

In torch, either of them takes twice as long as the matrix product that makes the scores.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.threads import run_all
from irli.engine.dense import sum_exps
from irli.engine.jit import inner, kernel
from irli.engine.select import find_largest, insert_best, kth_largest
from irli.engine.simd import LANES, lowest_bit, reaching

SCORES = 1 << 22  # scores in a block of rows, so that the block stays in the cache
_GROUPS = 256  # columns j, j + 256, j + 512, ... of a row are a group
_ROWS = 64  # rows for a thread at a time
_BIT = np.uint32(1)

LEAST_COLUMNS, MOST_LARGEST = 4 * _GROUPS, _GROUPS // 2  # within these, `find_top_k` is faster


def find_top_k(
    scores: NDArray[np.float32], count: int, threads: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the `count` largest values of each row (n, count), largest first, and their columns.

    There must be at least `LEAST_COLUMNS` columns, and `count` must be at most `MOST_LARGEST`.
    """
    rows = len(scores)
    values = np.empty((rows, count), dtype=np.float32)
    columns = np.empty((rows, count), dtype=np.int64)
    jobs = [
        partial(_find_top_k, scores[part], values[part], columns[part])
        for part in (slice(start, start + _ROWS) for start in range(0, rows, _ROWS))
    ]
    run_all(jobs, threads)
    return values, columns


def log_sum_exps(scores: NDArray[np.float32], threads: int) -> NDArray[np.float32]:
    """Return the log-sum-exp of each row (n, 1)."""
    sums = np.empty((len(scores), 1), dtype=np.float32)
    jobs = [
        partial(_log_sum_exps, scores[start : start + _ROWS], sums[start : start + _ROWS, 0])
        for start in range(0, len(scores), _ROWS)
    ]
    run_all(jobs, threads)
    return sums


@kernel
def _log_sum_exps(scores: Any, sums: Any) -> None:
    for row in range(len(scores)):
        top = find_largest(scores[row])
        sums[row] = top + np.log(sum_exps(scores[row], top))


@inner
def _find_group_maxima(row: Any, groups: Any) -> None:
    groups[:] = -np.inf
    for start in range(0, len(row), _GROUPS):
        part = row[start : start + _GROUPS]
        for g in range(len(part)):
            groups[g] = part[g] if part[g] > groups[g] else groups[g]


@kernel
def _find_top_k(scores: Any, values: Any, columns: Any) -> None:
    """Write the largest values of each row and their columns.

    The k-th largest of the group maxima is a lower bound that few scores of the row reach.
    """
    count, width = values.shape[1], scores.shape[1]
    groups = np.empty(_GROUPS, dtype=np.float32)
    for row in range(len(scores)):
        _find_group_maxima(scores[row], groups)
        bound = kth_largest(groups, count)
        found = 0
        whole = width // LANES * LANES
        address = scores.ctypes.data + row * scores.strides[0]
        for start in range(0, whole, LANES):
            bits = reaching(address + 4 * start, bound)
            while bits != 0:
                column = np.int64(start + lowest_bit(bits))
                bits &= bits - _BIT
                found = insert_best(values[row], columns[row], found, scores[row, column], column)
        for last in range(whole, width):
            if scores[row, last] >= bound:
                found = insert_best(values[row], columns[row], found, scores[row, last], last)
