"""The 8-bit prefilter: 8-bit copies of the vectors, which drop candidates before the rerank.

Fetching long vectors takes most of the time of a search. From 128 dimensions on, 8-bit copies of
the candidates are compared first, which takes a quarter of the bytes. They drop nearly all
candidates that are not among the k nearest. Only close calls get an exact distance.

Numbers are rounded up or down at random. So the errors are independent, whatever the data, and
the standard deviation of a score is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.engine.vector_layout import Int8Vectors

LONG = 128  # dimensions from which the prefilter pays
_BLOCK = 1 << 22  # numbers rounded at a time
_HIGHEST = 127


def round_items(vectors: NDArray[np.float32], l2: bool, rng: np.random.Generator) -> Int8Vectors:
    """Round vectors (N, d) to 8 bits. Each dimension has its own scale.

    Examples
    --------
    >>> vectors = np.array([[0, 5], [1, 5], [2, 5]], dtype=np.float32)
    >>> round_items(vectors, l2=True, rng=np.random.default_rng(0)).bytes.tolist()
    [[-127, 0], [0, 0], [127, 0]]
    """
    count, dim = vectors.shape
    rows = max(1, _BLOCK // dim)
    low, high, total = np.full(dim, np.inf), np.full(dim, -np.inf), np.zeros(dim)
    for start in range(0, count, rows):
        block = np.asarray(vectors[start : start + rows])
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        total += block.sum(axis=0, dtype=np.float64)
        release_pages(vectors)
    centre, step = (low + high) / 2, (high - low) / (2 * _HIGHEST)
    inverse = np.divide(1, step, out=np.zeros(dim), where=step > 0)
    # For l2 the origin is free. Around the mean, queries are short, and so errors are small. Inner
    # products need no shift: it would add the same to all items.
    shift = total / count if l2 else np.zeros(dim)
    rounded = np.empty((count, dim), dtype=np.int8)
    lengths = np.zeros(count if l2 else 0, dtype=np.float32)
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        block = np.asarray(vectors[part], dtype=np.float64)  # squares cannot overflow in float64
        steps = (block - centre) * inverse
        steps += rng.random(size=steps.shape, dtype=np.float32)  # more often to the nearer side
        rounded[part] = np.clip(np.floor(steps), -_HIGHEST, _HIGHEST)
        if l2:
            block -= shift
            with np.errstate(over="ignore"):  # the distances overflow in the same way
                lengths[part] = np.einsum("nd,nd->n", block, block) / 2
        release_pages(vectors)
    centre, shift, step = (array.astype(np.float32) for array in (centre, shift, step))
    return Int8Vectors(rounded, centre, shift, step, lengths)


def no_int8_vectors(dim: int) -> Int8Vectors:
    """Return the empty 8-bit vectors of an index without a prefilter."""
    empty = np.empty(0, dtype=np.float32)
    return Int8Vectors(np.empty((0, dim), dtype=np.int8), empty, empty, empty, empty)


def round_more(
    vectors: NDArray[np.float32], fitted: Int8Vectors, l2: bool, seed: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round vectors (n, d) as those of a fit were.

    Return the 8-bit copies, and half the squared distances from the mean (n,) for l2, or zeros.
    These are NaN where a number lies outside of those of the fit: the prefilter keeps such items.
    """
    step = fitted.step.astype(np.float64)
    inverse = np.divide(1, step, out=np.zeros(len(step)), where=step > 0)
    steps = (vectors - fitted.centre) * inverse
    steps += np.random.default_rng(seed).random(size=steps.shape, dtype=np.float32)
    steps = np.floor(steps)
    rounded = np.clip(steps, -_HIGHEST, _HIGHEST)
    lengths = np.zeros(len(vectors))
    if l2:
        lengths = np.square(vectors.astype(np.float64) - fitted.shift).sum(axis=1) / 2
    beyond = (np.abs(steps - rounded) > 1) | ((step == 0) & (vectors != fitted.centre))
    lengths[beyond.any(axis=1)] = np.nan
    with np.errstate(over="ignore"):  # the distances overflow in the same way
        return rounded.astype(np.int8), lengths.astype(np.float32)
