"""Vectors rounded to 8 bits: what is read between the codes and the exact distances.

Where vectors are long, fetching them is what a search does most. Of the candidates that the codes
chose, their rounded vectors, a quarter of the bytes, tell nearly all that are not among the k
nearest. Numbers are rounded up or down at random, so that errors cannot add up, whatever the data:
how far a score may be wrong is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import release_pages
from irli.engine.jit import arithmetic, inlined
from irli.engine.select import kth_largest
from irli.engine.simd import fetch
from irli.engine.vector_layout import DOT, Int8Vectors, Scratch, VectorLayout

LONG = 128  # dimensions from which on it pays
_BLOCK = 1 << 22  # numbers rounded at once
_HIGHEST = 127
_SURE = np.float32(3.0)  # standard deviations that the errors of two items may put between them
_AHEAD = 8  # vectors asked for before they are read


def round_items(vectors: NDArray[np.float32], l2: bool, rng: np.random.Generator) -> Int8Vectors:
    """Round vectors (N, d), each dimension on a scale of its own.

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
    # An inner product needs no shift: it adds the same to all items. A distance is the same from
    # anywhere, and from the mean the query is short, and so are its errors.
    shift = total / count if l2 else np.zeros(dim)
    rounded = np.empty((count, dim), dtype=np.int8)
    lengths = np.zeros(count if l2 else 0, dtype=np.float32)
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        block = np.asarray(vectors[part], dtype=np.float64)  # where no square is too large
        steps = (block - centre) * inverse
        steps += rng.random(size=steps.shape, dtype=np.float32)  # up or down, by what is nearer
        rounded[part] = np.clip(np.floor(steps), -_HIGHEST, _HIGHEST)
        if l2:
            block -= shift
            with np.errstate(over="ignore"):  # where distances become infinite, too
                lengths[part] = np.einsum("nd,nd->n", block, block) / 2
        release_pages(vectors)
    return Int8Vectors(rounded, shift.astype(np.float32), step.astype(np.float32), lengths)


def no_int8_vectors(dim: int) -> Int8Vectors:
    """Return what stands for rounded vectors in an index without any."""
    nothing = np.empty(0, dtype=np.float32)
    return Int8Vectors(np.empty((0, dim), dtype=np.int8), nothing, nothing, nothing)


@arithmetic
def _product(query: Any, bytes_: Any) -> Any:
    total = np.float32(0.0)
    for j in range(len(query)):
        total += query[j] * np.float32(bytes_[j])
    return total


@arithmetic
def _spread(layout: VectorLayout, query: Any, out: Any) -> Any:
    """Write the query in steps of the rounding; return how far errors move two scores apart.

    That is the standard deviation, at most: of two products, each a sum of independent errors whose
    variance is a quarter of a step's square or less.
    """
    shift, step = layout.int8.shift, layout.int8.step
    total = 0.0  # in float64, where no square of a float32 is too large or too small
    for j in range(len(query)):
        out[j] = (query[j] - shift[j]) * step[j]
        total += np.float64(out[j]) * np.float64(out[j])
    return np.float32(np.sqrt(total / 2.0))


@inlined
def prefilter(layout: VectorLayout, query: Any, chosen: int, k: int, scratch: Scratch) -> int:
    """Move the candidates that may be among the k nearest to the front of `touched`; count them."""
    rounded, touched, near = layout.int8, scratch.touched, scratch.scores
    if len(rounded.bytes) == 0 or chosen <= k:
        return chosen
    apart = _spread(layout, query, scratch.centred)
    for t in range(min(_AHEAD, chosen)):
        fetch(rounded.bytes[touched[t]].ctypes.data, len(query))
    for t in range(chosen):
        if t + _AHEAD < chosen:
            fetch(rounded.bytes[touched[t + _AHEAD]].ctypes.data, len(query))
        near[t] = _product(scratch.centred, rounded.bytes[touched[t]])
        if layout.metric != DOT:
            near[t] -= rounded.lengths[touched[t]]
        scratch.order[t] = near[t]
    cut = kth_largest(scratch.order[:chosen], k) - _SURE * apart
    kept = 0
    for t in range(chosen):
        touched[kept] = touched[t]
        kept += not near[t] < cut  # what is not a number stays
    return kept
