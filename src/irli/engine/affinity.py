"""Kernel of label affinity: rank the buckets of each item by the router scores of its queries.

`irli.learning.affinity` computes the scores and calls the kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.engine.jit import inner, kernel
from irli.engine.select import kth_largest

_LEAST_AFFINITY = np.float32(1e-15)  # of a bucket that is among the best of any query of the item
_LEAST_SUIT = np.float32(1e-20)  # keeps products out of the denormal numbers, which are slow


class BestBuckets(NamedTuple):
    """The best buckets of each query by its router score f, and the chance that each is probed."""

    buckets: NDArray[Any]  # (queries, kept)
    chances: NDArray[np.float32]  # (queries, kept)
    factors: NDArray[np.float32]  # (B,): each chance is multiplied by the factor of its bucket


class Wanting(NamedTuple):
    """The queries to which each item is relevant, as a CSR of shape (N, queries)."""

    indptr: NDArray[Any]
    queries: NDArray[Any]
    weights: NDArray[np.float32]


class Others(NamedTuple):
    """More buckets for some items, ranked by f alone. Of shape (0, 0) if there are none."""

    buckets: NDArray[np.int32]  # (n, count)
    suits: NDArray[np.float32]  # (n, count): the score, relative to that of the best bucket


@inner
def _add_scores(
    affinity: Any, touched: Any, count: int, held: int, weight: Any, best: BestBuckets, query: int
) -> int:
    """Add the scores of one query, weighted by the chance that it misses the item in `held`."""
    buckets, chances = best.buckets[query], best.chances[query]
    for t in range(len(buckets)):
        if buckets[t] == held:
            weight *= 1 - chances[t]
            break
    for t in range(len(buckets)):
        if affinity[buckets[t]] == 0:
            touched[count] = buckets[t]
            count += 1
        affinity[buckets[t]] += weight * chances[t] * best.factors[buckets[t]] + _LEAST_AFFINITY
    return count


@inner
def _drop_forbidden(affinity: Any, touched: Any, count: int, allowed: Any) -> int:
    """Drop the touched buckets that are not allowed. Return how many are left."""
    left = 0
    for t in range(count):
        bucket = touched[t]
        if allowed[bucket]:
            touched[left] = bucket
            left += 1
        else:
            affinity[bucket] = 0
    return left


@kernel
def rank_buckets(
    items: Any,
    allowed: Any,
    others: Others,
    held: Any,
    item_weight: Any,
    wanting: Wanting,
    best: BestBuckets,
    ranking: Any,
    lead: Any,
) -> None:
    """Rank the buckets of each item: first the best ones of its queries, then the `others`.

    Parameters
    ----------
    items : int array of shape (n,)
    allowed : bool array of shape (B,)
        The buckets that may be ranked.
    held : int array of shape (N,)
        The bucket that already holds the item, or -1. Queries that find the item there count less.
    item_weight : float array of shape (N,)
        The weight of the item itself as a query. 0 where items are not queries.
    ranking : int array of shape (n, count)
        Written: the best buckets, best first, padded with -1.
    lead : float array of shape (n,)
        Written: best minus second-best affinity.
    """
    affinity = np.zeros(len(allowed), dtype=np.float32)
    touched = np.arange(len(allowed)).astype(np.int32)
    wanted = ranking.shape[1]
    value, scores = np.empty(wanted, dtype=np.float32), np.empty(len(allowed), dtype=np.float32)
    for row in range(len(items)):
        item = items[row]
        count = 0
        if item_weight[item] > 0:
            weight = item_weight[item]
            count = _add_scores(affinity, touched, count, held[item], weight, best, item)
        for e in range(wanting.indptr[item], wanting.indptr[item + 1]):
            weight = wanting.weights[e]
            query = wanting.queries[e]
            count = _add_scores(affinity, touched, count, held[item], weight, best, query)
        count = _drop_forbidden(affinity, touched, count, allowed)
        if len(others.buckets) > 0:
            for j in range(others.buckets.shape[1]):
                bucket = others.buckets[row, j]
                if affinity[bucket] == 0:
                    affinity[bucket] = max(others.suits[row, j], _LEAST_SUIT) * _LEAST_AFFINITY
                    touched[count] = bucket
                    count += 1
        value[:] = -1
        ranking[row] = -1
        bound, equal, found = np.float32(-1.0), 0, 0
        if count > wanted:
            for t in range(count):
                scores[t] = affinity[touched[t]]
            bound = kth_largest(scores[:count], wanted)
            equal = (scores[:wanted] == bound).sum()  # ties with the bound that are kept
        for t in range(count):
            bucket = touched[t]
            score = affinity[bucket]
            affinity[bucket] = 0
            if score > bound or (score == bound and equal > 0):
                equal -= score == bound
                value[found], ranking[row, found] = score, bucket
                found += 1
        order = np.argsort(-value[:found], kind="mergesort")
        value[:found], ranking[row, :found] = value[order], ranking[row, order]
        lead[row] = value[0] - value[min(1, wanted - 1)]
