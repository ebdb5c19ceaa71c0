"""8-bit weights: rounding them, tiling them for SIMD, and query projections.

The *projection* is the first matrix product of a query. Each router needs one to get its features,
and the codes need one to get coordinates. Their matrices are concatenated, so that one pass over
the bytes serves all repetitions and the codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli._native import PANEL, ZERO
from irli.engine.vector_layout import Projection

HIGHEST = 127  # weights are rounded to [-127, 127]
_BLOCK = 4096  # rows rounded at a time


def tile(weights: NDArray[np.int8]) -> NDArray[np.int8]:
    """Arrange weights (n, columns) as the kernels read them: (columns / 64, n / 4, 64, 4)."""
    rows, columns = weights.shape
    padded = np.zeros((-(-rows // 4) * 4, -(-columns // PANEL) * PANEL), dtype=np.int8)
    padded[:rows, :columns] = weights
    laid = padded.reshape(len(padded) // 4, 4, -1, PANEL).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(laid)


def untile(tiles: NDArray[np.int8], rows: int, columns: int) -> NDArray[np.int8]:
    """Undo `tile`: return weights (n, columns)."""
    panels, fours = tiles.shape[:2]
    laid = tiles.transpose(1, 3, 0, 2).reshape(4 * fours, panels * PANEL)
    return laid[:rows, :columns]


def balance(rows: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a scale (n,) for rows (m, n) and weights (n, columns).

    Divide each column of the rows by its scale, and multiply the matching row of weights with it.
    The product stays the same, and neither side has columns too small for 8 bits.
    """
    # In float64, where the square of a float32 cannot overflow or underflow.
    typical = np.sqrt(np.einsum("mn,mn->n", rows, rows, dtype=np.float64) / len(rows))
    strength = np.sqrt(np.square(weights, dtype=np.float64).mean(axis=1))
    nonzero = (typical > 0) & (strength > 0)
    scale = np.ones(len(typical), dtype=np.float32)
    scale[nonzero] = np.sqrt(typical[nonzero] / strength[nonzero])
    return scale


def make_projection(
    sample: NDArray[np.float32], matrix: NDArray[np.float32], shift: NDArray[np.float32]
) -> Projection:
    """Return the map queries -> queries @ matrix + shift with 8-bit weights.

    Parameters
    ----------
    sample : float32 array of shape (m, d)
        Typical queries.
    matrix : float32 array of shape (d, columns)
    shift : float32 array of shape (columns,)
    """
    columns = matrix.shape[1]
    centre = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    scale = balance(sample - centre, matrix)
    weights = matrix * scale[:, None]
    step = np.maximum(np.abs(weights).max(axis=0, initial=0), 1e-30) / 127
    rounded = np.rint(weights / step).astype(np.int8)
    return Projection(
        centre=centre,
        scale=(1 / scale).astype(np.float32),
        bytes=tile(rounded)[None],
        step=step.astype(np.float32),
        zero=ZERO * rounded.sum(axis=0, dtype=np.int32),
        bias=(centre @ matrix + shift).astype(np.float32).reshape(columns),
    )


def no_projection() -> Projection:
    """Return the empty projection of an index without one."""
    empty: NDArray[Any] = np.empty(0, dtype=np.float32)
    return Projection(
        centre=empty,
        scale=empty,
        bytes=np.empty((0, 0, 0, PANEL, 4), dtype=np.int8),
        step=empty,
        zero=np.empty(0, dtype=np.int32),
        bias=empty,
    )


def round_rows(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round weights (..., n) to int8. Return the numbers and a scale (...,) for each row.

    Examples
    --------
    >>> numbers, scale = round_rows(np.array([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0]], dtype="f4"))
    >>> numbers
    array([[  64, -127,   32],
           [   0,    0,    0]], dtype=int8)
    >>> unround_rows(numbers, scale).round(2)
    array([[ 0.5 , -1.  ,  0.25],
           [ 0.  ,  0.  ,  0.  ]], dtype=float32)
    """
    rows = weights.reshape(-1, weights.shape[-1])
    numbers = np.empty(rows.shape, dtype=np.int8)
    scale = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        scale[part] = np.abs(rows[part]).max(axis=1, initial=0) / HIGHEST
        step = np.where(scale[part] > 0, scale[part], 1)
        numbers[part] = np.rint(rows[part] / step[:, None])
    return numbers.reshape(weights.shape), scale.reshape(weights.shape[:-1])


def unround_rows(numbers: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo `round_rows`, up to its rounding."""
    floats: NDArray[np.float32] = numbers * scale[..., None]
    return floats
