"""Phase 4, tune_labels: choose prediction parameters, and train the ranker if it helps.

Everything is chosen on held-out rows: the score, the number of probes, whether to use the ranker,
and its weight beside the index. The ranker that is evaluated is trained without these rows. The
final ranker is then trained on all rows.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.logs import get_logger
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

log = get_logger(__name__)

_SHORTLIST = 200  # labels that the index proposes for a row; the ranker trains on and reranks them
_MORE_PER_LABEL = 4  # further ones for each label that a row carries on average
_MANY = 10  # labels per row, on average, from which on labels of near rows are negatives too
_PRUNES = (LEAST_PRUNE, 0.03, 0.04, 0.06)  # pruning thresholds that are tried
_MIN_GAIN = 0.002  # precision that a ranker must gain to be used, and that pruning may cost
_CANDIDATES = (50, 100, 200)  # lengths of the reranked shortlist that are tried
_TIE = 0.0005  # quality within which the cheaper parameters win
_BLOCK = 65_536  # rows whose shortlists are found at once
_SCORES = tuple(score for score in SCORES if score != "votes")  # those that are tried
_PROBES = (4, 8, 16, 32, 64, 128)  # numbers of probes that are tried
_PROBES_BY_VOTES = (1, 2, 5, 10, 20, 50, 100)  # those that are tried if votes order the labels
_USUAL = 3  # position of the one at which the scores are compared
_TOLERANCE = 0.002  # mean of precision and recall that fewer probes may cost


class LabelTuneResult(NamedTuple):
    """The parameters that `fit` chose, and what it measured with them on held-out rows.

    Precision is the mean of P@1, P@3 and P@5. The clock decides nothing: the same rows and the same
    seed give the same result.

    Attributes
    ----------
    parameters : LabelParameters
    ranker : bool
        Whether the ranker is used.
    precision : float
        With these parameters, and with the ranker if it is used.
    precision_without_ranker : float
        Of the index alone.
    rows : int
        How many rows were held out. If there were too few, training has seen them, too.
    """

    parameters: LabelParameters
    ranker: bool
    precision: float
    precision_without_ranker: float
    rows: int


class LabelModel(NamedTuple):
    """All that prediction needs: the layout, the parameters and the calibration."""

    layout: LabelLayout
    parameters: LabelParameters
    calibration: Calibration
    tuned: LabelTuneResult | None  # None in early folders


def tune_labels(
    layout: LabelLayout,
    rows: Rows,
    labels: Sparse,
    split: Split,
    recipe: Recipe,
    want_ranker: bool | None,
    threads: int,
) -> LabelModel:
    """Choose how to predict, and add a ranker to the layout if it helps.

    `want_ranker` decides about the ranker, unless it is None. With `search="votes"` in the recipe,
    None means no ranker, and labels are ordered by votes: so it is in the paper.
    """
    routed = as_sparse(hash_features(rows, recipe))
    ranked = as_sparse(rows)
    predictor = Predictor(layout)
    held, truth = split.held, labels[split.held]
    width = min(_SHORTLIST + _MORE_PER_LABEL * labels.nnz // labels.shape[0], labels.shape[1])
    by_votes = recipe.search == "votes" and not want_ranker
    choose = _choose_probes_by_votes if by_votes else _choose_parameters
    parameters = choose(predictor, routed[held], truth, width, threads)
    if want_ranker is False or by_votes:
        _, found = predictor.predict(routed[held], routed[held], width, parameters, threads=threads)
        return _use_index_alone(layout, parameters, _mean_precision(found, truth), len(held))
    proposed = _propose(predictor, routed, parameters, threads)
    if labels.nnz >= _MANY * labels.shape[0]:
        proposed = sp.csr_array(proposed + find_near_labels(ranked, labels, split.train, threads))
    trial = _train_on(ranked, labels, proposed, split.train, _PRUNES[0], recipe, threads)
    shortlists = []
    for probes in [count for count in _list_probes(layout) if count <= parameters.probes]:
        fewer = dataclasses.replace(parameters, probes=probes)
        scores, found = predictor.predict(routed[held], ranked[held], width, fewer, threads=threads)
        shortlists.append(Shortlist(fewer, ranked[held], truth, found, scores, labels[split.train]))
    choice = _choose_ranking(trial, usual_values(ranked), shortlists)
    alone = _mean_precision(shortlists[-1].found, truth)
    log.info("held-out precision: index alone %.4f, with the ranker %.4f", alone, choice.precision)
    if want_ranker is None and choice.precision < alone + _MIN_GAIN:
        return _use_index_alone(layout, parameters, alone, len(held))
    labelled = np.flatnonzero(np.diff(labels.indptr))
    ranker = _train_on(ranked, labels, proposed, labelled, choice.prune, recipe, threads)
    tuned = LabelTuneResult(choice.parameters, True, choice.precision, alone, len(held))
    return LabelModel(add_ranker(layout, ranker), choice.parameters, choice.calibration, tuned)


def _use_index_alone(
    layout: LabelLayout, parameters: LabelParameters, precision: float, rows: int
) -> LabelModel:
    tuned = LabelTuneResult(parameters, False, precision, precision, rows)
    return LabelModel(layout, parameters, INDEX_ALONE, tuned)


class Shortlist(NamedTuple):
    """The labels that the index finds for held-out rows with some parameters, before reranking."""

    parameters: LabelParameters
    rows: Sparse  # (n, D)
    truth: Sparse  # (n, L)
    found: NDArray[np.int64]  # (n, C), best first
    scores: NDArray[np.float32]  # (n, C)
    train_labels: Sparse  # (training rows, L)

    def keep_first(self, count: int) -> Shortlist:
        """Return the shortlist cut to `count` candidates for each row."""
        return self._replace(
            parameters=dataclasses.replace(self.parameters, candidates=count),
            found=self.found[:, :count],
            scores=self.scores[:, :count],
        )


class Evaluation(NamedTuple):
    """How well a ranker reranks a shortlist."""

    calibration: Calibration
    precision: float  # mean of P@1, P@3 and P@5
    quality: float  # mean of `precision` and of the same for propensity-scored precision


def _evaluate(ranker: Ranker, shortlist: Shortlist) -> Evaluation:
    """Fit the calibration on the shortlist, rerank it, and measure the best labels."""
    # Equal weights would favour precision, full weights propensity-scored precision. The square
    # root lies between.
    importance = np.sqrt(weigh_rare_labels(shortlist.train_labels))
    weights = (
        inverse_propensity(shortlist.train_labels)
        if shortlist.train_labels.shape[0] > 2
        else importance
    )
    there = shortlist.found >= 0
    scores = np.where(there, shortlist.scores, 0)
    margins = compute_pair_margins(ranker, shortlist.rows, shortlist.found)
    calibration = fit_calibration(margins, shortlist.truth, shortlist.found, scores, importance)
    odds = np.where(there, calibration.to_log_odds(margins, scores), -np.inf)
    order = np.argsort(-odds, axis=1, kind="stable")[:, :5]
    best = np.take_along_axis(shortlist.found, order, axis=1)
    mean = _mean_precision(best, shortlist.truth)
    rare = np.mean(
        [propensity_scored_precision(best, shortlist.truth, weights, k) for k in _list_depths(best)]
    )
    return Evaluation(calibration, mean, (mean + float(rare)) / 2)


class Choice(NamedTuple):
    """How to predict with a ranker, how far to prune it, and its precision on held-out rows."""

    parameters: LabelParameters
    prune: float
    calibration: Calibration
    precision: float


def _choose_ranking(
    ranker: Ranker, usual: NDArray[np.float32], shortlists: list[Shortlist]
) -> Choice:
    """Choose the fewest probes, then the fewest candidates, then the strongest pruning.

    Each choice may lose only a little quality. `shortlists` are in the order of their probes.
    """
    shortlist = _find_cheapest(ranker, shortlists)
    width = shortlist.found.shape[1]
    counts = sorted({min(count, width) for count in (*_CANDIDATES, width)})
    shortlist = _find_cheapest(ranker, [shortlist.keep_first(count) for count in counts])
    tried = []
    for prune in _PRUNES:
        ranker = ranker.prune(prune, usual)
        tried.append((prune, _evaluate(ranker, shortlist)))
        log.info(
            "pruned at %.2f: %d weights, quality %.4f",
            prune,
            len(ranker.weights),
            tried[-1][1].quality,
        )
    best = max(evaluation.quality for _, evaluation in tried)
    prune, evaluation = [
        (p, evaluation) for p, evaluation in tried if evaluation.quality >= best - _MIN_GAIN
    ][-1]
    return Choice(shortlist.parameters, prune, evaluation.calibration, evaluation.precision)


def _find_cheapest(ranker: Ranker, shortlists: list[Shortlist]) -> Shortlist:
    """Return the first shortlist that is about as good as the best; cheaper ones come first."""
    qualities = np.array([_evaluate(ranker, shortlist).quality for shortlist in shortlists])
    for shortlist, quality in zip(shortlists, qualities, strict=True):
        log.info("%s: quality %.4f", shortlist.parameters, quality)
    return shortlists[int(np.argmax(qualities >= qualities.max() - _TIE))]


def _propose(
    predictor: Predictor, routed: Sparse, parameters: LabelParameters, threads: int
) -> Sparse:
    """Return the labels that the index proposes for each row (n, L), found block by block."""
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


def _train_on(
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
    """Return a weight for each label (L,): its inverse propensity, divided by the smallest one."""
    if labels.shape[0] < 3:
        return np.ones(labels.shape[1], dtype=np.float32)
    weights = inverse_propensity(labels)
    importance: NDArray[np.float32] = (weights / weights.min()).astype(np.float32)
    return importance


def _choose_probes_by_votes(
    predictor: Predictor, rows: Sparse, truth: Sparse, width: int, threads: int
) -> LabelParameters:
    """Choose the probes with the best order by votes. With many, all labels get many votes."""
    buckets = predictor.layout.bias.shape[1]

    def measure(parameters: LabelParameters) -> float:
        _, found = predictor.predict(rows, rows, width, parameters, threads=threads)
        return _mean_precision(found, truth)

    counts = sorted({min(probes, buckets) for probes in _PROBES_BY_VOTES})
    return max((LabelParameters(probes, width, "votes") for probes in counts), key=measure)


def _choose_parameters(
    predictor: Predictor, rows: Sparse, truth: Sparse, width: int, threads: int
) -> LabelParameters:
    """Choose the best score, then the fewest probes that lose almost nothing."""
    tried = _list_probes(predictor.layout)

    def quality(parameters: LabelParameters) -> float:
        _, found = predictor.predict(rows, rows, width, parameters, threads=threads)
        return (_mean_precision(found, truth) + recall(found, truth, width)) / 2

    usual = tried[min(len(tried) - 1, _USUAL)]
    # Among equals the last one wins. Weighted votes come first: they separate labels the least.
    by_quality = sorted(_SCORES, key=lambda score: quality(LabelParameters(usual, width, score)))
    score = by_quality[-1]
    reached = quality(LabelParameters(tried[-1], width, score)) - _TOLERANCE
    for probes in tried:
        parameters = LabelParameters(probes, width, score)
        if quality(parameters) >= reached:
            break
    return parameters


def _list_probes(layout: LabelLayout) -> list[int]:
    """Return the numbers of probes to try."""
    buckets = layout.bias.shape[1]
    if len(layout.prior) == buckets:
        return [buckets]  # one label per bucket: fewer probes would save nothing
    return sorted({min(probes, buckets) for probes in _PROBES})


def _mean_precision(found: NDArray[np.int64], truth: Sparse) -> float:
    """Return the mean of P@1, P@3 and P@5."""
    return float(np.mean([precision(found, truth, k) for k in _list_depths(found)]))


def _list_depths(found: NDArray[np.int64]) -> list[int]:
    return [k for k in (1, 3, 5) if k <= found.shape[1]]
