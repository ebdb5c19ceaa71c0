"""Routing, compiled: the log-probabilities of all buckets for a few queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.compiled import arithmetic, inner, kernel, kth_largest
from irli.frozen import Frozen, Lens, Scratch
from irli.lanes import (
    LANES,
    NARROW,
    PANEL,
    add_narrow,
    add_panel,
    byte_sums,
    lowest_bit,
    reaching,
)

_BIT = np.uint32(1)
_FAR = np.float32(-60.0)  # a logit so far behind the best adds nothing to a sum


@kernel
def multiply(rows: Any, matrix: Any, start: Any, out: Any) -> None:
    """out[i] = rows[i] @ matrix + start."""
    depth, width = matrix.shape
    stride, first, begin = matrix.strides[0], matrix.ctypes.data, start.ctypes.data
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
        _multiply_rest(rows, matrix[:, low:], start[low:], out[:, low:])


@arithmetic
def _multiply_rest(rows: Any, matrix: Any, start: Any, out: Any) -> None:
    """The last few columns."""
    for i in range(len(rows)):
        out[i] = start
        for j in range(len(matrix)):
            for t in range(matrix.shape[1]):
                out[i, t] += rows[i, j] * matrix[j, t]


@arithmetic
def _dot(a: Any, b: Any) -> Any:
    total = np.float32(0.0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@kernel
def largest(values: Any) -> Any:
    """Return the largest of some floats; what is not a number counts as nothing."""
    best = np.full(NARROW, -np.inf, dtype=np.float32)
    whole = len(values) - len(values) % NARROW
    for low in range(0, whole, NARROW):
        for t in range(NARROW):
            value = values[low + t]
            best[t] = value if value > best[t] else best[t]
    top = np.float32(-np.inf)
    for t in range(NARROW):
        top = max(top, best[t])
    for t in range(whole, len(values)):
        top = values[t] if values[t] > top else top
    return top


@kernel
def at_least(values: Any, cut: Any, places: Any) -> int:
    """List the places of the values that reach `cut`, or are not a number; return how many."""
    count = 0
    whole = len(values) - len(values) % LANES
    address = values.ctypes.data
    for low in range(0, whole, LANES):
        bits = reaching(address + 4 * low, cut)
        while bits != 0:
            places[count] = low + lowest_bit(bits)
            bits &= bits - _BIT
            count += 1
    for place in range(whole, len(values)):
        if not values[place] < cut:
            places[count] = place
            count += 1
    return count


@arithmetic
def _to_bytes(values: Any, out: Any, i: int) -> Any:
    """Round values to bytes around 64 in out[i], and return what one step of them is worth."""
    most = np.float32(0.0)
    for j in range(len(values)):
        size = abs(values[j])
        most = size if size > most else most
    scale = np.float32(63.0) / most if 0 < most < np.inf else np.float32(0.0)
    for j in range(len(values)):
        out[i, j] = np.int32(np.float32(64.5) + values[j] * scale)
    return most / np.float32(63.0)


@inner
def _multiply_bytes(rows: Any, n: int, weights: Any, r: int, sums: Any) -> None:
    """Multiply n rows of bytes with weights[r]: each panel that is read serves all of them."""
    for panel in range(weights.shape[1]):
        for i in range(n):
            byte_sums(rows, i, weights, r, panel, sums)


@arithmetic
def _look(lens: Lens, queries: Any, scratch: Scratch) -> None:
    """Write what the lens shows of up to BLOCK queries (n, d) into `seen`."""
    n, dim = queries.shape
    centred, seen, sums = scratch.centred, scratch.seen, scratch.sums
    steps = np.empty(n, dtype=np.float32)
    for i in range(n):
        for j in range(dim):
            centred[j] = (queries[i, j] - lens.centre[j]) * lens.scale[j]
        steps[i] = _to_bytes(centred, scratch.query, i)
    _multiply_bytes(scratch.query, n, lens.bytes, 0, sums)
    for i in range(n):
        for c in range(len(lens.step)):
            seen[i, c] = steps[i] * lens.step[c] * np.float32(sums[i, c] - lens.zero[c])
            seen[i, c] += lens.start[c]


@arithmetic
def _score_bytes(frozen: Frozen, r: int, features: Any, scratch: Scratch) -> None:
    """Score all buckets with weights of 8 bits, which take a quarter of the memory to read."""
    n, sums, logits = len(features), scratch.sums, scratch.logits
    zero, bias = frozen.zero, frozen.bias
    steps = np.empty(n, dtype=np.float32)
    for i in range(n):
        steps[i] = frozen.step[r, 0] * _to_bytes(features[i], scratch.bytes, i)
    _multiply_bytes(scratch.bytes, n, frozen.bytes, r, sums)
    for i in range(n):
        for b in range(bias.shape[1]):
            logits[i, r, b] = steps[i] * np.float32(sums[i, b] - zero[r, b]) + bias[r, b]


@inner
def _narrow(logits: Any, alive: Any, count: int, keep: int, order: Any) -> int:
    """Move the `keep` best of the first `count` buckets of `alive` to its front."""
    for a in range(count):
        order[a] = logits[alive[a]]
    cut = kth_largest(order[:count], keep)
    ties = keep
    for a in range(count):
        ties -= logits[alive[a]] > cut
    kept = 0
    for a in range(count):
        bucket = alive[a]
        if logits[bucket] > cut or (not logits[bucket] < cut and ties > 0):
            ties -= not logits[bucket] > cut
            alive[kept] = bucket
            kept += 1
    return kept


@inner
def _refine(frozen: Frozen, r: int, features: Any, logits: Any, scratch: Scratch) -> None:
    """Add the remaining features, stage by stage, for the buckets that look best."""
    alive = scratch.alive
    count = len(logits)
    for b in range(count):
        alive[b] = b
    first = frozen.depths[0]
    for stage in range(1, len(frozen.depths)):
        start, stop = frozen.depths[stage - 1], frozen.depths[stage]
        count = _narrow(logits, alive, count, frozen.keeps[stage], scratch.order)
        for a in range(count):
            bucket = alive[a]
            weights = frozen.fine[r, bucket, start - first : stop - first]
            logits[bucket] += _dot(features[start:stop], weights)


@arithmetic
def sum_of_exps(logits: Any, top: Any) -> Any:
    """Return the sum of exp(logits - top).

    exp(x) = exp(x / 64) ** 64 with a polynomial for the former: nothing in it keeps the loop from
    filling vector registers, as a call for each bucket would.
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
def _normalise(logits: Any) -> None:
    """Turn logits into log-probabilities, in place."""
    top = largest(logits)
    logits -= top + np.float32(np.log(sum_of_exps(logits, top)))


@kernel
def route(frozen: Frozen, queries: Any, scratch: Scratch) -> None:
    """Write the log-probabilities of all buckets for up to BLOCK queries (n, d) into logits."""
    n = len(queries)
    first = frozen.depths[0]
    width = frozen.shift.shape[1]
    if frozen.lens.bytes.size > 0:
        _look(frozen.lens, queries, scratch)
    for r in range(len(frozen.bias)):
        features = scratch.hidden[:n]
        if frozen.lens.bytes.size > 0:
            features[:] = scratch.seen[:n, r * width : (r + 1) * width]
        else:
            multiply(queries, frozen.project[r], frozen.shift[r], features)
        for i in range(n):
            for j in range(frozen.linear, features.shape[1]):
                features[i, j] = max(features[i, j], np.float32(0.0))
        if frozen.turn.size > 0:
            multiply(features, frozen.turn[r], frozen.turn_shift[r], scratch.features[:n])
            features = scratch.features[:n]
        if frozen.bytes.size > 0:
            _score_bytes(frozen, r, features, scratch)
        else:
            multiply(features[:, :first], frozen.coarse[r], frozen.bias[r], scratch.logits[:n, r])
        for i in range(n):
            if len(frozen.depths) > 1:
                _refine(frozen, r, features[i], scratch.logits[i, r], scratch)
            _normalise(scratch.logits[i, r])
