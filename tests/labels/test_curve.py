"""The curve from blended scores to log-odds: it bends where the odds do, and keeps the order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plantedlabels import small_labels

import irli
from irli import LabelIndex
from irli.base.sparse import as_rows
from irli.labels.tuning.calibration import Candidates, calibrate_scores
from irli.labels.tuning.curve import STRAIGHT, Curve, bend, fit_curve


def to_likely(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-odds))


def draw(likely: NDArray[np.float64], seed: int = 0) -> NDArray[np.bool_]:
    return np.random.default_rng([seed, 7]).random(likely.shape) < likely


def check_ascends(curve: Curve) -> None:
    x, y = np.array(curve).T
    assert len(x) >= 3
    assert (np.diff(x) > 0).all()
    assert (np.diff(y) > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_the_odds_that_were_planted(seed: int) -> None:
    """Scores overrate labels in the middle: what they call .5 comes .2, and they never reach 1."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-2, 3, size=60_000)

    def to_odds(scores: NDArray[np.float64]) -> NDArray[np.float64]:
        middle = -3 + (scores + 3) / 2
        return np.where(scores < -3, scores, np.where(scores < 1, middle, scores - 2))

    curve = fit_curve(scores, draw(to_likely(to_odds(scores)), seed))
    check_ascends(curve)
    asked = np.linspace(-6, 5, 12)
    said, right = to_likely(bend(curve, asked)), to_likely(to_odds(asked))
    np.testing.assert_allclose(said, right, atol=0.03)


def test_where_scores_are_log_odds_it_changes_little() -> None:
    scores = np.random.default_rng(1).normal(-1, 2, size=40_000)
    asked = np.linspace(-5, 4, 10)
    curve = fit_curve(scores, draw(to_likely(scores)))
    np.testing.assert_allclose(to_likely(bend(curve, asked)), to_likely(asked), atol=0.03)


def test_with_little_evidence_it_is_straight() -> None:
    nothing = np.empty(0)
    assert fit_curve(nothing, nothing > 0) == STRAIGHT
    assert fit_curve(np.zeros(30), np.arange(30) < 3) == STRAIGHT
    assert fit_curve(np.full(10_000, -30.0), np.zeros(10_000, dtype=bool)) == STRAIGHT


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([1e-3, 1.0, 30.0, 1e6]),
    st.floats(-50, 50),
    st.sampled_from(["all", "none", "some", "against"]),
)
def test_it_ascends_whatever_the_scores_are(
    seed: int, spread: float, middle: float, which: str
) -> None:
    rng = np.random.default_rng(seed)
    scores = middle + spread * rng.normal(size=2000)
    correct = {
        "all": np.ones(2000, dtype=bool),
        "none": np.zeros(2000, dtype=bool),
        "some": rng.random(2000) < 0.3,
        "against": rng.random(2000) < to_likely(-np.clip(scores, -30, 30)),
    }[which]
    curve = fit_curve(scores, correct)
    if curve != STRAIGHT:
        check_ascends(curve)
    odds = bend(curve, np.sort(scores))
    assert np.isfinite(odds).all()
    assert (np.diff(odds)[np.diff(np.sort(scores)) > 1e-9] > 0).all()


def test_padding_stays_padding() -> None:
    curve = ((0.0, 0.0), (1.0, 0.5))
    assert bend(curve, np.array([[-np.inf, 0.0]])).tolist() == [[-np.inf, 0.0]]


def test_the_routers_scores_get_a_curve_too() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(-2, 3, size=(2000, 10)).astype(np.float32)
    carried = draw(np.minimum(to_likely(scores), 0.4))
    found = np.tile(np.arange(10), (2000, 1))
    alone = calibrate_scores(found, scores, sp.csr_array(carried.astype("f4")))
    nothing = np.zeros_like(scores)
    likely = to_likely(alone.to_log_odds(Candidates(found, scores, nothing, nothing)))
    sure = scores > 2
    assert likely[sure].mean() == pytest.approx(0.4, abs=0.03)


# --- an index ------------------------------------------------------------------------------------


def plant(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Draw rows whose own label was taken away at random, at a rate that depends on the label."""
    rng = np.random.default_rng(seed)
    own = rng.integers(8, size=12_000)
    kept = rng.random(12_000) < np.linspace(0.2, 0.95, 8)[own]
    X = np.eye(8)[own] + 0.1 * rng.random((12_000, 8))
    Y = np.zeros((12_000, 16), dtype=np.float32)
    Y[np.arange(12_000), own] = kept
    Y[np.arange(12_000), 8 + rng.integers(8, size=12_000)] = 1  # so that each row has a label
    return X, Y


@pytest.fixture(scope="module", params=range(2))
def fitted(request: pytest.FixtureRequest) -> LabelIndex:
    X, Y = plant(request.param)
    return LabelIndex(small_labels(buckets=16)).fit(X[:10_000], Y[:10_000], threads=1)


def measure_error(likely: NDArray[np.float32], correct: NDArray[np.bool_]) -> float:
    """Return the expected calibration error, in 15 bins."""
    place = np.clip((likely * 15).astype(int), 0, 14)
    gaps = np.bincount(place, weights=likely) - np.bincount(place, weights=correct)
    return float(np.abs(gaps).sum() / len(likely))


def test_probabilities_in_the_middle_are_right(fitted: LabelIndex) -> None:
    """With one logistic curve the error was .017 to .030, and .73 was said where .52 came."""
    X, Y = plant(9)
    found = fitted.predict(X, 16)
    there = found.labels >= 0
    correct = np.take_along_axis(Y, np.maximum(found.labels, 0), axis=1)[there] > 0
    likely = found.scores[there]
    assert measure_error(likely, correct) < 0.015
    for low, high in ((0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1)):
        part = (likely > low) & (likely <= high)
        assert part.sum() > 100
        assert likely[part].mean() == pytest.approx(correct[part].mean(), abs=0.12)


def test_the_curve_keeps_the_order_of_labels(fitted: LabelIndex) -> None:
    X, _ = plant(9)
    contents, predictor = fitted._fitted()
    model = contents.model
    check_ascends(model.calibration.curve)
    found = fitted.predict(X, 10)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    blended, labels = predictor.predict(
        *fitted._fitted().scale(as_rows(X)), 10, model.parameters, model.calibration
    )
    np.testing.assert_array_equal(found.labels, labels)
    odds = bend(model.calibration.curve, blended.astype(np.float64))
    np.testing.assert_allclose(found.scores[labels >= 0], to_likely(odds)[labels >= 0], rtol=1e-5)


def test_it_is_stored(fitted: LabelIndex, tmp_path: Path) -> None:
    fitted.save(tmp_path / "index")
    opened = irli.load(tmp_path / "index")
    assert isinstance(opened, LabelIndex)
    assert opened.calibration == fitted.calibration
    assert opened.stats()["calibration"] == fitted.stats()["calibration"]
