"""The ranker: what it learns, what it drops, and that everybody computes the same margins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plantedlabels import labelled, random_label_layout, random_ranker, random_rows, train

from irli.labels.build.assemble import add_ranker
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.ranking.ranker import Ranker, usual_values
from irli.labels.tuning.calibration import Calibration


def weights(ranker: Ranker) -> NDArray[np.float32]:
    """(D, L), dense."""
    return ranker.matrix().toarray()


def objective(X: NDArray, sign: NDArray, weight: NDArray, bias: float, price: NDArray) -> float:
    """What a label's classifier minimises: squared hinge and the size of weights and bias."""
    lack = np.maximum(0, 1 - sign * (X @ weight + bias))
    return float((weight**2).sum() / 2 + bias**2 / 2 + (price * lack**2).sum())


def assert_same(one: Ranker, other: Ranker) -> None:
    for name, left, right in zip(Ranker._fields, one, other, strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


# --- learning --------------------------------------------------------------------------------


def test_planted_labels_are_told_apart() -> None:
    X, Y = labelled(400, 20, seed=1)
    fresh = labelled(200, 20, seed=2)
    ranker = train(X, Y)
    for rows, truth in ((X, Y), fresh):
        right = truth.toarray() > 0
        assert ((ranker.margins(rows) > 0) == right).mean() > 0.995


def test_the_weights_are_near_the_minimum() -> None:
    """Nudged in any direction, the objective hardly falls; at zero it is far higher."""
    X, Y = labelled(60, 4, seed=3)
    importance = np.array([1.0, 3.0, 1.0, 2.0], dtype=np.float32)
    ranker = train(X, Y, importance=importance, cost=0.5)
    dense, matrix = X.toarray(), weights(ranker)
    rng = np.random.default_rng(0)
    for label in range(4):
        carried = Y.toarray()[:, label] > 0
        sign = np.where(carried, 1.0, -1.0)
        price = 0.5 * np.where(carried, importance[label], 1.0)
        reached = objective(dense, sign, matrix[:, label], ranker.bias[label], price)
        nothing = objective(dense, sign, 0 * matrix[:, label], 0.0, price)
        assert reached < 0.6 * nothing
        for _ in range(20):
            nudge = 0.05 * rng.normal(size=len(matrix))
            near = objective(dense, sign, matrix[:, label] + nudge, ranker.bias[label], price)
            assert near > 0.995 * reached


def test_importance_raises_the_margins_of_a_label_s_own_rows() -> None:
    X, Y = labelled(60, 4, noise=8, seed=3)
    plain = train(X, Y, cost=0.1).margins(X)
    raised = train(X, Y, cost=0.1, importance=np.array([1, 10, 1, 1], "f4")).margins(X)
    own = Y.toarray()[:, 1] > 0
    assert raised[own, 1].mean() > plain[own, 1].mean() + 0.1
    np.testing.assert_array_equal(raised[:, [0, 2, 3]], plain[:, [0, 2, 3]])


def test_proposals_that_a_row_carries_are_no_negatives() -> None:
    X, Y = labelled(80, 6, seed=4)
    wrong = 1 - Y.toarray()
    assert_same(train(X, Y, np.ones(Y.shape)), train(X, Y, wrong))


def test_only_proposals_are_negatives() -> None:
    """Features of rows that nobody proposed the label for have no weight."""
    X = sp.csr_array(np.eye(6, dtype=np.float32))
    Y = sp.csr_array(np.array([[1], [1], [0], [0], [0], [0]], dtype=np.float32))
    negatives = np.array([[0], [0], [1], [0], [0], [0]])
    matrix = weights(train(X, Y, negatives))[:, 0]
    assert (matrix[:2] > 0.1).all()
    assert matrix[2] < -0.1
    assert (matrix[3:] == 0).all()


def test_labels_without_rows() -> None:
    X, Y = labelled(80, 6, seed=4)
    carried = Y.toarray()
    carried[:, [2, 5]] = 0
    proposed = np.ones(Y.shape)
    proposed[:, 5] = 0
    ranker = train(X, sp.csr_array(carried), proposed)
    margins = ranker.margins(X)
    assert (margins[:, 2] < 0).all()  # proposed, and always wrong
    assert (margins[:, 5] == 0).all()  # never heard of
    full = train(X, Y)
    np.testing.assert_array_equal(margins[:, [0, 1]], full.margins(X)[:, [0, 1]])


def test_nothing_proposed_and_nothing_carried() -> None:
    X, Y = labelled(20, 4)
    ranker = train(X, sp.csr_array(Y.shape, dtype=np.float32), np.zeros(Y.shape))
    assert len(ranker.weights) == 0
    assert ranker.margins(X).shape == (20, 4)
    assert not ranker.margins(X).any()


def test_rows_without_features_speak_for_the_bias() -> None:
    X = sp.csr_array((10, 3), dtype=np.float32)
    Y = sp.csr_array(np.eye(1, 2, dtype=np.float32).repeat(10, axis=0))
    ranker = train(X, Y)
    assert len(ranker.weights) == 0
    assert ranker.bias[0] > 0.5
    assert ranker.bias[1] < -0.5


def test_more_weights_than_the_first_guess() -> None:
    """The buffers of a piece grow as they fill."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(12, 3000)).astype(np.float32))
    Y = sp.csr_array(np.eye(3, dtype=np.float32)[np.arange(12) % 3])
    ranker = train(X, Y)
    assert len(ranker.weights) == 9000
    assert (ranker.margins(X).argmax(axis=1) == np.arange(12) % 3).all()


# --- pruning ---------------------------------------------------------------------------------


def grain(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """(L,): half of what the weights of a label are rounded to."""
    return np.abs(matrix).max(axis=0, initial=0) / 254 + 1e-6


@pytest.mark.parametrize("prune", [0.02, 0.1, 100.0])
def test_pruning_drops_the_small_weights_and_no_others(prune: float) -> None:
    X, Y = labelled(100, 8, seed=5)
    whole, pruned = train(X, Y), train(X, Y, prune=prune)
    dense, usual = weights(whole), usual_values(X)[:, None]
    adds = np.abs(dense) * usual
    kept = weights(pruned) != 0
    unsure = np.abs(adds - prune) <= 2 * grain(dense) * usual
    np.testing.assert_array_equal(kept | unsure, (adds >= prune) | unsure)
    assert (np.abs(weights(pruned) - dense) <= 2 * grain(dense))[kept].all()
    np.testing.assert_array_equal(pruned.bias, whole.bias)
    assert len(pruned.weights) < len(whole.weights)


@pytest.mark.parametrize("prune", [0.0, 0.02, 0.1, 100.0])
def test_pruning_afterwards_is_the_same(prune: float) -> None:
    X, Y = labelled(100, 8, seed=5)
    whole, usual = train(X, Y), usual_values(X)
    pruned = whole.prune(prune, usual)
    dense = weights(whole)
    right = np.where(np.abs(dense) * usual[:, None] >= prune, dense, 0)
    np.testing.assert_allclose(weights(pruned), right, atol=1e-6)
    assert len(pruned.weights) == np.count_nonzero(right)


# --- three bytes for a weight ----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    features=st.integers(1, 6),
    labels=st.sampled_from([1, 2, 65_535, 65_536, 65_537, 131_072, 200_000]),
    count=st.integers(0, 40),
)
def test_weights_are_packed_and_unpacked(seed: int, features: int, labels: int, count: int) -> None:
    """However far apart the labels of a feature are; each weight off by half a step at most."""
    rng = np.random.default_rng(seed)
    place = rng.integers(features, size=count), rng.integers(labels, size=count)
    given = sp.csr_array((rng.normal(size=count).astype("f4"), place), shape=(features, labels))
    given.sum_duplicates()
    ranker = Ranker.pack(given, np.zeros(labels, "f4"))
    assert ranker.starts[-1] == len(ranker.gaps) == len(ranker.weights)
    back = ranker.matrix()
    assert back.has_sorted_indices
    worst = np.zeros(labels)
    np.maximum.at(worst, given.indices, np.abs(given.data))
    gone = abs(given - back).tocoo()
    assert (gone.data <= worst[gone.col] / 254 * (1 + 1e-5)).all()


def test_greater_distances_are_bridged() -> None:
    matrix = sp.csr_array((np.array([1.0, -1.0], "f4"), ([0, 0], [70_000, 300_000])))
    ranker = Ranker.pack(matrix, np.zeros(300_001, "f4"))
    assert ranker.gaps.tolist() == [65_535, 4_465, 65_535, 65_535, 65_535, 33_395]
    assert ranker.weights.tolist() == [0, 127, 0, 0, 0, -127]
    row = sp.csr_array(np.array([[2.0]], dtype=np.float32))
    margins = ranker.margins(row)[0, [70_000, 300_000, 65_535, 5]]
    np.testing.assert_allclose(margins, [2, -2, 0, 0], atol=1e-5)


def test_a_mapped_ranker_can_be_unpacked() -> None:
    ranker = random_ranker(9, 5)
    for array in ranker:
        array.flags.writeable = False
    usual = np.ones(5, dtype=np.float32)
    assert_same(ranker.prune(0.0, usual), ranker)


# --- one result, however it is computed ------------------------------------------------------


@pytest.mark.parametrize("labels", [1, 5, 40])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(labels: int, threads: int) -> None:
    X, Y = labelled(150, labels, most=1, noise=5, seed=6)
    assert_same(train(X, Y), train(X, Y, threads=threads))


def test_the_same_seed_gives_the_same_ranker() -> None:
    X, Y = labelled(150, 10, noise=8, seed=6)
    assert_same(train(X, Y, seed=3), train(X, Y, seed=3))
    assert not np.array_equal(train(X, Y, seed=3).weights, train(X, Y, seed=4).weights)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 12),
    labels=st.integers(1, 30),
    dim=st.integers(1, 20),
    density=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_margins_are_the_same_everywhere(
    seed: int, rows: int, labels: int, dim: int, density: float
) -> None:
    """Dense products, the candidates of the calibration, and the compiled prediction."""
    ranker = random_ranker(labels, dim, density, seed)
    X = random_rows(rows, dim, seed=seed)
    right = X.toarray().astype(np.float64) @ weights(ranker) + ranker.bias
    margins = ranker.margins(X)
    np.testing.assert_allclose(margins, right, rtol=1e-4, atol=1e-4)

    layout = random_label_layout(labels, min(labels, 4), dim=dim, seed=seed)
    calibration = Calibration(by_margin=1.0, by_score=0.0, threshold=0.0)
    predictor = Predictor(add_ranker(layout, ranker))
    found = predictor.list_candidates(X, X, LabelParameters(4), calibration)
    assert (np.sort(found.labels, axis=1) == np.arange(labels)).all()
    expected = np.take_along_axis(right, found.labels, axis=1)
    np.testing.assert_allclose(found.margins, expected, rtol=1e-4, atol=1e-4)

    scores, order = predictor.predict(X, X, labels, LabelParameters(4), calibration)
    assert (np.sort(order, axis=1) == np.arange(labels)).all()
    fused = -(np.maximum(0, 1 - np.take_along_axis(right, order, axis=1)) ** 2)
    np.testing.assert_allclose(scores, fused, rtol=1e-3, atol=1e-3)
