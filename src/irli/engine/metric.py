"""How kernels handle each metric: its distance, preparing vectors, converting answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli._native import COSINE, DOT, IP, L2, PLAIN
from irli.base.memory import empty_at_line

# The distance that a kernel computes. Cosine is the inner product of vectors of unit length.
KERNEL_METRIC = {"l2": L2, "ip": DOT, "cosine": DOT}
# How queries are prepared, and how a kernel's distances are converted to those of the metric.
ANSWER_FORM = {"l2": PLAIN, "ip": IP, "cosine": COSINE}

_BLOCK = 65_536  # rows normalized at a time


def prepare_vectors(vectors: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Return vectors (n, d) as an index stores them: scaled to unit length for cosine.

    Rows of zeros stay zeros. A row that is not finite becomes NaN.

    Examples
    --------
    >>> prepare_vectors(np.array([[3.0, 4.0]], dtype="f4"), "cosine")
    array([[0.6, 0.8]], dtype=float32)
    """
    if metric != "cosine":
        return vectors
    unit = empty_at_line(vectors.shape, np.float32)
    for start in range(0, len(vectors), _BLOCK):
        part = slice(start, start + _BLOCK)
        _native.normalize_rows(np.ascontiguousarray(vectors[part], dtype=np.float32), unit[part])
    return unit
