"""Labels that are removed or renamed."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, small_labels

import irli
from irli import InvalidParameter, LabelIndex
from irli.labels.build.assemble import add_near_rows
from irli.labels.learned import Learned
from irli.labels.ranking.near_rows import NearRows

LABELS = 12
X, Y = labelled(360, LABELS)
NAMES = [f"label {number}" for number in range(LABELS)]
GONE = [0, 5, 11]
KEPT = [number for number in range(LABELS) if number not in GONE]


@pytest.fixture(scope="module")
def fitted() -> LabelIndex:
    """An index with names, a ranker, and near rows that vote."""
    index = LabelIndex(small_labels(buckets=4), ranker=True).fit(X, Y, names=NAMES, threads=1)
    contents = index._fitted().contents
    model = contents.model
    layout = add_near_rows(model.layout, NearRows.pack(sp.csr_array(model.scaling.apply(X)), Y))
    calibration = model.calibration._replace(by_votes=0.5)
    parameters = model.parameters.replace(near=20, probes=4, candidates=50)
    model = model._replace(layout=layout, calibration=calibration, parameters=parameters)
    index._learned = Learned.of(dataclasses.replace(contents, model=model))
    return index


@pytest.mark.parametrize(
    "given", [GONE, np.array(GONE), [NAMES[label] for label in GONE], (0, 5, 11)]
)
def test_the_others_are_predicted_as_before(fitted: LabelIndex, given: Any) -> None:
    index = copy.copy(fitted)
    assert index.remove_labels(given) is index
    assert len(index) == len(KEPT)
    assert list(index.names or []) == [NAMES[label] for label in KEPT]
    np.testing.assert_array_equal(index.counts, fitted.counts[KEPT])
    assert index.rows == fitted.rows
    before = fitted.decision_function(X, k=LABELS).toarray()[:, KEPT]
    after = index.decision_function(X, k=len(KEPT)).toarray()
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)


def test_nothing_of_them_is_left(fitted: LabelIndex) -> None:
    layout = copy.copy(fitted).remove_labels(GONE)._fitted().predictor.layout
    assert len(layout.prior) == len(layout.scale) == len(layout.constant) == len(KEPT)
    assert layout.items.max() < len(KEPT)
    assert layout.near_labels.max() < len(KEPT)
    assert len(layout.near_labels) == Y[:, KEPT].nnz


def test_a_loaded_index_loses_labels_and_is_saved(fitted: LabelIndex, tmp_path: Path) -> None:
    fitted.save(tmp_path / "index")
    index = irli.load(tmp_path / "index")
    index.remove_labels(GONE).rename({"label 1": "one"}).save(tmp_path / "other")
    again = irli.load(tmp_path / "other")
    assert next(iter(again.names)) == "one"
    right = copy.copy(fitted).remove_labels(GONE)
    np.testing.assert_array_equal(again.predict(X).labels, right.predict(X).labels)


def test_learning_goes_on_after_removal(fitted: LabelIndex) -> None:
    index = copy.copy(fitted).remove_labels(GONE)
    index.partial_fit(X[:60], Y[:60][:, KEPT], threads=1)
    index.add_labels(X, Y[:, [5]], names=["back"], threads=1)
    assert len(index) == len(KEPT) + 1
    rows = np.flatnonzero(Y[:, [5]].toarray().ravel())
    assert np.mean((index.predict(X[rows], k=2).labels == len(KEPT)).any(axis=1)) > 0.9
    more = sp.hstack([Y[:, KEPT], Y[:, [5]]], format="csr")
    index.fit(X, more, threads=1, start=index)
    labelled_rows = np.flatnonzero(np.diff(more.indptr))
    assert index.score(X[labelled_rows], more[labelled_rows]) > 0.9


def test_removing_nothing_changes_nothing(fitted: LabelIndex) -> None:
    index = copy.copy(fitted).remove_labels([])
    np.testing.assert_array_equal(index.predict(X).labels, fitted.predict(X).labels)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("label 1", r"must be a list of label numbers or names\. Got 'label 1'"),
        (3, "Put a single one into a list"),
        ([12], r"in the range \[0, 11\]\. Got 12"),
        ([-1], "Got -1"),
        ([0.5], "float64"),
        (["label 12"], r"Got 'label 12' instead\. Did you mean 'label"),
        (range(12), r"leave at least one of 12 labels"),
    ],
)
def test_wrong_labels(fitted: LabelIndex, given: Any, message: str) -> None:
    index = copy.copy(fitted)
    with pytest.raises(InvalidParameter, match=message):
        index.remove_labels(given)
    assert index._learned is fitted._learned


def test_names_of_an_index_without_any() -> None:
    index = LabelIndex(small_labels(buckets=4)).fit(X, Y, threads=1)
    with pytest.raises(InvalidParameter, match="has no names"):
        index.remove_labels(["a"])
    with pytest.raises(InvalidParameter, match="have none"):
        index.rename({"a": "b"})
    index.remove_labels([1])
    assert len(index) == LABELS - 1


def test_names_change(fitted: LabelIndex) -> None:
    index = copy.copy(fitted)
    index.rename({"label 1": "label 2", "label 2": "label 1", "label 3": "three"})
    assert list(index.names or [])[:4] == ["label 0", "label 2", "label 1", "three"]
    assert list(fitted.names or []) == NAMES
    np.testing.assert_array_equal(index.predict(X).scores, fitted.predict(X).scores)


def test_titles_go_with_the_labels() -> None:
    texts = ["cat one", "dog two", "cat", "dog"]
    index = LabelIndex().fit_text(
        texts, [["c"], ["d"], ["c"], ["d"]], titles={"c": "Cat", "d": "Dog"}
    )
    index.rename({"c": "http://example.org/c"})
    assert index.names is not None
    assert index.names.titles == {"http://example.org/c": "Cat", "d": "Dog"}
    index.remove_labels(["d"])
    assert index.names.titles == {"http://example.org/c": "Cat"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"label 99": "x"}, r"must hold names of labels\. Got 'label 99' instead\. Did you mean"),
        ({"zebra": "x"}, "Check its spelling"),
        ({"label 1": "label 2"}, "must not give two labels one name. Got 'label 2' for 'label 1'"),
        ({"label 1": 2}, "Got int for 'label 1'"),
        (["label 1"], "must be a dict"),
    ],
)
def test_wrong_names(fitted: LabelIndex, given: Any, message: str) -> None:
    index = copy.copy(fitted)
    with pytest.raises(InvalidParameter, match=message):
        index.rename(given)
    assert index._learned is fitted._learned
