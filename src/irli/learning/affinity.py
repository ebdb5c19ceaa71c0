"""Label affinity (section 3.2): score items and queries with the network and rank the buckets.

Definition 2 is the router's score of the item itself, f(item). Definition 1 is the sum of f over
the queries to which the item is relevant. `Affinity` keeps only the best buckets of each f, so that
no N x B array is needed. For an item whose best buckets are full, more buckets are ranked.
`SummedAffinity` sums f over all buckets, for a block of items at a time.
"""

from __future__ import annotations

from copy import copy
from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.threads import run_all
from irli.base.types import Sparse
from irli.engine.affinity import BestBuckets, Others, Wanting, rank_buckets
from irli.engine.top_k import SCORES, top_k
from irli.learning.batches import Inputs
from irli.learning.network import Network, log_scores
from irli.learning.sizes import bucket_dtype, count_kept_buckets
from irli.learning.threads import current_threads

_BLOCK = 2048  # queries scored at a time, for items without vectors
_PART = 128  # items for a thread at a time
_NO_OTHERS = Others(np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.float32))
_FEW = 4  # queries that rank more buckets for an item without a vector
_SUMS, _SUMMED = 1 << 25, 1 << 24  # affinities in a block of items, scores in a block of queries
_PROBE_CUT = 0.005
_ITEM_WEIGHT = 3.0  # f of the item itself counts as much as f of three queries

Floats = NDArray[np.float32]
Best = tuple[NDArray[np.int32], Floats]


def choose_probe_cut(recipe: Recipe) -> float:
    """Return c: a probability p counts as p / (p + c), the chance that a bucket is probed."""
    return _PROBE_CUT if recipe.affinity == "both" else 0.0


class Affinity:
    """A `partition.Ranking` of buckets by the network that is being trained.

    Parameters
    ----------
    network : Network
    head : int
        The head of the network, one for each repetition.
    points : Inputs of length a
        All points that the router scores: `Problem.scored_points`.
    wanted_by : CSR array of shape (N, a)
        The relevance of each item to each point as a query.
    items_are_queries : bool
        Whether the first N points are the items.
    """

    def __init__(
        self,
        network: Network,
        head: int,
        points: Inputs,
        wanted_by: Sparse,
        recipe: Recipe,
        items_are_queries: bool = True,
    ) -> None:
        self.network, self.head = network, head
        self.points, self.items_are_queries = points, items_are_queries
        self.probe_cut = choose_probe_cut(recipe)
        items = wanted_by.shape[0]
        self.held = np.full(items, -1, dtype=np.int32)
        by_item = recipe.affinity != "queries" and items_are_queries
        self.item_weight = np.full(items, _ITEM_WEIGHT if by_item else 0.0, dtype=np.float32)
        self.wanted_by = wanted_by
        self.best = self._find_best(recipe)
        if items_are_queries:  # an item that is relevant to no query is ranked by f(item)
            self.item_weight[np.diff(wanted_by.indptr) == 0] = _ITEM_WEIGHT

    def complementing(self, held: NDArray[np.int32]) -> Affinity:
        """Return a ranking of second buckets, for the queries that miss the item in `held`."""
        other = copy(self)
        other.held = held
        return other

    def beside(self, held: NDArray[np.int32] | None) -> Affinity:
        """Return the ranking of the first bucket, or of the second one beside those in `held`."""
        return self if held is None else self.complementing(held)

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> Best:
        """Return the best buckets (n, count) of `items`, and how far the best one leads."""
        best = np.empty((len(items), count), dtype=np.int32)
        lead = np.empty(len(items), dtype=np.float32)
        buckets = np.arange(self.network.buckets) if among is None else among
        if among is None and count <= self.best.buckets.shape[1]:
            self._rank(items, buckets, _NO_OTHERS, best, lead)
        else:
            size = max(1, SCORES // self.network.buckets)
            for start in range(0, len(items), size):
                part = slice(start, start + size)
                others = self._rank_others(items[part], buckets, count)
                self._rank(items[part], buckets, others, best[part], lead[part])
        return best, lead

    def _rank(
        self,
        items: NDArray[np.int64],
        buckets: NDArray[np.int64],
        others: Others,
        best: NDArray[np.int32],
        lead: Floats,
    ) -> None:
        """Write the ranking of `items`, on all threads."""
        allowed = np.zeros(self.network.buckets, dtype=np.bool_)
        allowed[buckets] = True
        wanting = Wanting(self.wanted_by.indptr, self.wanted_by.indices, self.wanted_by.data)

        def rank(start: int) -> None:
            part = slice(start, start + _PART)
            rank_buckets(
                items[part],
                allowed,
                Others(others.buckets[part], others.suits[part]),
                self.held,
                self.item_weight,
                wanting,
                self.best,
                best[part],
                lead[part],
            )
            unwanted = best[part][:, 0] < 0
            if unwanted.any():  # relevant to no query, so any bucket will do
                width = min(best.shape[1], len(buckets))
                drawn = _draw_buckets(items[part][unwanted], buckets, width)
                best[start : start + _PART, :width][unwanted] = drawn

        jobs = [partial(rank, start) for start in range(0, len(items), _PART)]
        run_all(jobs, current_threads())

    def _find_best(self, recipe: Recipe) -> BestBuckets:
        """Return the best buckets of each point by f, and the chance that each is probed."""
        buckets, normalize = self.network.buckets, recipe.affinity == "queries"
        kept = min(count_kept_buckets(len(self.points), recipe), buckets)
        best = np.empty((len(self.points), kept), dtype=bucket_dtype(buckets))
        chance = np.empty((len(self.points), kept), dtype=np.float32)
        marginal = np.zeros(buckets) if normalize else None
        for part, block in self.points.blocks(max(1, SCORES // buckets)):
            places, values = self.network.rank(block, self.head, kept, marginal)
            best[part], chance[part] = places, self._to_chance(np.exp(values))
        if marginal is None:
            return BestBuckets(best, chance, np.ones(buckets, dtype=np.float32))
        # Relative to the mean: early in training, the same few buckets score highest for all.
        mean = marginal / len(self.points)
        return BestBuckets(best, chance, (1 / np.maximum(mean, 1e-12)).astype(np.float32))

    def _rank_others(
        self, items: NDArray[np.int64], buckets: NDArray[np.int64], count: int
    ) -> Others:
        """Return the best of `buckets` for some items, ranked by f alone."""
        suit = self._score_suits(items, buckets)
        values, places = top_k(suit, min(count, len(buckets)), current_threads())
        values /= np.maximum(values[:, :1], np.float32(1e-30))
        return Others(buckets[places].astype(np.int32), values)

    def _score_suits(self, items: NDArray[np.int64], buckets: NDArray[np.int64]) -> Floats:
        """Return the scores of `buckets` for some items by f alone: (n, buckets)."""
        if self.items_are_queries:
            logits = self._score(items)[:, buckets]
            return np.asarray(np.exp(logits - logits.max(axis=1, keepdims=True)))
        csr = self.wanted_by
        few = np.minimum(np.diff(csr.indptr)[items], _FEW)
        entry = np.concatenate(
            [np.arange(s, s + n) for s, n in zip(csr.indptr[items], few, strict=True)]
        ).astype(np.int64)
        item = np.repeat(np.arange(len(items)), few)
        # Small random scores decide for an item that is relevant to no query.
        suit = np.random.default_rng(items).random((len(items), len(buckets)), np.float32)
        suit *= np.float32(1e-6)
        for start in range(0, len(entry), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores = self._score(csr.indices[entry[part]].astype(np.int64))
            chances = self._to_chance(np.exp(log_scores(scores, "softmax")))
            np.add.at(suit, item[part], chances[:, buckets])
        return suit

    def _score(self, points: NDArray[np.int64]) -> Floats:
        return self.network.score(self.points.take(points), self.head)

    def _to_chance(self, probability: Floats) -> Floats:
        """Return the chance that a bucket is probed if the threshold is about `probe_cut`."""
        if self.probe_cut == 0:
            return probability
        return np.asarray(probability / (probability + np.float32(self.probe_cut)))


class SummedAffinity(Affinity):
    """Definition 1 as it is: a ranking by the sum of f over the queries that want an item.

    f is what `loss` trains: a sigmoid or a softmax. Each query counts once. An item that is
    relevant to no query is ranked by f(item), or at random if it has no vector.
    """

    def __init__(
        self,
        network: Network,
        head: int,
        points: Inputs,
        wanted_by: Sparse,
        loss: str,
        items_are_queries: bool = True,
    ) -> None:
        self.network, self.head, self.points, self.loss = network, head, points, loss
        self.wanted_by = sp.csr_array(wanted_by, copy=True)
        self.wanted_by.data[:] = 1
        if items_are_queries:
            unwanted = (np.diff(wanted_by.indptr) == 0).astype(np.float32)
            own = sp.diags_array(unwanted, shape=wanted_by.shape, format="csr")
            self.wanted_by = sp.csr_array(self.wanted_by + own)
            self.wanted_by.eliminate_zeros()

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> Best:
        """Return the best buckets (n, count) of `items`, and how far the best one leads."""
        buckets = np.arange(self.network.buckets) if among is None else among
        width = min(count, len(buckets))
        best = np.full((len(items), count), -1, dtype=np.int32)
        lead = np.zeros(len(items), dtype=np.float32)
        size = max(1, _SUMS // self.network.buckets)
        for start in range(0, len(items), size):
            some = items[start : start + size]
            sums = self._sum_scores(some)
            chosen = sums if among is None else sums[:, among]
            values, places = top_k(chosen, width, current_threads())
            best[start : start + size, :width] = buckets[places]
            lead[start : start + size] = values[:, 0] - values[:, min(1, width - 1)]
            unwanted = np.flatnonzero(np.diff(self.wanted_by.indptr)[some] == 0)
            if len(unwanted):
                best[start + unwanted, :width] = _draw_buckets(some[unwanted], buckets, width)
        return best, lead

    def _sum_scores(self, items: NDArray[np.int64]) -> Floats:
        """Return the affinities of some items to all buckets (n, B)."""
        buckets = self.network.buckets
        wanting = self.wanted_by[items].tocsc()
        points = np.flatnonzero(np.diff(wanting.indptr))
        sums = np.zeros((len(items), buckets), dtype=np.float32)
        step = max(1, _SUMMED // buckets)
        for start in range(0, len(points), step):
            some = points[start : start + step]
            logits = self.network.score(self.points.take(some), self.head)
            sums += wanting[:, some].tocsr() @ np.exp(log_scores(logits, self.loss))
        return sums


def _draw_buckets(
    items: NDArray[np.int64], buckets: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return `count` random buckets for each item (n, count)."""
    draws = np.random.default_rng(items).random((len(items), len(buckets)))
    return buckets[draws.argsort(axis=1)[:, :count]]
