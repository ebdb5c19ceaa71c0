"""Kernels of the code scan: choose candidates in the probed buckets by their 4-bit codes.

A query becomes a lookup table of M x 16 small integers. The codes in the probed buckets are summed
up 32 at a time (see `irli.engine.simd`). The items with the largest sums are the candidates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.engine.dense import multiply
from irli.engine.jit import inlined, inner
from irli.engine.select import kth_largest
from irli.engine.simd import (
    LANES,
    MOST,
    block_sums,
    fetch,
    lowest_bit,
    piece_values,
    round_piece,
)
from irli.engine.vector_layout import BIN, Scratch, SearchPlan, VectorLayout, next_query

_BIT = np.uint32(1)


@inlined
def fill_table(layout: VectorLayout, queries: Any, row: int, scratch: Scratch) -> None:
    """Write the lookup table of a routed query: what each codeword adds to a score, as integers.

    The smallest value of each piece is 0. All pieces have the same scale.
    """
    codewords, bias = layout.codes.codewords, layout.codes.bias
    values, table = scratch.codeword_values, scratch.table
    at = scratch.coordinates.ctypes.data
    if layout.projection.bytes.size > 0:
        at = (
            scratch.projected.ctypes.data
            + row * scratch.projected.strides[0]
            + 4 * layout.shift.size
        )
    else:
        multiply(
            queries[row : row + 1], layout.codes.rotation, layout.codes.shift, scratch.coordinates
        )
    pieces, size, _ = codewords.shape
    widest = np.float32(0.0)
    for m in range(pieces):
        here = codewords.ctypes.data + m * codewords.strides[0]
        begin, out = bias.ctypes.data + 64 * m, values.ctypes.data + 64 * m
        widest = max(widest, piece_values(at + 4 * m * size, here, size, begin, out))
    scale = np.float32(MOST) / widest
    scale = scale if scale < np.inf else np.float32(0.0)  # all values are equal
    for m in range(pieces):
        out = table.ctypes.data + (m & 1) * table.strides[0] + (m >> 1) * table.strides[1]
        round_piece(values.ctypes.data + 64 * m, scale, out)


@inlined
def scan(
    layout: VectorLayout, plan: SearchPlan, allowed: Any, probed: int, scratch: Scratch
) -> tuple[int, int]:
    """Write the items with the largest sums in the probed buckets to `touched`, each once.

    A histogram of the sums gives the sum that the C best items so far reach. Most blocks have no
    larger sum and are done with one comparison. A key is the sum in the high bits and the item in
    the low bits. So ties go to the larger item number, whatever the order of the buckets.

    Return the number of items, and the number of entries that were read.
    """
    blocks, starts, table = layout.codes.blocks, layout.codes.offsets, scratch.table
    items, offsets, keys = layout.items, layout.offsets, scratch.keys
    sums, buckets, bins, stamp = scratch.lanes, layout.bias.shape[1], scratch.bins, scratch.stamp
    filtered, wanted = len(allowed) > 0, plan.candidates
    now = next_query(scratch)
    bins[:] = 0
    count = read = above = low = 0  # `above` keys are in the bins from `low` up
    cut = np.uint16(0)
    size = blocks.shape[1] * LANES
    for c in range(probed):
        r, b = divmod(scratch.probed[c], buckets)
        entry, stop = offsets[r, b], offsets[r, b + 1]
        read += stop - entry
        after = end = 0  # blocks of the next bucket, prefetched while this one is read
        if c + 1 < probed:
            next_r, next_b = divmod(scratch.probed[c + 1], buckets)
            after, end = starts[next_r, next_b], starts[next_r, next_b + 1]
        for block in range(starts[r, b], starts[r, b + 1]):
            if after < end:
                fetch(blocks.ctypes.data + after * size, size)
                after += 1
            bits = block_sums(blocks, block, table, cut, sums)
            if stop - entry < LANES:
                bits &= (_BIT << np.uint32(stop - entry)) - _BIT
            while bits != 0:
                lane = lowest_bit(bits)
                bits &= bits - _BIT
                item = items[entry + lane]
                if stamp[item] == now or (filtered and not allowed[item]):
                    continue
                stamp[item] = now
                keys[count] = (np.int64(sums[lane]) << 32) | np.int64(item)
                count += 1
                bins[sums[lane] >> BIN] += 1
                above += 1
            while above - bins[low] >= wanted:
                above -= bins[low]
                low += 1
            cut = np.uint16(low << BIN)
            if count > len(keys) - LANES:
                count = _keep_largest(keys, count, wanted, cut)
            entry += LANES
    count = _keep_largest(keys, count, wanted, cut)
    for t in range(count):
        scratch.touched[t] = keys[t] & 0xFFFFFFFF
    return count, read


@inner
def _keep_largest(keys: Any, count: int, wanted: int, cut: Any) -> int:
    """Move the `wanted` largest keys to the front. None of them has a sum below `cut`."""
    kept = 0
    for t in range(count):
        keys[kept] = keys[t]
        kept += (keys[t] >> 32) >= cut
    if kept > wanted:
        kth_largest(keys[:kept], wanted)
        kept = wanted
    return kept
