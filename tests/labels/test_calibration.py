"""Calibration: log-odds from the scores of the index and the margins of the ranker."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from plantedlabels import labelled, random_ranker, train

from irli.labels.calibration import Calibration, compute_pair_margins, fit_calibration


def candidates(rows: int, labels: int) -> NDArray[np.int64]:
    return np.tile(np.arange(labels), (rows, 1))


def test_calibration_trusts_whichever_is_right() -> None:
    X, Y = labelled(300, 10, seed=7)
    found = candidates(300, 10)
    ones = np.ones(10, dtype=np.float32)
    noise = np.random.default_rng(0).normal(size=found.shape).astype(np.float32)
    ranker, useless = train(X, Y), random_ranker(10, X.shape[1], density=0.0)
    calibration = fit_calibration(compute_pair_margins(ranker, X, found), Y, found, noise, ones)
    assert calibration.by_margin > 1
    assert calibration.by_score < 0.3
    truth = (2 * Y.toarray() - 1 + 0.5 * noise).astype(np.float32)
    nothing = useless._replace(bias=np.zeros(10, "f4"))
    calibration = fit_calibration(compute_pair_margins(nothing, X, found), Y, found, truth, ones)
    assert calibration.by_score > 1


def test_fused_scores_are_log_odds() -> None:
    """Where the score says as little as it does, the odds are those of a true label."""
    rng = np.random.default_rng(1)
    Y = sp.csr_array((rng.random((400, 10)) < 0.2).astype(np.float32))
    X = sp.csr_array((400, 3), dtype=np.float32)
    silent = random_ranker(10, 3, density=0.0)._replace(bias=np.ones(10, "f4"))
    zeros = np.zeros((400, 10), dtype=np.float32)
    margins = compute_pair_margins(silent, X, candidates(400, 10))
    calibration = fit_calibration(margins, Y, candidates(400, 10), zeros, np.ones(10, "f4"))
    share = Y.nnz / 4000
    assert calibration.threshold == pytest.approx(np.log(share / (1 - share)), abs=0.02)


def test_padding_is_no_evidence() -> None:
    X, Y = labelled(100, 10, seed=7)
    ranker, ones = train(X, Y), np.ones(10, dtype=np.float32)
    found = candidates(100, 10)
    scores = np.random.default_rng(0).normal(size=found.shape).astype(np.float32)
    padded = np.pad(found, ((0, 0), (0, 6)), constant_values=-1)
    more = np.pad(scores, ((0, 0), (0, 6)), constant_values=-np.inf)
    one, other = (
        fit_calibration(compute_pair_margins(ranker, X, some), Y, some, given, ones)
        for some, given in ((found, scores), (padded, more))
    )
    assert one == pytest.approx(other, rel=1e-4)


def test_log_odds_by_the_definition() -> None:
    margins = np.array([-1.0, 0.5, 1.0, 7.0], dtype=np.float32)
    scores = np.array([0.0, -2.0, 3.0, 1.0], dtype=np.float32)
    odds = Calibration(by_margin=2.0, by_score=0.5, threshold=-1.0).to_log_odds(margins, scores)
    np.testing.assert_allclose(odds, [-9.0, -2.5, 0.5, -0.5])
