"""The first product of a query, in 8 bits: what the routers and the codes see of it.

Routers project a query to features, codes turn it into coordinates. Both are matrices of d rows, so
side by side they are one, and one pass over its bytes serves all repetitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.frozen import Lens
from irli.lanes import PANEL

ZERO = 64  # the byte that stands for zero: bytes of a query have no sign


def tiles(weights: NDArray[np.int8]) -> NDArray[np.int8]:
    """Lay weights (n, columns) out as the kernels read them: (columns / 64, n / 4, 64, 4)."""
    rows, columns = weights.shape
    padded = np.zeros((-(-rows // 4) * 4, -(-columns // PANEL) * PANEL), dtype=np.int8)
    padded[:rows, :columns] = weights
    laid = padded.reshape(len(padded) // 4, 4, -1, PANEL).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(laid)


def untiled(tiles: NDArray[np.int8], rows: int, columns: int) -> NDArray[np.int8]:
    """Undo `tiles`: return weights (n, columns)."""
    panels, fours = tiles.shape[:2]
    laid = tiles.transpose(1, 3, 0, 2).reshape(4 * fours, panels * PANEL)
    return laid[:rows, :columns]


def balance(rows: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what to divide each column of `rows` by, and multiply its weights with.

    So none of rows (m, n) and weights (n, columns) has columns too small for its 8 bits.
    """
    # In float64, where no square of a float32 is too large or too small.
    typical = np.sqrt(np.einsum("mn,mn->n", rows, rows, dtype=np.float64) / len(rows))
    strength = np.sqrt(np.square(weights, dtype=np.float64).mean(axis=1))
    told = (typical > 0) & (strength > 0)
    scale = np.ones(len(typical), dtype=np.float32)
    scale[told] = np.sqrt(typical[told] / strength[told])
    return scale


def make_lens(
    sample: NDArray[np.float32], matrix: NDArray[np.float32], shift: NDArray[np.float32]
) -> Lens:
    """Return queries -> queries @ matrix + shift in 8 bits.

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
    return Lens(
        centre=centre,
        scale=(1 / scale).astype(np.float32),
        bytes=tiles(rounded)[None],
        step=step.astype(np.float32),
        zero=ZERO * rounded.sum(axis=0, dtype=np.int32),
        start=(centre @ matrix + shift).astype(np.float32).reshape(columns),
    )


def no_lens() -> Lens:
    """Return what stands for a lens in an index without one."""
    nothing: NDArray[Any] = np.empty(0, dtype=np.float32)
    return Lens(
        centre=nothing,
        scale=nothing,
        bytes=np.empty((0, 0, 0, PANEL, 4), dtype=np.int8),
        step=nothing,
        zero=np.empty(0, dtype=np.int32),
        start=nothing,
    )
