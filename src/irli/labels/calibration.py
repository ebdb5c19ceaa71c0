"""Calibration: turn index scores and ranker margins into the log-odds of a label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from irli.base.types import Sparse
from irli.engine.linear import PackedWeights, compute_margins
from irli.labels.features import to_arrays
from irli.labels.ranker import Ranker


class Calibration(NamedTuple):
    """log-odds of a label = by_score * score - by_margin * max(0, 1 - margin)^2 + threshold."""

    by_margin: float
    by_score: float
    threshold: float

    def to_log_odds(
        self, margins: NDArray[np.float32], scores: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Return the log-odds of labels with these margins and scores, arrays of one shape."""
        shortfall = np.maximum(0, 1 - margins.astype(np.float64))
        return self.by_score * scores - self.by_margin * shortfall**2 + self.threshold


INDEX_ALONE = Calibration(by_margin=0.0, by_score=1.0, threshold=0.0)


def fit_calibration(
    margins: NDArray[np.float32],
    truth: Sparse,
    found: NDArray[np.int64],
    scores: NDArray[np.float32],
    importance: NDArray[np.float32],
) -> Calibration:
    """Fit the calibration by logistic regression on the candidates of held-out rows.

    Parameters
    ----------
    truth : CSR of shape (n, L)
        The labels of the rows.
    margins, found, scores : arrays of shape (n, C)
        The candidates `found` by the index, padded with -1, their ranker margins and index scores.
    importance : float32 array of shape (L,)
        The weight of each true label. Rare labels need more, or common ones alone decide the fit.
    """
    row, place = np.nonzero(found >= 0)
    label = found[row, place]
    shortfall = np.maximum(0, 1 - margins[row, place]).astype(np.float64)
    features = np.stack([-(shortfall**2), scores[row, place], np.ones(len(row))], axis=1)
    key = row * truth.shape[1] + label
    known = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * truth.shape[1]
    correct = np.isin(key, known + truth.indices)
    weight = np.where(correct, importance[label], 1.0)

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds = features @ x
        cost = np.logaddexp(0, odds) - correct * odds
        slope = 1 / (1 + np.exp(-np.clip(odds, -50, 50))) - correct
        return float((weight * cost).mean()), features.T @ (weight * slope) / len(row)

    bounds = [(0, None), (0, None), (None, None)]
    start = np.array([1.0, 0.5, 0.0])
    best = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return Calibration(*map(float, best))


def compute_pair_margins(
    ranker: Ranker, rows: Sparse, found: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the ranker's margin for each candidate (n, C) of each row."""
    packed = PackedWeights(ranker.starts, ranker.gaps, ranker.weights, ranker.scale)
    return compute_margins(to_arrays(rows), packed, ranker.bias, found)
