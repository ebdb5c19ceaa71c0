"""Calibration: which source is trusted, and that scores become probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from plantedlabels import small_labels

from irli import LabelIndex
from irli.labels.tuning.calibration import (
    INDEX_ALONE,
    Calibration,
    Candidates,
    calibrate_scores,
    fit_calibration,
)
from irli.labels.tuning.objective import Objective

LABELS = 10
PLAIN = Objective("precision", np.ones(LABELS), np.ones(LABELS, dtype=np.float32))


def truth(rows: int, share: float = 0.2, seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((rows, LABELS)) < share).astype(np.float32))


def noise(rows: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, LABELS)).astype(np.float32)


def candidates(rows: int, **sources: NDArray[np.float32]) -> Candidates:
    """All labels of all rows. Sources that are not given say nothing."""
    nothing = np.zeros((rows, LABELS), dtype=np.float32)
    given = {"scores": nothing, "margins": nothing, "votes": nothing} | sources
    return Candidates(np.tile(np.arange(LABELS), (rows, 1)), **given)


def correlate(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


# --- trust -----------------------------------------------------------------------------------


@pytest.mark.parametrize("right", ["scores", "margins", "votes"])
def test_calibration_trusts_whichever_is_right(right: str) -> None:
    Y = truth(400)
    carried = Y.toarray()
    sources = {
        "scores": noise(400, 1),
        "margins": noise(400, 2) - 1,
        "votes": np.abs(noise(400, 3)) / 10,
    }
    knows = {
        "scores": 3 * carried + 0.5 * noise(400, 4),
        "margins": 2 * carried - 1 + 0.3 * noise(400, 4),
        "votes": carried * 0.5 + 0.02 * np.abs(noise(400, 4)),
    }
    found = candidates(400, **{**sources, right: knows[right].astype(np.float32)})
    odds = fit_calibration(found, Y, PLAIN).to_log_odds(found)
    trusted = {name: Calibration(0.0, 0.0, 0.0) for name in sources}
    trusted["scores"] = Calibration(0.0, 1.0, 0.0)
    trusted["margins"] = Calibration(1.0, 0.0, 0.0)
    trusted["votes"] = Calibration(0.0, 0.0, 0.0, by_votes=1.0)
    follows = {name: correlate(odds, one.to_log_odds(found)) for name, one in trusted.items()}
    assert follows[right] > 0.95
    assert all(follows[name] < 0.5 for name in sources if name != right)


def test_a_source_that_tells_nothing_apart_has_no_weight() -> None:
    Y = truth(200)
    scores = (Y.toarray() + 0.1 * noise(200, 1)).astype(np.float32)
    for votes in (0, 3):
        same = np.full((200, LABELS), votes, dtype=np.float32)
        only = fit_calibration(candidates(200, scores=scores, votes=same), Y, PLAIN)
        assert only.by_score > 0 == only.by_votes == only.by_margin


def test_rare_labels_decide_if_they_are_important() -> None:
    """The scores know the common label, the votes the rare one."""
    rng = np.random.default_rng(0)
    rare = rng.random(600) < 0.1
    carried = np.zeros((600, LABELS), dtype=np.float32)
    carried[np.arange(600), np.where(rare, 1, 0)] = 1
    scores, votes = 0.5 * noise(600, 1), np.abs(0.02 * noise(600, 2))
    scores[:, 0] += 2
    votes[rare, 1] += 1
    found = candidates(600, scores=scores, votes=votes)
    worth = np.ones(LABELS)
    worth[1] = 50
    rare = PLAIN._replace(name="propensity", propensity=worth)
    plain, weighed = (fit_calibration(found, sp.csr_array(carried), one) for one in (PLAIN, rare))
    assert weighed.by_votes / weighed.by_score > plain.by_votes / plain.by_score


# --- probabilities ---------------------------------------------------------------------------


def check_bins(likely: NDArray[np.float64], correct: NDArray[np.bool_]) -> None:
    """In each bin the mean probability is near the share of labels that are correct."""
    edges = np.quantile(likely, np.linspace(0, 1, 9))
    place = np.clip(np.searchsorted(edges, likely, side="right") - 1, 0, 7)
    for number in np.unique(place):
        these = place == number
        error = 3 * np.sqrt(0.25 / these.sum())
        assert abs(likely[these].mean() - correct[these].mean()) < max(0.03, error)


def test_probabilities_are_calibrated() -> None:
    """Labels are drawn with known odds. Rows of other draws are labelled as often as is said."""
    rng = np.random.default_rng(5)

    def draw(rows: int) -> tuple[Candidates, sp.csr_array]:
        scores = rng.normal(size=(rows, LABELS)).astype(np.float32)
        votes = rng.gamma(0.3, size=(rows, LABELS)).astype(np.float32)
        odds = 1.5 * scores + 0.4 * np.log2(1 + votes / 0.01) - 3
        carried = rng.random((rows, LABELS)) < 1 / (1 + np.exp(-odds))
        return candidates(rows, scores=scores, votes=votes), sp.csr_array(carried.astype("f4"))

    calibration = fit_calibration(*draw(4000), PLAIN)
    fresh, carried = draw(4000)
    likely = 1 / (1 + np.exp(-calibration.to_log_odds(fresh)))
    correct = carried.toarray() > 0
    check_bins(likely.ravel(), correct.ravel())
    assert likely.max() > 0.9 > 0.1 > likely.min()
    assert abs(likely.mean() - correct.mean()) < 0.01


def test_the_probabilities_of_an_index_are_calibrated() -> None:
    """Of the labels of a row, some were taken away at random: nobody can be sure."""
    rng = np.random.default_rng(0)
    own = rng.integers(8, size=12_000)
    kept = rng.random(12_000) < np.linspace(0.2, 0.95, 8)[own]
    X = np.eye(8)[own] + 0.1 * rng.random((12_000, 8))
    Y = np.zeros((12_000, 16), dtype=np.float32)
    Y[np.arange(12_000), own] = kept
    Y[np.arange(12_000), 8 + rng.integers(8, size=12_000)] = 1  # so that each row has a label
    index = LabelIndex(small_labels(buckets=16)).fit(X[:10_000], Y[:10_000], threads=1)
    found = index.predict(X[10_000:], 16)
    correct = np.take_along_axis(Y[10_000:], found.labels, axis=1) > 0
    assert abs(found.scores.mean() - correct.mean()) < 0.02
    filled = 0
    for low, high in ((0, 0.02), (0.02, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 1)):
        part = (found.scores > low) & (found.scores <= high)
        if part.sum() > 1000:
            filled += 1
            assert abs(found.scores[part].mean() - correct[part].mean()) < 0.06
    assert filled >= 3


def test_where_scores_say_nothing_the_odds_are_those_of_a_label() -> None:
    Y = truth(400, seed=1)
    scores = noise(400, 2)
    calibration = fit_calibration(candidates(400, scores=scores), Y, PLAIN)
    share = Y.nnz / 4000
    assert calibration.threshold == pytest.approx(np.log(share / (1 - share)), abs=0.05)


def test_scores_alone_are_calibrated() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(4000, LABELS)).astype(np.float32)
    carried = rng.random(scores.shape) < 1 / (1 + np.exp(-(2 * scores - 1)))
    found = np.tile(np.arange(LABELS), (4000, 1))
    padded = np.pad(found, ((0, 0), (0, 2)), constant_values=-1)
    more = np.pad(scores, ((0, 0), (0, 2)), constant_values=-np.inf)
    alone = calibrate_scores(padded, more, sp.csr_array(carried.astype("f4")))
    assert alone.by_score == pytest.approx(2, abs=0.1)
    assert alone.threshold == pytest.approx(-1, abs=0.1)
    assert not alone.is_blended
    assert not alone.own


# --- corners ---------------------------------------------------------------------------------


def test_padding_is_no_evidence() -> None:
    Y, scores, votes = truth(100), noise(100, 1), np.abs(noise(100, 2))
    found = candidates(100, scores=scores, votes=votes)
    wide = ((0, 0), (0, 6))
    padded = Candidates(
        np.pad(found.labels, wide, constant_values=-1), *(np.pad(part, wide) for part in found[1:])
    )
    one, other = fit_calibration(found, Y, PLAIN), fit_calibration(padded, Y, PLAIN)
    assert one[:5] == pytest.approx(other[:5], rel=1e-3)
    assert (one.to_log_odds(padded)[:, -6:] == -np.inf).all()


def test_rows_without_evidence() -> None:
    """Nothing is found, nothing is right, or nothing is told apart: no crash, finite odds."""
    nothing = truth(50, share=0.0)
    for found, carried in (
        (candidates(50, scores=noise(50, 1)), nothing),
        (candidates(50), truth(50)),
        (candidates(50)._replace(labels=np.full((50, LABELS), -1)), truth(50)),
    ):
        odds = fit_calibration(found, carried, PLAIN).to_log_odds(found)
        assert np.isfinite(odds[found.labels >= 0]).all()
    found = candidates(50, scores=noise(50, 1))
    assert calibrate_scores(found.labels, found.scores, nothing) == INDEX_ALONE


def test_log_odds_by_the_definition() -> None:
    found = Candidates(
        np.array([[4, 0, 1, 2, -1]]),
        np.array([[0.0, -2.0, 3.0, 1.0, 9.0]], dtype=np.float32),
        np.array([[-1.0, 0.5, 1.0, 7.0, 9.0]], dtype=np.float32),
        np.array([[0.0, 0.01, 0.03, 0.07, 9.0]], dtype=np.float32),
    )
    calibration = Calibration(by_margin=2.0, by_score=0.5, threshold=-1.0)
    np.testing.assert_allclose(calibration.to_log_odds(found), [[-9.0, -2.5, 0.5, -0.5, -np.inf]])
    with_votes = calibration._replace(by_votes=0.25)
    right = [[-9.0, -2.25, 1.0, 0.25, -np.inf]]
    np.testing.assert_allclose(with_votes.to_log_odds(found), right, rtol=1e-6)


def test_true_candidates_are_found() -> None:
    Y = sp.csr_array(np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=np.float32))
    labels = np.array([[2, 0, -1], [-1, 1, 0], [0, 1, 2]])
    empty = np.zeros((3, 3), dtype=np.float32)
    correct = Candidates(labels, empty, empty, empty).find_true(Y)
    assert correct.tolist() == [[True, False, False], [False, False, True], [False] * 3]
