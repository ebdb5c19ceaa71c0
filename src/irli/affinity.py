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
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from irli.config import Recipe
from irli.kernels import kernel
from irli.network import RouterNetwork
from irli.threads import run_all

_BLOCK = 2048
_KEPT = 64  # best buckets kept of each f: the rest have next to no chance of being probed
_OWN_WEIGHT = 3.0  # the item's own vector counts like three queries that want it

Best = tuple[NDArray[np.int32], NDArray[np.float32]]


class Affinity:
    """A `partition.Ranking` of buckets by the network that is being trained.

    Parameters
    ----------
    network : RouterNetwork
    items : Tensor of shape (N, d)
    strangers : Tensor of shape (n, d)
        The training queries that are no items.
    wanted_by : CSR array of shape (N, N + n)
        The weight with which each item and each stranger, as a query, wants each item.
    """

    def __init__(
        self,
        network: RouterNetwork,
        items: Tensor,
        strangers: Tensor,
        wanted_by: sp.csr_array[np.float32, tuple[int, int]],
        recipe: Recipe,
    ) -> None:
        self.network = network
        self.items = items
        self.cut = recipe.cut
        self.held = np.full(len(items), -1, dtype=np.int32)
        weight = 0.0 if recipe.affinity == "queries" else _OWN_WEIGHT
        self.own_weight = np.full(len(items), weight, dtype=np.float32)
        if recipe.affinity == "item":
            wanted_by = 0 * wanted_by
            wanted_by.eliminate_zeros()
            strangers = strangers[:0]
        self.wanted_by = wanted_by
        self.best, self.chance = self._best(torch.cat([items, strangers]))
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
                self.network.out.out_features,
                self.held,
                self.own_weight,
                csr.indptr,
                csr.indices,
                csr.data,
                self.best,
                self.chance,
                best[part],
                decided[part],
            )

        jobs = [partial(rank, start) for start in range(0, len(items), _BLOCK)]
        run_all(jobs, 1 if whole else torch.get_num_threads())
        return best, decided

    @torch.no_grad()
    def _best(self, vectors: Tensor) -> Best:
        """Return the best buckets of f for each vector (n, _KEPT), and their chances."""
        buckets = self.network.out.out_features
        kept = min(_KEPT, buckets)
        best = np.empty((len(vectors), kept), dtype=np.int32)
        chance = np.empty((len(vectors), kept), dtype=np.float32)
        for start in range(0, len(vectors), _BLOCK):
            part = slice(start, start + _BLOCK)
            logits = self.network(vectors[part].to(self.network.device))
            values, places = torch.topk(logits, kept, dim=1)
            values -= torch.logsumexp(logits, dim=1, keepdim=True)
            best[part] = places.cpu().numpy()
            chance[part] = self._chance(values.exp()).cpu().numpy()
        return best, chance

    @torch.no_grad()
    def _whole(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the chances of all buckets for some items (n, B)."""
        vectors = self.items[torch.from_numpy(items)].to(self.network.device)
        chance = self._chance(torch.softmax(self.network(vectors), dim=1))
        whole: NDArray[np.float32] = chance.cpu().numpy()
        return whole

    def _chance(self, probability: Tensor) -> Tensor:
        """The chance of being probed, when the threshold lies about `cut`."""
        return probability if self.cut == 0 else probability / (probability + self.cut)


@kernel
def _add(
    affinity: Any, touched: Any, count: int, held: int, weight: Any, best: Any, chance: Any
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
        affinity[best[t]] += weight * chance[t] + np.float32(1e-30)  # never 0 once touched
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
    ranking: Any,
    decided: Any,
) -> None:
    """Rank the buckets of each item: all of them if `whole` has rows, else those kept."""
    affinity = np.zeros(buckets, dtype=np.float32)
    touched = np.arange(buckets).astype(np.int32)
    wanted = ranking.shape[1]
    value = np.empty(wanted, dtype=np.float32)
    for row in range(len(items)):
        item = items[row]
        count = 0
        count = _add(
            affinity, touched, count, held[item], own_weight[item], best[item], chance[item]
        )
        for e in range(indptr[item], indptr[item + 1]):
            query = wanting[e]
            count = _add(
                affinity, touched, count, held[item], weight[e], best[query], chance[query]
            )
        if len(whole) > 0:  # what was kept comes first, then the rest by f(item)
            for b in range(buckets):
                if affinity[b] == 0:
                    affinity[b] = whole[row, b] * np.float32(1e-30)
                    touched[count] = b
                    count += 1
        value[:] = -1
        ranking[row] = -1
        for t in range(count):
            bucket = touched[t]
            score = affinity[bucket]
            affinity[bucket] = 0
            if score > value[wanted - 1]:
                place = wanted - 1
                while place > 0 and value[place - 1] < score:
                    value[place] = value[place - 1]
                    ranking[row, place] = ranking[row, place - 1]
                    place -= 1
                value[place] = score
                ranking[row, place] = bucket
        decided[row] = value[0] - value[min(1, wanted - 1)]
