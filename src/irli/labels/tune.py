"""The last phase for labels: choose how to predict, and train the ranker if it helps.

Everything is chosen on held-out rows: the score, the number of probes, whether the ranker helps and
how much it weighs. The ranker that is judged has not seen these rows. The one that is kept is then
trained on all rows.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.assemble import add_ranker
from irli.labels.calibration import INDEX_ALONE, Calibration, compute_pair_margins, fit_calibration
from irli.labels.features import as_sparse, hash_features
from irli.labels.hard_negatives import find_near_labels
from irli.labels.metrics import (
    inverse_propensity,
    precision,
    propensity_scored_precision,
    recall,
)
from irli.labels.parameters import SCORES, LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.problem import Split
from irli.labels.ranker import COST, LEAST_PRUNE, Ranker, train_ranker, usual_values

log = logging.getLogger(__name__)

_SHORTLIST = 200  # labels that the index proposes for a row: the ranker learns from and ranks them
_FOR_EACH = 4  # more of them for each label that a row carries on average
_MANY = 10  # labels of a row, on average, from which on labels of near rows are negatives too
_PRUNES = (LEAST_PRUNE, 0.03, 0.04, 0.06)  # what a weight must add to a usual row's margin
_WORTH = 0.002  # of precision that a ranker must gain, and that a smaller one may cost
_CANDIDATES = (50, 100, 200)  # of the shortlist, that the ranker puts in order
_EQUAL = 0.0005  # of precision, that more candidates must gain
_BLOCK = 65_536  # rows whose proposals are found at once
_PROBES = (4, 8, 16, 32, 64, 128)
_USUAL = 3  # which of them the scores are compared at
_ENOUGH = 0.002  # of precision and recall that fewer probes may cost


class LabelModel(NamedTuple):
    """A label index that is ready to predict."""

    layout: LabelLayout
    parameters: LabelParameters
    calibration: Calibration


def tune_labels(
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    split: Split,
    recipe: Recipe,
    want_ranker: bool | None,
    threads: int,
) -> LabelModel:
    """Choose how to predict, and add the ranker if it is wanted or helps: the last phase."""
    routed = as_sparse(hash_features(rows, recipe))
    ranked = as_sparse(rows)
    predictor = Predictor(layout)
    held, truth = split.held, labels[split.held]
    wide = min(_SHORTLIST + _FOR_EACH * labels.nnz // labels.shape[0], labels.shape[1])
    parameters = _choose_parameters(predictor, routed[held], truth, wide, threads)
    if want_ranker is False:
        return LabelModel(layout, parameters, INDEX_ALONE)
    proposed = _propose(predictor, routed, parameters, threads)
    if labels.nnz >= _MANY * labels.shape[0]:
        proposed = sp.csr_array(proposed + find_near_labels(ranked, labels, split.train, threads))
    judge = _train(ranked, labels, proposed, split.train, _PRUNES[0], recipe, threads)
    exams = []
    for probes in [count for count in _list_probes(layout) if count <= parameters.probes]:
        asked = dataclasses.replace(parameters, probes=probes)
        scores, found = predictor.predict(routed[held], ranked[held], wide, asked, threads=threads)
        exams.append(Exam(asked, ranked[held], truth, found, scores, labels[split.train]))
    verdict = _choose_ranking(judge, usual_values(ranked), exams)
    alone = _mean_precision(exams[-1].found, truth)
    log.info("held-out precision: index alone %.4f, with the ranker %.4f", alone, verdict.precise)
    if want_ranker is None and verdict.precise < alone + _WORTH:
        return LabelModel(layout, parameters, INDEX_ALONE)
    everyone = np.flatnonzero(np.diff(labels.indptr))
    ranker = _train(ranked, labels, proposed, everyone, verdict.prune, recipe, threads)
    return LabelModel(add_ranker(layout, ranker), verdict.parameters, verdict.calibration)


class Exam(NamedTuple):
    """Held-out rows with what the index finds for them, to judge a ranker by."""

    parameters: LabelParameters
    rows: Sparse  # (n, D)
    truth: Sparse  # (n, L)
    found: NDArray[np.int64]  # (n, C), best first
    scores: NDArray[np.float32]  # (n, C)
    known: Sparse  # (training rows, L)

    def keep_first(self, count: int) -> Exam:
        """Return the exam with fewer candidates."""
        return self._replace(
            parameters=dataclasses.replace(self.parameters, candidates=count),
            found=self.found[:, :count],
            scores=self.scores[:, :count],
        )


class Mark(NamedTuple):
    """How a ranker did in an exam."""

    calibration: Calibration
    precise: float  # mean precision
    quality: float  # mean of that and of propensity-scored precision


def _grade(judge: Ranker, exam: Exam) -> Mark:
    """Fit the calibration, and see how good the best labels then are."""
    # Half-way between precision, which the common labels decide, and propensity-scored precision.
    importance = np.sqrt(weigh_rare_labels(exam.known))
    weights = inverse_propensity(exam.known) if exam.known.shape[0] > 2 else importance
    there = exam.found >= 0
    scores = np.where(there, exam.scores, 0)
    margins = compute_pair_margins(judge, exam.rows, exam.found)
    calibration = fit_calibration(margins, exam.truth, exam.found, scores, importance)
    odds = np.where(there, calibration.to_log_odds(margins, scores), -np.inf)
    order = np.argsort(-odds, axis=1, kind="stable")[:, :5]
    best = np.take_along_axis(exam.found, order, axis=1)
    precise = _mean_precision(best, exam.truth)
    rare = np.mean(
        [propensity_scored_precision(best, exam.truth, weights, k) for k in _depths(best)]
    )
    return Mark(calibration, precise, (precise + float(rare)) / 2)


class Verdict(NamedTuple):
    """How to predict with a ranker, how small it may be, and how good that was."""

    parameters: LabelParameters
    prune: float
    calibration: Calibration
    precise: float


def _choose_ranking(judge: Ranker, usual: NDArray[np.float32], exams: list[Exam]) -> Verdict:
    """Choose the probes, then the candidates, the fewest of the best; then what may be pruned.

    The last of the exams probes the most buckets.
    """
    exam = _find_cheapest(judge, exams)
    width = exam.found.shape[1]
    counts = sorted({min(count, width) for count in (*_CANDIDATES, width)})
    exam = _find_cheapest(judge, [exam.keep_first(count) for count in counts])
    tried = []
    for prune in _PRUNES:
        judge = judge.prune(prune, usual)
        tried.append((prune, _grade(judge, exam)))
        log.info(
            "pruned at %.2f: %d weights, %.4f", prune, len(judge.weights), tried[-1][1].quality
        )
    most = max(mark.quality for _, mark in tried)
    prune, mark = [(p, mark) for p, mark in tried if mark.quality >= most - _WORTH][-1]
    return Verdict(exam.parameters, prune, mark.calibration, mark.precise)


def _find_cheapest(judge: Ranker, exams: list[Exam]) -> Exam:
    """Return the first of the exams, in the order of what they cost, that is as good as any."""
    marks = np.array([_grade(judge, exam).quality for exam in exams])
    for exam, mark in zip(exams, marks, strict=True):
        log.info("%s: %.4f", exam.parameters, mark)
    return exams[int(np.argmax(marks >= marks.max() - _EQUAL))]


def _propose(
    predictor: Predictor, routed: Sparse, parameters: LabelParameters, threads: int
) -> Sparse:
    """Return what the index proposes for each row (n, L), found block by block."""
    labels, counts = [], [np.zeros(1, dtype=np.int64)]
    for start in range(0, routed.shape[0], _BLOCK):
        rows = routed[start : start + _BLOCK]
        found = predictor.predict(rows, rows, parameters.candidates, parameters, threads=threads)[1]
        there = found >= 0
        labels.append(found[there].astype(np.int32))
        counts.append(there.sum(axis=1))
    starts = np.cumsum(np.concatenate(counts))
    shape = (routed.shape[0], len(predictor.layout.prior))
    ones = np.ones(int(starts[-1]), dtype=np.int8)
    return sp.csr_array((ones, np.concatenate(labels), starts), shape=shape)


def _train(
    rows: Sparse,
    labels: Sparse,
    proposed: Sparse,
    chosen: NDArray[np.int64],
    prune: float,
    recipe: Recipe,
    threads: int,
) -> Ranker:
    importance = weigh_rare_labels(labels[chosen])
    return train_ranker(
        rows[chosen],
        labels[chosen],
        proposed[chosen],
        cost=COST,
        importance=importance,
        prune=prune,
        threads=threads,
        seed=recipe.seed,
    )


def weigh_rare_labels(labels: Sparse) -> NDArray[np.float32]:
    """Return how much more the rows of rare labels weigh: by inverse propensity, from 1 up."""
    if labels.shape[0] < 3:
        return np.ones(labels.shape[1], dtype=np.float32)
    weights = inverse_propensity(labels)
    importance: NDArray[np.float32] = (weights / weights.min()).astype(np.float32)
    return importance


def _choose_parameters(
    predictor: Predictor, rows: Sparse, truth: Sparse, wide: int, threads: int
) -> LabelParameters:
    """Choose the score, then the fewest probes that lose next to nothing."""
    tried = _list_probes(predictor.layout)

    def quality(parameters: LabelParameters) -> float:
        _, found = predictor.predict(rows, rows, wide, parameters, threads=threads)
        return (_mean_precision(found, truth) + recall(found, truth, wide)) / 2

    usual = tried[min(len(tried) - 1, _USUAL)]
    # The last of equals wins, and votes come first: they alone tell little apart.
    by_quality = sorted(SCORES, key=lambda score: quality(LabelParameters(usual, wide, score)))
    score = by_quality[-1]
    reached = quality(LabelParameters(tried[-1], wide, score)) - _ENOUGH
    for probes in tried:
        parameters = LabelParameters(probes, wide, score)
        if quality(parameters) >= reached:
            break
    return parameters


def _list_probes(layout: LabelLayout) -> list[int]:
    """Return how many buckets may be probed."""
    buckets = layout.bias.shape[1]
    if len(layout.prior) == buckets:
        return [buckets]  # every label alone: nothing is saved by looking at fewer
    return sorted({min(probes, buckets) for probes in _PROBES})


def _mean_precision(found: NDArray[np.int64], truth: Sparse) -> float:
    """Return the mean of P@1, P@3 and P@5."""
    return float(np.mean([precision(found, truth, k) for k in _depths(found)]))


def _depths(found: NDArray[np.int64]) -> list[int]:
    return [k for k in (1, 3, 5) if k <= found.shape[1]]
