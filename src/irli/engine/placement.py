"""Kernels of re-partitioning: place items in their least loaded or best free bucket."""

from __future__ import annotations

from typing import Any

from irli.engine.jit import kernel


@kernel
def place_least_loaded(order: Any, best: Any, loads: Any, chosen: Any) -> None:
    """Put each item, in this order, into the least loaded of its best buckets (section 3.2).

    `best` (n, K) holds the best buckets, padded with -1. `loads` (B,) is updated. `chosen` (n,) is
    written.
    """
    for item in order:
        lightest = best[item, 0]
        for bucket in best[item]:
            if bucket >= 0 and loads[bucket] < loads[lightest]:
                lightest = bucket
        loads[lightest] += 1
        chosen[item] = lightest


@kernel
def place_bounded(
    order: Any, rows: Any, best: Any, limit: int, loads: Any, taken: Any, chosen: Any
) -> None:
    """Put each item, in this order, into its best bucket that has room.

    The best buckets of item order[n] are best[rows[n]]. The bucket taken[item] is skipped. If no
    bucket has room, chosen[item] is left as it is.
    """
    for n in range(len(order)):
        item, row = order[n], rows[n]
        for bucket in best[row]:
            if bucket >= 0 and bucket != taken[item] and loads[bucket] < limit:
                loads[bucket] += 1
                chosen[item] = bucket
                break
