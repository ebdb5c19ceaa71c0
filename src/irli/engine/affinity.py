"""Rank the buckets of each item by the router scores of its queries (native/affinity.cpp).

`irli.learning.affinity` computes the scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import _native


class BestBuckets(NamedTuple):
    """The best buckets of each query by its router score f, and the chance that each is probed."""

    buckets: NDArray[Any]  # (queries, kept): uint16 or int32
    chances: NDArray[np.float32]  # (queries, kept)
    factors: NDArray[np.float32]  # (B,): each chance is multiplied by the factor of its bucket


class Wanting(NamedTuple):
    """The queries to which each item is relevant, as a CSR of shape (N, queries)."""

    indptr: NDArray[Any]  # int32 or int64, and `queries` the same
    queries: NDArray[Any]
    weights: NDArray[np.float32]


class Others(NamedTuple):
    """More buckets for some items, ranked by f alone. Of shape (0, 0) if there are none."""

    buckets: NDArray[np.int32]  # (n, count)
    suits: NDArray[np.float32]  # (n, count): the score, relative to that of the best bucket


def rank_buckets(
    items: NDArray[np.int64],
    allowed: NDArray[np.bool_],
    others: Others,
    held: NDArray[np.int32],
    item_weight: NDArray[np.float32],
    wanting: Wanting,
    best: BestBuckets,
    ranking: NDArray[np.int32],
    lead: NDArray[np.float32],
) -> None:
    """Rank the buckets of each item: first the best ones of its queries, then the `others`.

    Parameters
    ----------
    items : int64 array of shape (n,)
    allowed : bool array of shape (B,)
        The buckets of the queries that may be ranked. The `others` must all be allowed.
    held : int32 array of shape (N,)
        The bucket that already holds the item, or -1. Queries that find the item there count less.
    item_weight : float32 array of shape (N,)
        The weight of the item itself as a query. 0 where items are not queries.
    ranking : int32 array of shape (n, count)
        Written: the best buckets, best first, padded with -1.
    lead : float32 array of shape (n,)
        Written: best minus second-best affinity.

    Examples
    --------
    >>> buckets, chances = np.array([[2, 0]], dtype="u2"), np.array([[0.7, 0.2]], dtype="f4")
    >>> best = BestBuckets(buckets, chances, factors=np.ones(3, dtype="f4"))
    >>> wanting = Wanting(np.array([0, 1]), np.array([0]), np.ones(1, dtype="f4"))
    >>> nothing = Others(np.empty((0, 0), dtype="i4"), np.empty((0, 0), dtype="f4"))
    >>> ranking, lead = np.empty((1, 3), dtype="i4"), np.empty(1, dtype="f4")
    >>> held, weight = np.array([-1], dtype="i4"), np.zeros(1, dtype="f4")
    >>> allowed = np.ones(3, dtype=bool)
    >>> rank_buckets(np.array([0]), allowed, nothing, held, weight, wanting, best, ranking, lead)
    >>> ranking
    array([[ 2,  0, -1]], dtype=int32)
    """
    _native.rank_buckets(
        items,
        allowed,
        others.buckets,
        others.suits,
        held,
        item_weight,
        wanting.indptr,
        wanting.queries,
        wanting.weights,
        best.buckets,
        best.chances,
        best.factors,
        ranking,
        lead,
    )
