"""The compressed first pass, compiled: which items of the probed buckets deserve an exact distance.

A query becomes a table of M x 16 small integers. The codes of the probed buckets are summed up
32 at a time (see `irli.lanes`), and the items with the largest sums are the candidates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.compiled import inner, kth_largest, step
from irli.frozen import BIN, Frozen, Plan, Scratch, next_query
from irli.lanes import (
    LANES,
    MOST,
    block_sums,
    fetch,
    lowest_bit,
    piece_values,
    round_piece,
)
from irli.routing import multiply

_BIT = np.uint32(1)


@step
def fill_table(frozen: Frozen, queries: Any, row: int, scratch: Scratch) -> None:
    """Write the table of a routed query: what each codeword adds to a score, in small integers.

    The values of each piece begin at 0, and have one scale for all pieces.
    """
    words, start = frozen.coded.words, frozen.coded.start
    values, table = scratch.words, scratch.table
    at = scratch.coordinates.ctypes.data
    if frozen.lens.bytes.size > 0:
        at = scratch.seen.ctypes.data + row * scratch.seen.strides[0] + 4 * frozen.shift.size
    else:
        multiply(queries[row : row + 1], frozen.coded.turn, frozen.coded.shift, scratch.coordinates)
    pieces, size, _ = words.shape
    widest = np.float32(0.0)
    for m in range(pieces):
        here = words.ctypes.data + m * words.strides[0]
        begin, out = start.ctypes.data + 64 * m, values.ctypes.data + 64 * m
        widest = max(widest, piece_values(at + 4 * m * size, here, size, begin, out))
    scale = np.float32(MOST) / widest
    scale = scale if scale < np.inf else np.float32(0.0)  # 0: nothing tells items apart
    for m in range(pieces):
        out = table.ctypes.data + (m & 1) * table.strides[0] + (m >> 1) * table.strides[1]
        round_piece(values.ctypes.data + 64 * m, scale, out)


@step
def scan(
    frozen: Frozen, plan: Plan, allowed: Any, probed: int, scratch: Scratch
) -> tuple[int, int]:
    """Write the items of the largest sums in the probed buckets to `touched`, each once.

    Return how many there are, and how many entries were read. A histogram of the sums tells which
    sum the C best so far reach, so most blocks are done with one comparison. A key is the sum and,
    below it, the item: of equal sums the items of the largest numbers stay, in whatever order
    buckets are read.
    """
    blocks, starts, table = frozen.coded.blocks, frozen.coded.offsets, scratch.table
    items, offsets, keys = frozen.items, frozen.offsets, scratch.keys
    sums, buckets, bins, stamp = scratch.lanes, frozen.bias.shape[1], scratch.bins, scratch.stamp
    filtered, wanted = len(allowed) > 0, plan.candidates
    now = next_query(scratch)
    bins[:] = 0
    count = read = above = low = 0  # `above` keys lie in bins from `low` up
    cut = np.uint16(0)
    size = blocks.shape[1] * LANES
    for c in range(probed):
        r, b = divmod(scratch.probed[c], buckets)
        entry, stop = offsets[r, b], offsets[r, b + 1]
        read += stop - entry
        after = end = 0  # blocks of the next bucket, asked for while this one is read
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
                count = _best(keys, count, wanted, cut)
            entry += LANES
    count = _best(keys, count, wanted, cut)
    for t in range(count):
        scratch.touched[t] = keys[t] & 0xFFFFFFFF
    return count, read


@inner
def _best(keys: Any, count: int, wanted: int, cut: Any) -> int:
    """Move the `wanted` largest keys, none of which lies below `cut`, to the front."""
    kept = 0
    for t in range(count):
        keys[kept] = keys[t]
        kept += (keys[t] >> 32) >= cut
    if kept > wanted:
        kth_largest(keys[:kept], wanted)
        kept = wanted
    return kept
