"""Weights of a byte each: a quarter of the memory, and a quarter of what a prediction reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 127  # the largest number of a signed byte, on both sides
_BLOCK = 4096  # rows that are rounded at once


def as_bytes(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return weights (..., n) as whole numbers, and what one counts (...,): a scale for each row.

    Examples
    --------
    >>> numbers, scale = as_bytes(np.array([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0]], dtype="f4"))
    >>> numbers
    array([[  64, -127,   32],
           [   0,    0,    0]], dtype=int8)
    >>> as_floats(numbers, scale).round(2)
    array([[ 0.5 , -1.  ,  0.25],
           [ 0.  ,  0.  ,  0.  ]], dtype=float32)
    """
    rows = weights.reshape(-1, weights.shape[-1])
    numbers = np.empty(rows.shape, dtype=np.int8)
    scale = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        scale[part] = np.abs(rows[part]).max(axis=1, initial=0) / MOST
        step = np.where(scale[part] > 0, scale[part], 1)
        numbers[part] = np.rint(rows[part] / step[:, None])
    return numbers.reshape(weights.shape), scale.reshape(weights.shape[:-1])


def as_floats(numbers: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo `as_bytes`, up to its rounding."""
    floats: NDArray[np.float32] = numbers * scale[..., None]
    return floats
