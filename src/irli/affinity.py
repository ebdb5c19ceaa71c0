"""Which buckets suit an item: the label affinity of section 3.2, by both definitions and mixed.

Definition 2 asks the router about the item itself, f(item). Definition 1 sums f over the queries
that want the item. Of each f only the best buckets are kept, so that neither takes an N x B array;
an item that needs others, because those are full, has them ranked for it.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.compiled import inner, kernel, kth_largest
from irli.config import Recipe
from irli.inputs import Inputs
from irli.largest import SCORES, largest, log_sums
from irli.network import RouterNetwork
from irli.partition import kept_buckets
from irli.problem import Sparse
from irli.threads import run_all

_BLOCK = 2048  # queries asked at once about items without vectors
_PART = 128  # items for a thread at a time
_NOTHING = np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.float32)
_ASKED = 4  # queries asked about an item without a vector whose buckets are full
_NEXT_TO_NONE = np.float32(1e-15)  # what a bucket has at least once it was named
_LEAST = np.float32(1e-20)  # below, numbers would be so small that processors take long over them
_OWN_WEIGHT = 3.0  # the item's own vector counts like three queries that want it

Floats = NDArray[np.float32]
Best = tuple[NDArray[np.int32], Floats]


class Affinity:
    """A `partition.Ranking` of buckets by a network that is being trained.

    Parameters
    ----------
    network : RouterNetwork
    head : int
        Which of its routers.
    askers : Inputs of length a
        All that the router is asked about: the items, where they are points of the query space,
        and then the training queries that are no items.
    wanted_by : CSR array of shape (N, a)
        The weight with which each of them, as a query, wants each item.
    own : bool
        Whether the first N askers are the items.
    """

    def __init__(
        self,
        network: RouterNetwork,
        head: int,
        askers: Inputs,
        wanted_by: Sparse,
        recipe: Recipe,
        own: bool = True,
    ) -> None:
        self.network, self.head = network, head
        self.askers, self.own = askers, own
        self.cut = recipe.cut
        items = wanted_by.shape[0]
        self.held = np.full(items, -1, dtype=np.int32)
        weight = 0.0 if recipe.affinity == "queries" or not own else _OWN_WEIGHT
        self.own_weight = np.full(items, weight, dtype=np.float32)
        if recipe.affinity == "item":
            wanted_by = 0 * wanted_by
            wanted_by.eliminate_zeros()
        self.wanted_by = wanted_by
        self.best, self.chance, self.factor = self._best(recipe.lift, recipe.choices)
        if own:
            self.own_weight[np.diff(wanted_by.indptr) == 0] = _OWN_WEIGHT  # nobody else to ask

    def complementing(self, held: NDArray[np.int32]) -> Affinity:
        """Rank second buckets: what counts is who would miss the item in the bucket it has."""
        other = copy(self)
        other.held = held
        return other

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> Best:
        """Return the best buckets (n, count) of `items`, and best minus second-best affinity."""
        best = np.empty((len(items), count), dtype=np.int32)
        decided = np.empty(len(items), dtype=np.float32)
        buckets = np.arange(self.network.buckets) if among is None else among
        if among is None and count <= self.best.shape[1]:
            self._rank(items, buckets, _NOTHING, best, decided)
        else:
            size = max(1, SCORES // self.network.buckets)
            for start in range(0, len(items), size):
                part = slice(start, start + size)
                others = self._others(items[part], buckets, count)
                self._rank(items[part], buckets, others, best[part], decided[part])
        return best, decided

    def _rank(
        self,
        items: NDArray[np.int64],
        buckets: NDArray[np.int64],
        others: Best,
        best: NDArray[np.int32],
        decided: Floats,
    ) -> None:
        """Write the ranking of `items`, on all threads."""
        allowed = np.zeros(self.network.buckets, dtype=np.bool_)
        allowed[buckets] = True
        csr = self.wanted_by

        def rank(start: int) -> None:
            part = slice(start, start + _PART)
            _rank(
                items[part],
                allowed,
                others[0][part],
                others[1][part],
                self.held,
                self.own_weight,
                csr.indptr,
                csr.indices,
                csr.data,
                self.best,
                self.chance,
                self.factor,
                best[part],
                decided[part],
            )
            lonely = best[part][:, 0] < 0
            if lonely.any():  # nobody wants them: they go anywhere
                shape = (int(lonely.sum()), len(buckets))
                anywhere = np.random.default_rng(items[part][lonely]).random(shape).argsort(axis=1)
                there = min(best.shape[1], len(buckets))
                best[start : start + _PART, :there][lonely] = buckets[anywhere[:, :there]]

        jobs = [partial(rank, start) for start in range(0, len(items), _PART)]
        run_all(jobs, torch.get_num_threads())

    @torch.no_grad()
    def _best(self, lift: bool, choices: int) -> tuple[NDArray[Any], Floats, Floats]:
        """Return the best buckets of f for each asker (a, kept), their chances, and what a chance
        of each bucket counts (B,)."""
        buckets = self.network.buckets
        kept = min(kept_buckets(len(self.askers), choices), buckets)
        narrow = buckets <= 1 << 16  # what is kept of all items is most of what learning takes
        best = np.empty((len(self.askers), kept), dtype=np.uint16 if narrow else np.int32)
        chance = np.empty((len(self.askers), kept), dtype=np.float32)
        marginal = torch.zeros(buckets, device=self.network.device)
        for part, block in self.askers.blocks(max(1, SCORES // buckets)):
            logits = self.network.score(block.to(self.network.device), self.head)
            total = log_sums(logits)
            values, places = largest(logits, kept)
            best[part] = places.cpu().numpy()
            chance[part] = self._chance((values - total).exp()).cpu().numpy()
            if lift:
                marginal += self._chance((logits - total).exp_()).sum(dim=0)
        if lift:  # how much more than on average: else a young network's favourites take all
            mean = marginal.cpu().numpy() / len(self.askers)
            return best, chance, (1 / np.maximum(mean, 1e-12)).astype(np.float32)
        return best, chance, np.ones(buckets, dtype=np.float32)

    @torch.no_grad()
    def _others(self, items: NDArray[np.int64], buckets: NDArray[np.int64], count: int) -> Best:
        """Return the best of these buckets for some items by f alone (n, count), and how well they
        suit: 1 for the best of all."""
        suit = self._suit(items, buckets)
        values, places = largest(suit, min(count, len(buckets)))
        values /= values[:, :1].clamp(min=1e-30)
        return buckets[places.numpy()].astype(np.int32), values.numpy()

    def _suit(self, items: NDArray[np.int64], buckets: NDArray[np.int64]) -> Tensor:
        """Return how well these buckets suit some items by f alone (n, buckets)."""
        if self.own:
            logits = self._scores(items)[:, buckets]
            return (logits - logits.amax(dim=1, keepdim=True)).exp_()
        csr = self.wanted_by
        few = np.minimum(np.diff(csr.indptr)[items], _ASKED)
        entry = np.concatenate(
            [np.arange(s, s + n) for s, n in zip(csr.indptr[items], few, strict=True)]
        ).astype(np.int64)
        item = np.repeat(np.arange(len(items)), few)
        # Whom nobody wants goes anywhere: numbers at random, smaller than any chance.
        suit = np.random.default_rng(items).random((len(items), len(buckets)), np.float32)
        suit *= np.float32(1e-6)
        for start in range(0, len(entry), _BLOCK):
            part = slice(start, start + _BLOCK)
            scores = self._scores(csr.indices[entry[part]].astype(np.int64))
            np.add.at(suit, item[part], self._chance(torch.softmax(scores, dim=1))[:, buckets])
        return torch.from_numpy(suit)

    def _scores(self, askers: NDArray[np.int64]) -> Tensor:
        batch = self.askers.take(askers).to(self.network.device)
        return self.network.score(batch, self.head).cpu()

    def _chance(self, probability: Tensor) -> Tensor:
        """The chance of being probed, when the threshold lies about `cut`."""
        return probability if self.cut == 0 else probability / (probability + self.cut)


@kernel
def _add(
    affinity: Any,
    touched: Any,
    count: int,
    held: int,
    weight: Any,
    best: Any,
    chance: Any,
    factor: Any,
) -> int:
    """Add one f, weighted by the chance that it misses the item in the bucket it has."""
    for t in range(len(best)):
        if best[t] == held:
            weight *= 1 - chance[t]
            break
    for t in range(len(best)):
        if affinity[best[t]] == 0:
            touched[count] = best[t]
            count += 1
        affinity[best[t]] += weight * chance[t] * factor[best[t]] + _NEXT_TO_NONE
    return count


@kernel
def _rank(
    items: Any,
    allowed: Any,
    others: Any,
    suit: Any,
    held: Any,
    own_weight: Any,
    indptr: Any,
    wanting: Any,
    weight: Any,
    best: Any,
    chance: Any,
    factor: Any,
    ranking: Any,
    decided: Any,
) -> None:
    """Rank for each item the kept buckets that are allowed, and then the `others`."""
    affinity = np.zeros(len(allowed), dtype=np.float32)
    touched = np.arange(len(allowed)).astype(np.int32)
    wanted = ranking.shape[1]
    value, scores = np.empty(wanted, dtype=np.float32), np.empty(len(allowed), dtype=np.float32)
    for row in range(len(items)):
        item = items[row]
        count = 0
        if own_weight[item] > 0:
            count = _add(
                affinity,
                touched,
                count,
                held[item],
                own_weight[item],
                best[item],
                chance[item],
                factor,
            )
        for e in range(indptr[item], indptr[item + 1]):
            query = wanting[e]
            count = _add(
                affinity, touched, count, held[item], weight[e], best[query], chance[query], factor
            )
        count = _only(affinity, touched, count, allowed)
        if len(others) > 0:
            for j in range(others.shape[1]):
                if affinity[others[row, j]] == 0:
                    affinity[others[row, j]] = max(suit[row, j], _LEAST) * _NEXT_TO_NONE
                    touched[count] = others[row, j]
                    count += 1
        value[:] = -1
        ranking[row] = -1
        bound, equal, found = np.float32(-1.0), 0, 0
        if count > wanted:
            for t in range(count):
                scores[t] = affinity[touched[t]]
            bound = kth_largest(scores[:count], wanted)
            equal = (scores[:wanted] == bound).sum()  # so many, of those that are no larger
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
        decided[row] = value[0] - value[min(1, wanted - 1)]


@inner
def _only(affinity: Any, touched: Any, count: int, allowed: Any) -> int:
    """Forget the touched buckets that are not allowed; return how many are left."""
    left = 0
    for t in range(count):
        bucket = touched[t]
        if allowed[bucket]:
            touched[left] = bucket
            left += 1
        else:
            affinity[bucket] = 0
    return left
