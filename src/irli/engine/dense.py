"""Kernels on dense float32 rows: matrix products, distances, normalizing, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.engine.jit import arithmetic, inner, kernel
from irli.engine.select import find_largest
from irli.engine.simd import NARROW, PANEL, add_narrow, add_panel

_FAR = np.float32(-60.0)  # a logit this far below the largest adds nothing to the sum


@kernel
def multiply(rows: Any, matrix: Any, bias: Any, out: Any) -> None:
    """out[i] = rows[i] @ matrix + bias."""
    depth, width = matrix.shape
    stride, first, begin = matrix.strides[0], matrix.ctypes.data, bias.ctypes.data
    low = 0
    while width - low >= NARROW:
        panel = width - low >= PANEL
        for i in range(len(rows)):
            row, to = rows[i].ctypes.data, out[i].ctypes.data + 4 * low
            if panel:
                add_panel(row, depth, first + 4 * low, stride, begin + 4 * low, to)
            else:
                add_narrow(row, depth, first + 4 * low, stride, begin + 4 * low, to)
        low += PANEL if panel else NARROW
    if low < width:
        _multiply_rest(rows, matrix[:, low:], bias[low:], out[:, low:])


@arithmetic
def _multiply_rest(rows: Any, matrix: Any, bias: Any, out: Any) -> None:
    """Compute the last few columns of `multiply`."""
    for i in range(len(rows)):
        out[i] = bias
        for j in range(len(matrix)):
            for t in range(matrix.shape[1]):
                out[i, t] += rows[i, j] * matrix[j, t]


@arithmetic
def dot(a: Any, b: Any) -> Any:
    """Return the inner product of two vectors."""
    total = np.float32(0.0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@arithmetic
def squared_distance(a: Any, b: Any) -> Any:
    """Return the squared Euclidean distance between two vectors."""
    total = np.float32(0.0)
    for j in range(len(a)):
        gap = a[j] - b[j]
        total += gap * gap
    return total


@inner
def copy_row(row: Any, unit: bool, out: Any) -> bool:
    """Copy a row, scaled to unit length if `unit`. Return whether it is finite."""
    total = 0.0  # in float64, where the square of a float32 cannot overflow
    for j in range(len(row)):
        total += np.float64(row[j]) * np.float64(row[j])
    scale = 1.0
    if unit:
        scale = 1.0 / np.sqrt(total) if total > 0 else 0.0
    for j in range(len(row)):
        out[j] = row[j] * scale
    return bool(np.isfinite(total))


@kernel
def normalize_rows(rows: Any, out: Any) -> None:
    """Write the rows scaled to unit length. Rows of zeros stay zeros."""
    for i in range(rows.shape[0]):
        copy_row(rows[i], True, out[i])


@arithmetic
def sum_exps(logits: Any, top: Any) -> Any:
    """Return the sum of exp(logits - top).

    Uses exp(x) = exp(x / 64) ** 64, with a polynomial for exp(x / 64). The compiler can vectorize
    this, but not calls of exp.
    """
    total = np.float32(0.0)
    for b in range(len(logits)):
        gap = logits[b] - top
        gap = gap if gap > _FAR else _FAR
        y = gap * np.float32(1 / 64)
        p = np.float32(1 / 120) + y * np.float32(1 / 720)
        p = np.float32(1 / 6) + y * (np.float32(1 / 24) + y * p)
        p = np.float32(1.0) + y * (np.float32(1.0) + y * (np.float32(0.5) + y * p))
        p *= p
        p *= p
        p *= p
        p *= p
        p *= p
        total += p * p
    return total


@inner
def log_softmax(logits: Any) -> None:
    """Convert logits to log-probabilities, in place."""
    top = find_largest(logits)
    logits -= top + np.float32(np.log(sum_exps(logits, top)))
