"""Objective: what each measures, and that rare labels win if they should."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from plantedlabels import small_labels

from irli import InvalidParameter, LabelIndex, load
from irli.labels.metrics import inverse_propensity, precision, propensity_scored_precision
from irli.labels.tuning.objective import OBJECTIVES, Objective, list_depths, mean_precision

LABELS = 8


def skewed(rows: int = 400, seed: int = 0) -> sp.csr_array:
    """Label 0 is common, the others are rare, the last ones most of all."""
    rng = np.random.default_rng(seed)
    share = 0.5 ** np.arange(LABELS)
    return sp.csr_array((rng.random((rows, LABELS)) < share).astype(np.float32))


def answers(rows: int, seed: int = 1) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(LABELS)[:5] for _ in range(rows)])


# --- what is measured ------------------------------------------------------------------------


def test_each_measures_what_it_says() -> None:
    Y, found = skewed(), answers(400)
    weights = inverse_propensity(Y)
    plain = np.mean([precision(found, Y, k) for k in (1, 3, 5)])
    rare = np.mean([propensity_scored_precision(found, Y, weights, k) for k in (1, 3, 5)])
    assert abs(plain - rare) > 0.01
    measured = {name: Objective.of(name, Y).measure(found, Y) for name in OBJECTIVES}
    assert measured["precision"] == pytest.approx(plain)
    assert measured["propensity"] == pytest.approx(rare)
    assert measured["balanced"] == pytest.approx((plain + rare) / 2)


def test_finding_a_rare_label_is_worth_more() -> None:
    """Two rows with a common and a rare label each, of which one may be found."""
    seen = skewed()
    Y = np.zeros((1, LABELS), dtype=np.float32)
    Y[0, [0, 6]] = 1
    truth = sp.csr_array(Y)
    common, rare = np.array([[0, 1, 2, 3, 4]]), np.array([[6, 1, 2, 3, 4]])
    gain = {}
    for name in OBJECTIVES:
        goal = Objective.of(name, seen)
        gain[name] = goal.measure(rare, truth) - goal.measure(common, truth)
    assert gain["precision"] == pytest.approx(0)
    assert gain["propensity"] > gain["balanced"] > 0.05


def test_importance() -> None:
    Y = skewed()
    counts = Y.toarray().sum(axis=0)
    plain, balanced, rare = (Objective.of(name, Y) for name in OBJECTIVES)
    assert (plain.importance == 1).all()
    for goal in (balanced, rare):
        assert goal.importance[np.argmax(counts)] == pytest.approx(1)
        assert (goal.importance[np.argsort(-counts)][1:] >= 1).all()
        assert goal.importance.argmax() == counts.argmin()


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_very_few_rows_count_alike(rows: int) -> None:
    goal = Objective.of("propensity", skewed(rows))
    assert (goal.importance == 1).all()


def test_depths_end_with_the_labels_found() -> None:
    assert list_depths(np.zeros((3, 7))) == [1, 3, 5]
    assert list_depths(np.zeros((3, 4))) == [1, 3]
    assert list_depths(np.zeros((3, 1))) == [1]
    Y, found = skewed(50), answers(50)[:, :2]
    assert mean_precision(found, Y) == precision(found, Y, 1)


# --- in an index -----------------------------------------------------------------------------


def ambiguous(rows: int, seed: int) -> tuple[NDArray[np.float32], sp.csr_array]:
    """Feature f speaks for the common label 0 (in 55 %), or else for the rare label f."""
    rng = np.random.default_rng(seed)
    own = 1 + rng.integers(40, size=rows)
    common = rng.random(rows) < 0.55
    X = np.eye(41, dtype=np.float32)[own] + 0.05 * rng.random((rows, 41), dtype=np.float32)
    carried = np.zeros((rows, 41), dtype=np.float32)
    carried[np.arange(rows), np.where(common, 0, own)] = 1
    return X, sp.csr_array(carried)


def test_rare_labels_win_under_propensity() -> None:
    X, Y = ambiguous(2000, 0)
    fresh, truth = ambiguous(1000, 1)
    weights = inverse_propensity(Y)
    share, rarity = {}, {}
    for name in ("precision", "propensity"):
        index = LabelIndex(small_labels(epochs=4), ranker=True, objective=name)
        found = index.fit(X, Y, threads=1).predict(fresh, 1).labels
        share[name] = (found > 0).mean()
        rarity[name] = propensity_scored_precision(found, truth, weights, 1)
    assert share["propensity"] > share["precision"] + 0.2
    assert rarity["propensity"] > rarity["precision"]


def test_an_index_keeps_its_objective(tmp_path) -> None:
    X, Y = ambiguous(200, 0)
    index = LabelIndex(small_labels(epochs=1), objective="propensity").fit(X, Y, threads=1)
    index.save(tmp_path / "index")
    assert load(tmp_path / "index").get_params()["objective"] == "propensity"
    with pytest.raises(InvalidParameter, match=r"'objective' parameter of LabelIndex"):
        LabelIndex(objective="recall")
