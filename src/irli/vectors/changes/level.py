"""Level: buckets that hold far more than others give items to the next best buckets of these.

When many items are removed, some buckets hold as much as before, and the mean falls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli._native import place_bounded
from irli.vectors.changes.growth import limit_loads, rank_best
from irli.vectors.searcher import Searcher


def level(searcher: Searcher, pair: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each entry is to be: r B + bucket.

    Parameters
    ----------
    pair, row : int64 arrays of shape (E,)
        Where each entry is, and the row of its item.
    """
    repetitions, buckets = searcher.layout.bias.shape
    levelled = pair.copy()
    for r in range(repetitions):
        mine = np.flatnonzero(pair // buckets == r)
        bucket, rows = pair[mine] - r * buckets, row[mine]
        loads = np.bincount(bucket, minlength=buckets)
        most, limit = limit_loads(len(mine) / buckets)
        full = np.flatnonzero(loads[bucket] > most)
        if len(full) == 0:
            continue
        logits = np.ascontiguousarray(searcher.route(searcher.take(rows[full]))[:, r])
        own = logits[np.arange(len(full)), bucket[full]]
        order = np.lexsort((-own, bucket[full]))  # what fits a bucket best stays there
        ordered = bucket[full][order]
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        leaving = order[place >= most]
        left = full[leaving]
        best = rank_best(logits[leaving])
        # Not a bucket that has the item already.
        keys = rows * buckets + bucket
        best[np.isin(rows[left, None] * buckets + best, keys)] = -1
        loads -= np.bincount(bucket[left], minlength=buckets)
        order, chosen = np.arange(len(left)), np.full(len(left), -1, dtype=np.int32)
        place_bounded(order, order, best, limit, loads, np.full_like(chosen, -1), chosen)
        for each in np.flatnonzero(chosen < 0):  # some bucket has room: the mean counts them all
            ranked = np.argsort(-logits[leaving[each]], kind="stable")
            free = (loads[ranked] < limit) & ~np.isin(rows[left[each]] * buckets + ranked, keys)
            chosen[each] = ranked[free][0] if free.any() else bucket[left[each]]
            loads[chosen[each]] += 1
        levelled[mine[left]] = r * buckets + chosen
    return levelled
