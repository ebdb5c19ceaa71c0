"""Rows of scores: the largest of each, and the sum of their exponentials.

What torch does for both takes twice as long as the product that the scores come from.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from irli.compiled import inner, kernel, kth_largest
from irli.lanes import LANES, lowest_bit, reaching
from irli.routing import largest as largest_of
from irli.routing import sum_of_exps
from irli.threads import run_all

SCORES = 1 << 22  # of a block of rows: they stay in the cache
_GROUPS = 256  # columns j, j + 256, j + 512, ... of a row are a group
_MOST = _GROUPS // 2  # of the largest that the groups help to find
_PART = 64  # rows for a thread at a time
_BIT = np.uint32(1)


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each row (n, count), largest first, and their columns.

    Examples
    --------
    >>> values, columns = largest(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    >>> columns
    tensor([[1, 2]])
    """
    rows, width = scores.shape
    if scores.device.type != "cpu" or count > _MOST or width < 4 * _GROUPS:
        return torch.topk(scores, count, dim=1)
    values = np.empty((rows, count), dtype=np.float32)
    columns = np.empty((rows, count), dtype=np.int64)
    table = scores.contiguous().numpy()
    jobs = [
        partial(_find, table[part], values[part], columns[part])
        for part in (slice(start, start + _PART) for start in range(0, rows, _PART))
    ]
    run_all(jobs, torch.get_num_threads())
    return torch.from_numpy(values), torch.from_numpy(columns)


def log_sums(scores: Tensor) -> Tensor:
    """Return the logarithm of the sum of the exponentials of each row (n, 1).

    Examples
    --------
    >>> log_sums(torch.zeros(1, 4)).exp()
    tensor([[4.]])
    """
    if scores.device.type != "cpu":
        return torch.logsumexp(scores, dim=1, keepdim=True)
    sums = np.empty((len(scores), 1), dtype=np.float32)
    table = scores.contiguous().numpy()
    jobs = [
        partial(_add_up, table[start : start + _PART], sums[start : start + _PART, 0])
        for start in range(0, len(scores), _PART)
    ]
    run_all(jobs, torch.get_num_threads())
    return torch.from_numpy(sums)


@kernel
def _add_up(scores: Any, sums: Any) -> None:
    for row in range(len(scores)):
        top = largest_of(scores[row])
        sums[row] = top + np.log(sum_of_exps(scores[row], top))


@inner
def _group(row: Any, groups: Any) -> None:
    """Write the largest of each group of a row."""
    groups[:] = -np.inf
    for start in range(0, len(row), _GROUPS):
        part = row[start : start + _GROUPS]
        for g in range(len(part)):
            groups[g] = part[g] if part[g] > groups[g] else groups[g]


@kernel
def _find(scores: Any, values: Any, columns: Any) -> None:
    """Write the largest of each row.

    Of the largest of each group the k-th is a bound that few others of the row reach.
    """
    count, width = values.shape[1], scores.shape[1]
    groups = np.empty(_GROUPS, dtype=np.float32)
    for row in range(len(scores)):
        _group(scores[row], groups)
        bound = kth_largest(groups, count)
        found = 0
        whole = width // LANES * LANES
        address = scores.ctypes.data + row * scores.strides[0]
        for start in range(0, whole, LANES):
            bits = reaching(address + 4 * start, bound)
            while bits != 0:
                column = start + lowest_bit(bits)
                bits &= bits - _BIT
                found = _put(values[row], columns[row], found, scores[row, column], column)
        for column in range(whole, width):
            if scores[row, column] >= bound:
                found = _put(values[row], columns[row], found, scores[row, column], column)


@kernel
def _put(values: Any, columns: Any, found: int, score: Any, column: int) -> int:
    """Put a score among the largest so far, behind equal ones; return how many there are."""
    place = found
    if found == len(values):
        if score <= values[found - 1]:
            return found
        place = found - 1
    while place > 0 and values[place - 1] < score:
        if place < len(values):
            values[place] = values[place - 1]
            columns[place] = columns[place - 1]
        place -= 1
    values[place], columns[place] = score, column
    return min(found + 1, len(values))
