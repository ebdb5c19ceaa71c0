"""The largest of each row of a matrix: torch's own search takes as long as the product did."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from irli.compiled import kernel, kth_largest
from irli.lanes import LANES, lowest_bit, reaching
from irli.threads import run_all

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


@kernel
def _find(scores: Any, values: Any, columns: Any) -> None:
    """Write the largest of each row.

    Of the largest of each group the k-th is a bound that few others of the row reach.
    """
    count, width = values.shape[1], scores.shape[1]
    groups = np.empty(_GROUPS, dtype=np.float32)
    for row in range(len(scores)):
        groups[:] = scores[row, :_GROUPS]
        for start in range(_GROUPS, width, _GROUPS):
            part = scores[row, start : start + _GROUPS]
            for g in range(len(part)):
                groups[g] = part[g] if part[g] > groups[g] else groups[g]
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
