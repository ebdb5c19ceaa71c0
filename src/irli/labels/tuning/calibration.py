"""Calibration: blend the scores of routers, ranker and near rows into the log-odds of a label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from irli._native import LEAST_VOTES
from irli.base.types import Sparse
from irli.labels.tuning.blend import Scored, choose_weights
from irli.labels.tuning.curve import STRAIGHT, Curve, bend, fit_curve
from irli.labels.tuning.objective import Objective

EVERY = 2**31 - 1  # labels: none has a larger number
_TINY = np.finfo(np.float32).tiny  # the least probability
_SMALL = 1e-3  # a penalty on the squares of slope and threshold, so that they stay finite


class Candidates(NamedTuple):
    """The candidates of rows, in no order, with what each source knows of them.

    Attributes
    ----------
    labels : int64 array of shape (n, C)
        Padded with -1.
    scores, margins, votes : float32 arrays of shape (n, C)
        The routers' scores, the ranker's margins, and the votes of near rows.
    """

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]
    margins: NDArray[np.float32]
    votes: NDArray[np.float32]

    def find_true(self, truth: Sparse) -> NDArray[np.bool_]:
        """Return which candidates the rows carry (n, C). `truth` is a CSR of shape (n, L)."""
        wide = truth.shape[1]
        row = np.arange(len(self.labels))[:, None]
        known = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * wide + truth.indices
        there: NDArray[np.bool_] = np.isin(row * wide + self.labels, known) & (self.labels >= 0)
        return there


class Calibration(NamedTuple):
    """How much each source counts.

    blended score of a label = by_score * score - by_margin * max(0, 1 - margin)^2
                               + by_votes * log2(1 + votes / 0.01) + threshold

    The curve makes log-odds of it: see `irli.labels.tuning.curve`.
    """

    by_margin: float
    by_score: float
    threshold: float
    by_votes: float = 0.0
    own: bool = False  # whether the ranker may be asked about all labels, and proposes some
    complete: int = 0  # the routers score so many of the first labels, whoever proposes them
    curve: Curve = STRAIGHT

    def blend(self, found: Candidates) -> NDArray[np.float64]:
        """Return the blended scores of candidates (n, C). Padding gets -inf."""
        scores = self.by_margin * _weigh_margins(found) + self.by_score * found.scores
        scores += self.by_votes * _weigh_votes(found) + self.threshold
        return np.where(found.labels >= 0, scores, -np.inf)

    def to_log_odds(self, found: Candidates) -> NDArray[np.float64]:
        """Return the log-odds of candidates (n, C). Padding gets -inf."""
        return bend(self.curve, self.blend(found))

    def fit_curve(self, found: Candidates, truth: Sparse) -> Calibration:
        """Return the calibration with the curve that fits the candidates of held-out rows best."""
        there = found.labels >= 0
        scores, correct = self.blend(found)[there], found.find_true(truth)[there]
        return self._replace(curve=fit_curve(scores, correct))

    def state(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return self._asdict() | {"curve": [list(point) for point in self.curve]}

    @property
    def is_blended(self) -> bool:
        """Whether other sources than the routers count."""
        return self.by_margin > 0 or self.by_votes > 0


INDEX_ALONE = Calibration(by_margin=0.0, by_score=1.0, threshold=0.0)
# All sources propose and score labels. With it, candidates are listed for `fit_calibration`.
ASKED = Calibration(1.0, 1.0, 0.0, 1.0, own=True, complete=EVERY)


def fit_calibration(found: Candidates, truth: Sparse, goal: Objective) -> Calibration:
    """Choose the weights of the sources on the candidates of held-out rows.

    The candidates were listed with `ASKED`. First the order, by what the objective asks for
    (`irli.labels.tuning.blend`). Then the scale: logistic regression on the blended
    scores gives log-odds. The curve is straight: `Calibration.fit_curve` bends it.

    Parameters
    ----------
    truth : CSR of shape (n, L)
        The labels of the rows.
    """
    correct, there = found.find_true(truth), found.labels >= 0
    features = _stack_features(found)
    spread = features[there].std(axis=0) if there.any() else np.zeros(3)
    told = np.flatnonzero(spread > 1e-9)  # a source that tells nothing counts nothing
    if not correct.any() or not len(told):
        return ASKED
    scored = Scored(found.labels, correct, features[..., told] / spread[told])
    order = np.zeros(3)
    order[told] = choose_weights(scored, truth, goal) / spread[told]
    return _scale_order(order, features, there, correct)


def calibrate_scores(
    found: NDArray[np.int64], scores: NDArray[np.float32], truth: Sparse
) -> Calibration:
    """Return the calibration of the routers' scores alone, for labels found (n, k)."""
    nothing = np.zeros_like(scores)
    there = found >= 0
    given = Candidates(found, np.where(there, scores, 0), nothing, nothing)
    correct, features = given.find_true(truth), _stack_features(given)
    if not correct.any():
        return INDEX_ALONE
    alone = _scale_order(np.array([0.0, 1.0, 0.0]), features, there, correct)
    return alone._replace(own=False, complete=0).fit_curve(given, truth)


def to_probabilities(odds: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities that log-odds stand for, in (0, 1].

    Examples
    --------
    >>> to_probabilities(np.array([0.0, 40.0, -500.0], dtype="f4"))
    array([5.0000000e-01, 1.0000000e+00, 1.1754944e-38], dtype=float32)
    """
    with np.errstate(over="ignore", under="ignore"):
        likely = 1 / (1 + np.exp(-odds.astype(np.float64)))
    return np.maximum(likely, _TINY).astype(np.float32)


def _scale_order(
    order: NDArray[np.float64],
    features: NDArray[np.float64],
    there: NDArray[np.bool_],
    correct: NDArray[np.bool_],
) -> Calibration:
    """Return the calibration that orders by these weights (3,)."""
    slope, threshold = _fit_scale((features @ order)[there], correct[there])
    by_margin, by_score, by_votes = map(float, order * slope)
    return Calibration(by_margin, by_score, threshold, by_votes, by_margin > 0, EVERY)


def _stack_features(found: Candidates) -> NDArray[np.float64]:
    """Return what the weights multiply (n, C, 3): by margin, by score, by votes."""
    parts = [_weigh_margins(found), found.scores.astype(np.float64), _weigh_votes(found)]
    return np.stack(parts, axis=-1)


def _weigh_margins(found: Candidates) -> NDArray[np.float64]:
    return -(np.maximum(0, 1 - found.margins.astype(np.float64)) ** 2)


def _weigh_votes(found: Candidates) -> NDArray[np.float64]:
    return np.log2(1 + found.votes.astype(np.float64) / LEAST_VOTES)


def _fit_scale(scores: NDArray[np.float64], correct: NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope > 0 and threshold of a logistic regression (Platt's scaling).

    Examples
    --------
    >>> slope, threshold = _fit_scale(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 1, 0, 1]) > 0)
    >>> 0 < slope < 2, bool(np.isclose(-threshold / slope, 1.5, atol=0.01))
    (True, True)
    """
    middle, spread = scores.mean(), max(float(scores.std()), 1e-9)
    scaled = (scores - middle) / spread

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds = x[0] * scaled + x[1]
        cost = np.logaddexp(0, odds) - correct * odds
        slope = 1 / (1 + np.exp(-np.clip(odds, -50, 50))) - correct
        gradient = np.array([(slope * scaled).mean(), slope.mean()]) + 2 * _SMALL / len(scores) * x
        return float(cost.mean() + _SMALL / len(scores) * x @ x), gradient

    bounds = [(1e-3, None), (None, None)]
    best = minimize(loss, np.array([1.0, 0.0]), jac=True, bounds=bounds, method="L-BFGS-B").x
    return float(best[0] / spread), float(best[1] - best[0] * middle / spread)
