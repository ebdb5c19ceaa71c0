"""Which buckets suit an item: the label affinity of section 3.2, by both definitions and mixed.

Definition 2 asks the router about the item itself, f(item). Definition 1 sums f over the queries
that want the item. Of each f only the best buckets are kept, so that neither takes an N x B array;
an item that needs more of its ranking, because those buckets are full, gets the whole of it.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.compiled import kernel, kth_largest
from irli.config import Recipe
from irli.inputs import Inputs
from irli.largest import SCORES, largest, log_sums
from irli.network import RouterNetwork
from irli.partition import kept_buckets
from irli.problem import Sparse
from irli.threads import run_all

_BLOCK = 2048
_ASKED = 4  # queries asked about an item without a vector that needs its whole ranking
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
        self.best, self.chance, self.factor = self._best(recipe.lift)
        if own:
            self.own_weight[np.diff(wanted_by.indptr) == 0] = _OWN_WEIGHT  # nobody else to ask

    def complementing(self, held: NDArray[np.int32]) -> Affinity:
        """Rank second buckets: what counts is who would miss the item in the bucket it has."""
        other = copy(self)
        other.held = held
        return other

    def __call__(self, items: NDArray[np.int64], count: int) -> Best:
        """Return the best buckets (n, count) of `items`, and best minus second-best affinity."""
        best = np.empty((len(items), count), dtype=np.int32)
        decided = np.empty(len(items), dtype=np.float32)
        whole = count > self.best.shape[1]

        def rank(start: int) -> None:
            part = slice(start, start + _BLOCK)
            rows = self._whole(items[part]) if whole else np.empty((0, 0), dtype=np.float32)
            csr = self.wanted_by
            _rank(
                items[part],
                rows,
                self.network.buckets,
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
                shape = (int(lonely.sum()), self.network.buckets)
                anywhere = np.random.default_rng(items[part][lonely]).random(shape).argsort(axis=1)
                best[part][lonely] = anywhere[:, :count]

        jobs = [partial(rank, start) for start in range(0, len(items), _BLOCK)]
        run_all(jobs, 1 if whole else torch.get_num_threads())
        return best, decided

    @torch.no_grad()
    def _best(self, lift: bool) -> tuple[NDArray[np.int32], Floats, Floats]:
        """Return the best buckets of f for each asker (a, kept), their chances, and what a chance
        of each bucket counts (B,)."""
        buckets = self.network.buckets
        kept = min(kept_buckets(len(self.askers)), buckets)
        best = np.empty((len(self.askers), kept), dtype=np.int32)
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
    def _whole(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the chances of all buckets for some items (n, B)."""
        if self.own:
            return self._chances(items)
        csr = self.wanted_by
        few = np.minimum(np.diff(csr.indptr)[items], _ASKED)
        entry = np.concatenate(
            [np.arange(s, s + n) for s, n in zip(csr.indptr[items], few, strict=True)]
        ).astype(np.int64)
        item = np.repeat(np.arange(len(items)), few)
        # Whom nobody wants goes anywhere: numbers at random, smaller than any chance.
        whole = np.random.default_rng(items).random((len(items), self.network.buckets), np.float32)
        whole *= np.float32(1e-6)
        for start in range(0, len(entry), _BLOCK):
            part = slice(start, start + _BLOCK)
            np.add.at(whole, item[part], self._chances(csr.indices[entry[part]].astype(np.int64)))
        return whole

    def _chances(self, askers: NDArray[np.int64]) -> NDArray[np.float32]:
        batch = self.askers.take(askers).to(self.network.device)
        probability = torch.softmax(self.network.score(batch, self.head), dim=1)
        chances: NDArray[np.float32] = self._chance(probability).cpu().numpy()
        return chances

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
    whole: Any,
    buckets: int,
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
    """Rank the buckets of each item: all of them if `whole` has rows, else those kept."""
    affinity = np.zeros(buckets, dtype=np.float32)
    touched = np.arange(buckets).astype(np.int32)
    wanted = ranking.shape[1]
    value, scores = np.empty(wanted, dtype=np.float32), np.empty(buckets, dtype=np.float32)
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
        if len(whole) > 0:  # what was kept comes first, then the rest by f(item)
            for b in range(buckets):
                if affinity[b] == 0:
                    affinity[b] = max(whole[row, b], _LEAST) * _NEXT_TO_NONE
                    touched[count] = b
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
