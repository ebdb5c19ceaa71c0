"""How a label index is learned: the buckets by Algorithm 1, then the ranker on what they find.

Everything is chosen on held-out rows: the score, the number of probes, whether the ranker helps and
how much it weighs. The ranker that judges has not seen them; the one that stays has.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.config import LABEL_SCORES, Recipe
from irli.fusion import INDEX_ALONE, Fusion, fit_fusion
from irli.hashing import UniversalHash
from irli.labelkernels import FrozenLabels
from irli.labelling import Labeller, LabelParameters
from irli.labelmetrics import inverse_propensity, precision, recall
from irli.labelproblem import Split
from irli.partition import Partition
from irli.problem import Rows, Sparse
from irli.ranker import Ranker, train_ranker
from irli.router import Router

log = logging.getLogger(__name__)

_SHORTLIST = 200  # labels that the index proposes for a row, as lessons for the ranker and to rank
_FOR_EACH = 4  # and so many more for each label that a row carries on average
_COST = 0.5
_PRUNE = 0.1  # weights below this are dropped: precision is the same, the model half as large
_UNSEEN = 0.1  # rows that a label without any counts for
_OTHERS = 2000  # rows that a new label is trained against, at most
_PROBES = (4, 8, 16, 32, 64, 128)
_USUAL = 3  # which of them the scores are compared at
_ENOUGH = 0.002  # of precision and recall that fewer probes may cost


class Learned(NamedTuple):
    """A label index that is ready to predict."""

    frozen: FrozenLabels
    parameters: LabelParameters
    fusion: Fusion


def hashed(rows: Rows, width: int, seed: int) -> Rows:
    """Return sparse rows with their features hashed to `width`, if they have more."""
    if width == 0 or rows.shape[1] <= width:
        return rows
    rows = sparse(rows)
    columns = UniversalHash(width, seed=seed)(rows.indices.astype(np.int64))
    folded: Sparse = sp.csr_array(
        (rows.data, columns, rows.indptr), shape=(rows.shape[0], width), copy=True
    )  # `sum_duplicates` writes
    folded.sum_duplicates()
    return folded


def sparse(rows: Rows) -> Sparse:
    """Return rows of either kind as the kernels and the ranker read them."""
    return sp.csr_array(rows) if isinstance(rows, np.ndarray) else rows


def freeze(
    routers: list[Router], partitions: list[Partition], counts: NDArray[np.int64]
) -> FrozenLabels:
    """Return an index without a ranker.

    Parameters
    ----------
    counts : int array of shape (L,)
        Rows of each label: within a bucket, the common ones are the likelier.
    """
    weight = counts + _UNSEEN
    offsets, items, shares = [], [], []
    prior = np.zeros(len(counts))
    begin = 0
    for partition in partitions:
        starts, labels = partition.inverted()
        bucket = np.repeat(np.arange(partition.buckets), np.diff(starts))
        total = np.bincount(bucket, weights=weight[labels], minlength=partition.buckets)
        share = weight[labels] / total[bucket]
        np.add.at(prior, labels, np.log(share) / len(partitions))
        offsets.append(starts + begin)
        items.append(labels)
        shares.append(share)
        begin += len(labels)
    shared = all(router.project is routers[0].project for router in routers)
    trunks = routers[:1] if shared else routers
    return FrozenLabels(
        project=np.stack([router.project for router in trunks]),
        shift=np.stack([router.shift for router in trunks]),
        linear=routers[0].linear,
        out=np.ascontiguousarray(np.stack([router.coarse.T for router in routers])),
        bias=np.stack([router.bias for router in routers]),
        offsets=np.stack(offsets),
        items=np.concatenate(items),
        share=np.concatenate(shares).astype(np.float32),
        prior=prior.astype(np.float32),
        starts=np.zeros(1, dtype=np.int64),
        ranked=np.empty(0, dtype=np.int32),
        weights=np.empty(0, dtype=np.float32),
        constant=np.empty(0, dtype=np.float32),
    )


def with_ranker(frozen: FrozenLabels, ranker: Ranker) -> FrozenLabels:
    """Return the index with a ranker on it."""
    return frozen._replace(
        starts=ranker.starts, ranked=ranker.labels, weights=ranker.weights, constant=ranker.bias
    )


def finish(
    frozen: FrozenLabels,
    rows: Rows,
    labels: Sparse,
    split: Split,
    recipe: Recipe,
    want_ranker: bool | None,
    threads: int,
) -> Learned:
    """Choose how to predict, and add the ranker if it is wanted, or if it helps."""
    routed = sparse(hashed(rows, recipe.features, recipe.seed))
    ranked = sparse(rows)
    labeller = Labeller(frozen)
    held, truth = split.held, labels[split.held]
    wide = min(_SHORTLIST + _FOR_EACH * labels.nnz // labels.shape[0], labels.shape[1])
    parameters = _chosen(labeller, routed[held], truth, wide, threads)
    if want_ranker is False:
        return Learned(frozen, parameters, INDEX_ALONE)
    proposed = _proposals(labeller, routed, parameters, threads)
    judge = _ranker(ranked, labels, proposed, split.train, recipe, threads)
    scores, found = labeller.predict(routed[held], ranked[held], wide, parameters, threads=threads)
    # Half-way between precision, which the common labels decide, and propensity-scored precision.
    importance = np.sqrt(importance_of(labels[split.train]))
    fusion = fit_fusion(judge, ranked[held], truth, found, scores, importance)
    if want_ranker is None:
        fused = Labeller(with_ranker(frozen, judge)).predict(
            routed[held], ranked[held], min(5, wide), parameters, fusion, threads
        )[1]
        alone, together = _quality(found, truth), _quality(fused, truth)
        log.info("held-out precision: index alone %.4f, with the ranker %.4f", alone, together)
        if together <= alone:
            return Learned(frozen, parameters, INDEX_ALONE)
    everyone = np.flatnonzero(np.diff(labels.indptr))
    ranker = _ranker(ranked, labels, proposed, everyone, recipe, threads)
    return Learned(with_ranker(frozen, ranker), parameters, fusion)


def _proposals(
    labeller: Labeller, routed: Sparse, parameters: LabelParameters, threads: int
) -> Sparse:
    """Return what the index proposes for each row (n, L)."""
    wide = parameters.candidates
    _, found = labeller.predict(routed, routed, wide, parameters, threads=threads)
    there = found >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    ones = np.ones(int(starts[-1]), dtype=np.float32)
    shape = (len(found), len(labeller.frozen.prior))
    return sp.csr_array((ones, found[there].astype(np.int32), starts), shape=shape)


def _ranker(
    rows: Sparse,
    labels: Sparse,
    proposed: Sparse,
    chosen: NDArray[np.int64],
    recipe: Recipe,
    threads: int,
) -> Ranker:
    importance = importance_of(labels[chosen])
    return train_ranker(
        rows[chosen],
        labels[chosen],
        proposed[chosen],
        cost=_COST,
        importance=importance,
        prune=_PRUNE,
        threads=threads,
        seed=recipe.seed,
    )


def ranker_of_new(rows: Sparse, labels: Sparse, threads: int) -> Ranker:
    """Train the classifiers of new labels against rows that do not carry them."""
    count, new = labels.shape
    some = np.random.default_rng(0).permutation(count)[:_OTHERS]
    length = np.zeros(count, dtype=np.int64)
    length[some] = new
    columns = np.tile(np.arange(new, dtype=np.int32), len(some))
    ones = np.ones(len(columns), dtype=np.float32)
    others = sp.csr_array((ones, columns, np.concatenate([[0], np.cumsum(length)])), labels.shape)
    return train_ranker(
        rows,
        labels,
        others,
        cost=_COST,
        importance=np.ones(new, dtype=np.float32),
        prune=_PRUNE,
        threads=threads,
    )


def importance_of(labels: Sparse) -> NDArray[np.float32]:
    """Return how much more the rows of rare labels weigh: by inverse propensity, from 1 up."""
    if labels.shape[0] < 3:
        return np.ones(labels.shape[1], dtype=np.float32)
    weights = inverse_propensity(labels)
    importance: NDArray[np.float32] = (weights / weights.min()).astype(np.float32)
    return importance


def _chosen(
    labeller: Labeller, rows: Sparse, truth: Sparse, wide: int, threads: int
) -> LabelParameters:
    """Choose the score, then the fewest probes that lose next to nothing."""
    buckets = labeller.frozen.bias.shape[1]
    tried = sorted({min(probes, buckets) for probes in _PROBES})
    if len(labeller.frozen.prior) == buckets:
        tried = [buckets]  # every label alone: nothing is saved by looking at fewer

    def quality(parameters: LabelParameters) -> float:
        _, found = labeller.predict(rows, rows, wide, parameters, threads=threads)
        return (_quality(found, truth) + recall(found, truth, wide)) / 2

    usual = tried[min(len(tried) - 1, _USUAL)]
    # The last of equals wins, and votes come first: they alone tell little apart.
    by_quality = sorted(
        LABEL_SCORES, key=lambda score: quality(LabelParameters(usual, wide, score))
    )
    score = by_quality[-1]
    reached = quality(LabelParameters(tried[-1], wide, score)) - _ENOUGH
    for probes in tried:
        parameters = LabelParameters(probes, wide, score)
        if quality(parameters) >= reached:
            break
    return parameters


def _quality(found: NDArray[np.int64], truth: Sparse) -> float:
    """Return the mean of P@1, P@3 and P@5."""
    ks = [k for k in (1, 3, 5) if k <= found.shape[1]]
    return float(np.mean([precision(found, truth, k) for k in ks]))
