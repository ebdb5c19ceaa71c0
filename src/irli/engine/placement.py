"""Placing items in buckets, compiled: the two loops of re-partitioning."""

from __future__ import annotations

from typing import Any

from irli.engine.jit import kernel


@kernel
def place_least_loaded(order: Any, best: Any, loads: Any, chosen: Any) -> None:
    """Put each item, in this order, into the least loaded of its best buckets (section 3.2).

    `best` (n, K) is padded with -1; `loads` (B,) is counted up; `chosen` (n,) is written.
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

    The ranking of item order[n] is best[rows[n]]. An item never goes to the bucket that `taken`
    names for it. An item that finds no room keeps what `chosen` says.
    """
    for n in range(len(order)):
        item, row = order[n], rows[n]
        for bucket in best[row]:
            if bucket >= 0 and bucket != taken[item] and loads[bucket] < limit:
                loads[bucket] += 1
                chosen[item] = bucket
                break
