"""How a label index is learned: the buckets by Algorithm 1, then the ranker on what they find.

Everything is chosen on held-out rows: the score, the number of probes, whether the ranker helps and
how much it weighs. The ranker that judges has not seen them; the one that stays has.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.config import LABEL_SCORES, Recipe
from irli.fusion import INDEX_ALONE, Fusion, fit_fusion, pair_margins
from irli.hashing import UniversalHash
from irli.labelbytes import as_bytes
from irli.labelkernels import FrozenLabels
from irli.labelling import Labeller, LabelParameters
from irli.labelmetrics import (
    inverse_propensity,
    precision,
    propensity_scored_precision,
    recall,
)
from irli.labelproblem import Split
from irli.lens import tiles
from irli.nearrows import near_labels
from irli.partition import Partition
from irli.problem import Rows, Sparse
from irli.ranker import Ranker, train_ranker, usual_values
from irli.router import Router

log = logging.getLogger(__name__)

_SHORTLIST = 200  # labels that the index proposes for a row, as lessons for the ranker and to rank
_FOR_EACH = 4  # and so many more for each label that a row carries on average
_MANY = 10  # labels of a row, on average, from which on what near rows carry is a lesson
_COST = 0.5
_PRUNES = (0.02, 0.03, 0.04, 0.06)  # what a weight must add to a usual row's margin, to be kept
_WORTH = 0.002  # of precision that a ranker must gain, and that a smaller one may cost
_CANDIDATES = (50, 100, 200)  # of the shortlist, that the ranker puts in order
_EQUAL = 0.0005  # of precision, that more candidates must gain
_BLOCK = 65_536  # rows whose proposals are found at once
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
    project, project_scale = as_bytes(np.stack([router.project for router in trunks]))
    out, out_scale = as_bytes(np.stack([router.coarse.T for router in routers]))
    out = np.stack([tiles(weights.T) for weights in out])
    return FrozenLabels(
        project=project,
        project_scale=project_scale,
        shift=np.stack([router.shift for router in trunks]),
        out=out,
        out_scale=out_scale,
        bias=np.stack([router.bias for router in routers]),
        offsets=np.stack(offsets),
        items=np.concatenate(items),
        share=np.concatenate(shares).astype(np.float32),
        prior=prior.astype(np.float32),
        starts=np.zeros(1, dtype=np.int64),
        gaps=np.empty(0, dtype=np.uint16),
        weights=np.empty(0, dtype=np.int8),
        scale=np.empty(0, dtype=np.float32),
        constant=np.empty(0, dtype=np.float32),
    )


def with_ranker(frozen: FrozenLabels, ranker: Ranker) -> FrozenLabels:
    """Return the index with a ranker on it."""
    return frozen._replace(
        starts=ranker.starts,
        gaps=ranker.gaps,
        weights=ranker.weights,
        scale=ranker.scale,
        constant=ranker.bias,
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
    if labels.nnz >= _MANY * labels.shape[0]:
        proposed = sp.csr_array(proposed + near_labels(ranked, labels, split.train, threads))
    judge = _ranker(ranked, labels, proposed, split.train, _PRUNES[0], recipe, threads)
    exams = []
    for probes in [count for count in _probes(frozen) if count <= parameters.probes]:
        asked = dataclasses.replace(parameters, probes=probes)
        scores, found = labeller.predict(routed[held], ranked[held], wide, asked, threads=threads)
        exams.append(Exam(asked, ranked[held], truth, found, scores, labels[split.train]))
    verdict = _judged(judge, usual_values(ranked), exams)
    alone = _quality(exams[-1].found, truth)
    log.info("held-out precision: index alone %.4f, with the ranker %.4f", alone, verdict.precise)
    if want_ranker is None and verdict.precise < alone + _WORTH:
        return Learned(frozen, parameters, INDEX_ALONE)
    everyone = np.flatnonzero(np.diff(labels.indptr))
    ranker = _ranker(ranked, labels, proposed, everyone, verdict.prune, recipe, threads)
    return Learned(with_ranker(frozen, ranker), verdict.parameters, verdict.fusion)


class Exam(NamedTuple):
    """Held-out rows with what the index finds for them, to judge a ranker by."""

    parameters: LabelParameters
    rows: Sparse  # (n, D)
    truth: Sparse  # (n, L)
    found: NDArray[np.int64]  # (n, C), best first
    scores: NDArray[np.float32]  # (n, C)
    known: Sparse  # (training rows, L)

    def first(self, count: int) -> Exam:
        """Return the exam with fewer candidates."""
        return self._replace(
            parameters=dataclasses.replace(self.parameters, candidates=count),
            found=self.found[:, :count],
            scores=self.scores[:, :count],
        )


class Mark(NamedTuple):
    """How a ranker did in an exam."""

    fusion: Fusion
    precise: float  # mean precision
    quality: float  # mean of that and of propensity-scored precision


def _mark(judge: Ranker, exam: Exam) -> Mark:
    """Fit the fusion, and see how good the best labels then are."""
    # Half-way between precision, which the common labels decide, and propensity-scored precision.
    importance = np.sqrt(importance_of(exam.known))
    weights = inverse_propensity(exam.known) if exam.known.shape[0] > 2 else importance
    there = exam.found >= 0
    scores = np.where(there, exam.scores, 0)
    margins = pair_margins(judge, exam.rows, exam.found)
    fusion = fit_fusion(margins, exam.truth, exam.found, scores, importance)
    odds = np.where(there, fusion.fused(margins, scores), -np.inf)
    order = np.argsort(-odds, axis=1, kind="stable")[:, :5]
    best = np.take_along_axis(exam.found, order, axis=1)
    precise = _quality(best, exam.truth)
    rare = np.mean([propensity_scored_precision(best, exam.truth, weights, k) for k in _ks(best)])
    return Mark(fusion, precise, (precise + float(rare)) / 2)


class Verdict(NamedTuple):
    """How to predict with a ranker, how small it may be, and how good that was."""

    parameters: LabelParameters
    prune: float
    fusion: Fusion
    precise: float


def _judged(judge: Ranker, usual: NDArray[np.float32], exams: list[Exam]) -> Verdict:
    """Choose the probes, then the candidates, the fewest of the best; then what may be pruned.

    The last of the exams probes the most buckets.
    """
    exam = _cheapest(judge, exams)
    width = exam.found.shape[1]
    counts = sorted({min(count, width) for count in (*_CANDIDATES, width)})
    exam = _cheapest(judge, [exam.first(count) for count in counts])
    tried = []
    for prune in _PRUNES:
        judge = judge.pruned(prune, usual)
        tried.append((prune, _mark(judge, exam)))
        log.info(
            "pruned at %.2f: %d weights, %.4f", prune, len(judge.weights), tried[-1][1].quality
        )
    most = max(mark.quality for _, mark in tried)
    prune, mark = [(p, mark) for p, mark in tried if mark.quality >= most - _WORTH][-1]
    return Verdict(exam.parameters, prune, mark.fusion, mark.precise)


def _cheapest(judge: Ranker, exams: list[Exam]) -> Exam:
    """Return the first of the exams, in the order of what they cost, that is as good as any."""
    marks = np.array([_mark(judge, exam).quality for exam in exams])
    for exam, mark in zip(exams, marks, strict=True):
        log.info("%s: %.4f", exam.parameters, mark)
    return exams[int(np.argmax(marks >= marks.max() - _EQUAL))]


def _proposals(
    labeller: Labeller, routed: Sparse, parameters: LabelParameters, threads: int
) -> Sparse:
    """Return what the index proposes for each row (n, L), found block by block."""
    labels, counts = [], [np.zeros(1, dtype=np.int64)]
    for start in range(0, routed.shape[0], _BLOCK):
        rows = routed[start : start + _BLOCK]
        found = labeller.predict(rows, rows, parameters.candidates, parameters, threads=threads)[1]
        there = found >= 0
        labels.append(found[there].astype(np.int32))
        counts.append(there.sum(axis=1))
    starts = np.cumsum(np.concatenate(counts))
    shape = (routed.shape[0], len(labeller.frozen.prior))
    ones = np.ones(int(starts[-1]), dtype=np.int8)
    return sp.csr_array((ones, np.concatenate(labels), starts), shape=shape)


def _ranker(
    rows: Sparse,
    labels: Sparse,
    proposed: Sparse,
    chosen: NDArray[np.int64],
    prune: float,
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
        prune=prune,
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
        prune=_PRUNES[0],
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
    tried = _probes(labeller.frozen)

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


def _probes(frozen: FrozenLabels) -> list[int]:
    """Return how many buckets may be probed."""
    buckets = frozen.bias.shape[1]
    if len(frozen.prior) == buckets:
        return [buckets]  # every label alone: nothing is saved by looking at fewer
    return sorted({min(probes, buckets) for probes in _PROBES})


def _quality(found: NDArray[np.int64], truth: Sparse) -> float:
    """Return the mean of P@1, P@3 and P@5."""
    return float(np.mean([precision(found, truth, k) for k in _ks(found)]))


def _ks(found: NDArray[np.int64]) -> list[int]:
    return [k for k in (1, 3, 5) if k <= found.shape[1]]
