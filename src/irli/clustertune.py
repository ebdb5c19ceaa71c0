"""Choosing search parameters for all shards together.

Every shard knows how to tune itself, but the whole needs less of each: most of the true neighbours
of a query are the nearest ones of the shards that hold them, and those are the easiest to find. So
the shards propose parameters for a few recalls among their own items, each for another one, and the
cheapest proposal that reaches the recall on the merged answers is taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.checks import check_float, check_int
from irli.clustermerge import merged
from irli.clusterserve import Answers
from irli.searching import SearchParameters
from irli.tuning import Tuned
from irli.vectors import SearchResult

log = logging.getLogger(__name__)

_HELD_MOST = 500  # queries to tune by
_EASIER = (4.0, 2.0, 1.0)  # times the misses that the whole may have, in each shard
_HARDER = (0.5, 0.0)  # in case that none of these is enough

Ask = Callable[..., Answers]  # (method, *arguments); with each=True the first has one per shard
Search = Callable[[NDArray[np.float32], int, SearchParameters], SearchResult]


def tune_shards(
    ask: Ask,
    search: Search,
    shards: int,
    metric: str,
    recall: float,
    k: int,
    queries: NDArray[np.float32] | None,
    held: NDArray[np.float32],
) -> Tuned:
    """Find parameters for all shards whose merged answers reach `recall` at k.

    Parameters
    ----------
    queries : array of shape (n, d), optional
        Queries to tune by; by default items that all shards held out, and `held`.
    held : array of shape (v, d)
        Sample queries that no shard has learned from.
    """
    check_float("recall", recall, at_least=0.0, at_most=1.0, owner="tune")
    check_int("k", k, at_least=1, owner="tune")
    if shards == 1:
        only: Tuned = ask("propose", [recall], k, queries).values[0][0]
        return only
    trial = _Trial(ask, search, metric, k, shards, queries, held)
    tried: list[Tuned] = []
    for proposal in _proposals(ask, shards, recall, k, queries):
        tuned = trial.measured(proposal, recall)
        if tuned.reached:
            return tuned
        tried.append(tuned)
    best = max(tried, key=lambda tuned: tuned.recall)
    log.warning(
        "tune: recall %.3f at k=%d is out of reach; the best is %.3f", recall, k, best.recall
    )
    return best


def _proposals(
    ask: Ask, shards: int, recall: float, k: int, queries: Any
) -> Iterator[SearchParameters]:
    """Yield what the shards propose, the fastest first, each once."""
    known: list[SearchParameters] = []
    for misses in (_EASIER, _HARDER):
        recalls = [max(0.0, 1 - share * (1 - recall)) for share in misses]
        turns = [recalls[s::shards] or [recalls[s % len(recalls)]] for s in range(shards)]
        answers = ask("propose", turns, k, queries, each=True).values
        for tuned in sorted((t for own in answers for t in own), key=lambda t: t.seconds):
            if tuned.parameters not in known:
                known.append(tuned.parameters)
                yield tuned.parameters


class _Trial:
    """Queries with their true neighbours among all items."""

    def __init__(
        self,
        ask: Ask,
        search: Search,
        metric: str,
        k: int,
        shards: int,
        queries: NDArray[np.float32] | None,
        held: NDArray[np.float32],
    ) -> None:
        self.search, self.k = search, k
        self.own = np.full(0 if queries is None else len(queries), -1)
        if queries is None:
            parts = ask("held", -(-_HELD_MOST // shards)).values
            queries = np.concatenate([*(part[0] for part in parts), held])
            strangers = np.full(len(held), -1)
            self.own = np.concatenate([*(part[1] for part in parts), strangers])
        self.queries = queries
        near = merged(ask("nearest", queries, k + 1).values, k + 1, metric)
        self.truth = self._without_own(near.ids)

    def measured(self, parameters: SearchParameters, recall: float) -> Tuned:
        """Return the recall of the merged answers, and the time of a query in a batch."""
        start = perf_counter()
        found = self._without_own(self.search(self.queries, self.k + 1, parameters).ids)
        seconds = (perf_counter() - start) / max(1, len(self.queries))
        wanted = self.truth >= 0
        hit = (self.truth[:, :, None] == found[:, None, :]).any(axis=2)
        reached = float(hit[wanted].mean()) if wanted.any() else 1.0
        return Tuned(parameters, reached, seconds, reached >= recall)

    def _without_own(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return k of k + 1 ids: all but the item that the query is, or but the last."""
        mine = (ids == self.own[:, None]) & (ids >= 0)
        mine[~mine.any(axis=1), -1] = True
        others: NDArray[np.int64] = ids[~mine].reshape(len(ids), -1)
        return others
