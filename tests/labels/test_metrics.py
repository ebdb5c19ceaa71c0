from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from irli.errors import InvalidParameter
from irli.labels.metrics import (
    evaluate,
    f1,
    inverse_propensity,
    ndcg,
    precision,
    precision_of_possible,
    propensity_scored_precision,
    recall,
)

# Four instances of five labels: two hits of three, one of one, none of two, nothing to hit.
FOUND = np.array([[4, 2, 0], [1, 3, -1], [0, 1, 4], [2, -1, -1]])
TRUTH = sp.csr_array(np.array([[1, 1, 0, 0, 1], [0, 0, 0, 1, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]))
SECOND = 1 / math.log2(3)  # what a hit in the second place gains
THIRD = 1 / 2


def test_the_truth_in_every_form() -> None:
    numbers = np.array([[0, 1, 4], [3, -1, -1], [3, 2, -1], [-1, -1, -1]])
    right = evaluate(FOUND, TRUTH, TRUTH)
    assert evaluate(FOUND, numbers, numbers) == right
    assert evaluate(FOUND, TRUTH.toarray().astype(bool), TRUTH.toarray() / 1.0) == right
    weights = inverse_propensity(TRUTH)
    one = propensity_scored_precision(FOUND, numbers, weights, 2)
    assert one == propensity_scored_precision(FOUND, TRUTH, weights, 2)
    # More labels are known than the truth or the answers name.
    assert precision([[7]], [[3, -1]], 1) == 0
    assert propensity_scored_precision([[3]], [[3, -1]], np.ones(99), 1) == 1


def test_labels_beyond_float32() -> None:
    found = 2**24 + np.array([[1, 0], [3, 2]])
    assert precision(found, found[:, :1], 1) == 1
    assert precision(found[:, 1:], found[:, :1], 1) == 0


def test_precision() -> None:
    assert precision(FOUND, TRUTH, 1) == pytest.approx(1 / 4)
    assert precision(FOUND, TRUTH, 2) == pytest.approx((1 / 2 + 1 / 2) / 4)
    assert precision(FOUND, TRUTH, 3) == pytest.approx((2 / 3 + 1 / 3) / 4)


def test_precision_of_possible_skips_rows_without_labels() -> None:
    assert precision_of_possible(FOUND, TRUTH, 1) == pytest.approx(1 / 3)
    assert precision_of_possible(FOUND, TRUTH, 2) == pytest.approx((1 / 2 + 1 / 1 + 0) / 3)
    assert precision_of_possible(FOUND, TRUTH, 3) == pytest.approx((2 / 3 + 1 / 1 + 0) / 3)


def test_recall_skips_rows_without_labels() -> None:
    assert recall(FOUND, TRUTH, 1) == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert recall(FOUND, TRUTH, 3) == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_ndcg() -> None:
    assert ndcg(FOUND, TRUTH, 1) == pytest.approx(1 / 4)
    assert ndcg(FOUND, TRUTH, 2) == pytest.approx((1 / (1 + SECOND) + SECOND) / 4)
    three = (1 + THIRD) / (1 + SECOND + THIRD)
    assert ndcg(FOUND, TRUTH, 3) == pytest.approx((three + SECOND) / 4)


def test_inverse_propensity() -> None:
    labels = sp.csr_array(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0]]))
    c = (math.log(4) - 1) * 3.6**0.6
    expected = [1 + c * (n + 2.6) ** -0.6 for n in (4, 1, 0)]
    np.testing.assert_allclose(inverse_propensity(labels, a=0.6, b=2.6), expected)


def test_propensity_scored_precision_is_a_ratio_of_means() -> None:
    weights = np.array([1, 10, 2, 3, 4])
    assert propensity_scored_precision(FOUND, TRUTH, weights, 1) == pytest.approx(4 / (10 + 3 + 3))
    assert propensity_scored_precision(FOUND, TRUTH, weights, 2) == pytest.approx(
        (4 + 3) / (14 + 3 + 5)
    )
    assert propensity_scored_precision(FOUND, TRUTH, weights, 3) == pytest.approx(
        (4 + 1 + 3) / (15 + 3 + 5)
    )


def test_perfect_answers_score_one() -> None:
    found = [[0, 1, 4], [3, -1, -1], [2, 3, -1]]
    truth = TRUTH[:3]
    weights = [5, 5, 2, 3, 4]
    assert recall(found, truth, 3) == 1
    assert precision_of_possible(found, truth, 2) == 1
    assert ndcg(found, truth, 5) == pytest.approx(1)
    assert propensity_scored_precision(found, truth, weights, 3) == pytest.approx(1)


MEASURES: list[Callable[..., float]] = [
    precision,
    precision_of_possible,
    recall,
    ndcg,
    lambda found, truth, k: propensity_scored_precision(found, truth, np.arange(5) + 1.0, k),
]


@pytest.mark.parametrize("measure", MEASURES)
def test_a_label_counts_once(measure: Callable[..., float]) -> None:
    assert measure([[4, 4, 4]], TRUTH[:1], 3) == measure([[4, -1, -1]], TRUTH[:1], 3)


@pytest.mark.parametrize("measure", MEASURES)
def test_k_beyond_what_was_found(measure: Callable[..., float]) -> None:
    padded = np.hstack([FOUND, np.full((4, 4), -1)])
    assert measure(FOUND, TRUTH, 7) == measure(padded, TRUTH, 7)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_truth_may_be_stored_in_any_way(measure: Callable[..., float]) -> None:
    rows, columns = [2, 0, 0, 0, 0, 1, 2], [3, 4, 0, 0, 1, 3, 2]  # one of them twice
    coo = sp.coo_array((np.ones(7), (rows, columns)), shape=(4, 5))
    unsorted = sp.csr_array(
        (np.array([1, 0, 1, 5, 1, 1, 1]), [4, 2, 1, 0, 3, 3, 2], [0, 4, 5, 7, 7]), shape=(4, 5)
    )
    before = unsorted.copy()
    for k in (1, 2, 3):
        assert measure(FOUND, coo, k) == measure(FOUND, TRUTH, k)
        assert measure(FOUND, sp.csc_matrix(TRUTH), k) == measure(FOUND, TRUTH, k)
        assert measure(FOUND, unsorted, k) == measure(FOUND, TRUTH, k)
    np.testing.assert_array_equal(unsorted.indices, before.indices)


def slow(found: Any, truth: Any, weights: Any, k: int) -> dict[str, float]:
    """The measures, one instance and one place at a time."""
    names = ("P", "possible", "recall", "nDCG", "got", "best")
    gained: dict[str, list[float]] = {name: [] for name in names}
    for row, wanted in zip(found, truth, strict=True):
        y = set(np.flatnonzero(wanted))
        seen: set[int] = set()
        places = []
        for place, label in enumerate(row[:k], start=1):
            if label in y - seen:
                places.append(place)
                seen.add(label)
        ideal = sum(1 / math.log2(j + 1) for j in range(1, min(k, len(y)) + 1))
        gained["P"].append(len(places) / k)
        gained["nDCG"].append(sum(1 / math.log2(j + 1) for j in places) / ideal if y else 0)
        if y:
            gained["possible"].append(len(places) / min(k, len(y)))
            gained["recall"].append(len(places) / len(y))
        gained["got"].append(sum(weights[label] for label in seen))
        gained["best"].append(sum(sorted((weights[label] for label in y), reverse=True)[:k]))
    means = {name: sum(values) / len(values) for name, values in gained.items()}
    return means | {"PSP": means["got"] / means["best"]}


@given(st.integers(1, 8), st.integers(1, 12), st.integers(1, 6), st.integers(1, 9), st.data())
def test_measures_match_slow_ones(
    n: int, n_labels: int, width: int, k: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dense = rng.random((n, n_labels)) < data.draw(st.sampled_from([0.1, 0.5, 1]))
    dense[rng.integers(n), rng.integers(n_labels)] = True
    found = rng.integers(-1, n_labels, size=(n, width))
    weights = 1 + rng.random(n_labels)
    truth = sp.csr_array(dense.astype(np.float32))
    expected = slow(found, dense, weights, k)
    assert precision(found, truth, k) == pytest.approx(expected["P"])
    assert precision_of_possible(found, truth, k) == pytest.approx(expected["possible"])
    assert recall(found, truth, k) == pytest.approx(expected["recall"])
    assert ndcg(found, truth, k) == pytest.approx(expected["nDCG"])
    psp = propensity_scored_precision(found, truth, weights, k)
    assert psp == pytest.approx(expected["PSP"])


def test_f1_by_hand_and_by_scikit_learn() -> None:
    assert f1(FOUND, TRUTH, 1) == pytest.approx((2 / 4 + 0 + 0 + 0) / 4)
    assert f1(FOUND, TRUTH, 3) == pytest.approx((4 / 6 + 2 / 3 + 0 + 0) / 4)
    assert f1(FOUND, TRUTH, 9) == f1(FOUND, TRUTH, 3)
    given = np.zeros(TRUTH.shape, int)
    for row, labels in enumerate(FOUND):
        given[row, labels[labels >= 0]] = 1
    assert f1(FOUND, TRUTH, 3) == pytest.approx(f1_score(TRUTH.toarray(), given, average="samples"))


def test_evaluate_gathers_the_measures() -> None:
    train = sp.csr_array(np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0]]))
    weights = inverse_propensity(train, a=0.5, b=0.4)
    scores = evaluate(FOUND, TRUTH, train, ks=(1, 3), a=0.5, b=0.4)
    assert scores == {
        "P@1": precision(FOUND, TRUTH, 1),
        "P@3": precision(FOUND, TRUTH, 3),
        "nDCG@1": ndcg(FOUND, TRUTH, 1),
        "nDCG@3": ndcg(FOUND, TRUTH, 3),
        "F1@1": f1(FOUND, TRUTH, 1),
        "F1@3": f1(FOUND, TRUTH, 3),
        "PSP@1": propensity_scored_precision(FOUND, TRUTH, weights, 1),
        "PSP@3": propensity_scored_precision(FOUND, TRUTH, weights, 3),
        "recall@3": recall(FOUND, TRUTH, 3),
    }
    without = evaluate(FOUND, TRUTH)
    names = [f"{name}@{k}" for name in ("P", "nDCG", "F1") for k in (1, 3, 5)]
    assert list(without) == [*names, "recall@3"]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("found", "truth", "k", "message"),
    [
        (FOUND[:3], TRUTH, 1, r"'found'.*shape \(4, at least 1\).*Got int64 of shape \(3, 3\)"),
        (FOUND[:, :0], TRUTH, 1, r"Got int64 of shape \(4, 0\)"),
        (FOUND[0], TRUTH, 1, r"shape \(3,\)"),
        (FOUND / 1.0, TRUTH, 1, "Got float64"),
        (FOUND[:0], TRUTH[:0], 1, "at least one instance"),
        (np.where(FOUND == 3, 5, FOUND), TRUTH, 1, r"range \[0, 4\].*Got 5 in row 1"),
        (np.where(FOUND == 0, -2, FOUND), TRUTH, 1, "Got -2 in row 0"),
        (FOUND, TRUTH.toarray(), 1, "'truth' parameter must hold label numbers.* twice in row 0"),
        (FOUND, [["a"]] * 4, 1, "'truth' parameter must say which labels.* dtype <U1"),
        (FOUND, sp.coo_array([1, 0]), 1, r"Got shape \(2,\)"),
        (FOUND, TRUTH, 0, "'k' parameter"),
    ],
)
def test_refusals(
    measure: Callable[..., float], found: Any, truth: Any, k: int, message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        measure(found, truth, k)


def test_a_truth_without_labels() -> None:
    nothing = sp.csr_array((4, 5), dtype=np.float32)
    assert precision(FOUND, nothing, 3) == 0
    assert ndcg(FOUND, nothing, 3) == 0
    for measure in (recall, precision_of_possible):
        with pytest.raises(InvalidParameter, match="at least one label"):
            measure(FOUND, nothing, 3)
    with pytest.raises(InvalidParameter, match="at least one label"):
        propensity_scored_precision(FOUND, nothing, np.ones(5), 3)


def test_weights_of_another_width() -> None:
    with pytest.raises(InvalidParameter, match=r"shape \(5,\).*Got shape \(4,\)"):
        propensity_scored_precision(FOUND, TRUTH, np.ones(4), 1)
    with pytest.raises(InvalidParameter, match=r"Got shape \(4,\)"):
        evaluate(FOUND, TRUTH, train_labels=TRUTH[:, :4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": TRUTH[:2]}, "at least 3 rows.*Got 2"),
        ({"a": -1}, "'a' parameter"),
        ({"b": -1}, "'b' parameter"),
        ({"b": 0}, "'b' parameter.*above 0"),
    ],
)
def test_propensities_that_make_no_sense(change: dict[str, Any], message: str) -> None:
    labels = sp.csr_array(np.array([[1, 0], [1, 0], [1, 0]]))
    with pytest.raises(InvalidParameter, match=message):
        inverse_propensity(**{"train_labels": labels, **change})
