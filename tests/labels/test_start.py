"""Learning on from an earlier index: what is kept, what is learned, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, small_labels

import irli
from irli import LabelIndex
from irli.cluster import ShardedLabelIndex
from irli.errors import InvalidParameter
from irli.labels import learner
from irli.labels.metrics import precision

LABELS = 30
X, Y = labelled(900, LABELS, most=1)
TEXTS = [f"word{i % 7} own{i % 5}" for i in range(200)]
LISTS = [[f"label{i % 5}"] for i in range(200)]


def fit(rows: Any = X, labels: Any = Y, **changes: Any) -> LabelIndex:
    return LabelIndex(small_labels(epochs=10), ranker=True).fit(rows, labels, threads=1, **changes)


def p1(index: LabelIndex, rows: Any = X, labels: Any = Y) -> float:
    return precision(index.predict(rows, k=1).labels, labels, 1)


@pytest.mark.parametrize("loaded", [False, True])
def test_few_new_rows_and_a_new_label(loaded: bool, tmp_path: Path) -> None:
    own = np.flatnonzero(Y[:, [LABELS - 1]].toarray().ravel())
    order = np.concatenate([np.setdiff1d(np.arange(900), own)[:820], own])
    rows, carried = X[order], sp.csr_array(Y[order])
    old = fit(rows[:800], carried[:800][:, : LABELS - 1])
    if loaded:
        old.save(tmp_path / "old")
        old = irli.load(tmp_path / "old")
    tried = [entry for entry in old.history if "choice" in entry]
    index = fit(rows, carried, start=old)
    assert len(index) == LABELS
    assert len(old) == LABELS - 1
    assert [entry for entry in index.history if "choice" in entry] == tried  # nothing was chosen
    assert p1(index, rows, carried) > 0.95
    assert p1(index, rows[820:], carried[820:]) > 0.9  # those of the new label
    assert (index.rows, index.defaults) == (len(order), old.defaults)
    np.testing.assert_array_equal(index.counts, carried.sum(axis=0))
    index.save(tmp_path / "new")
    again = irli.load(tmp_path / "new")
    np.testing.assert_array_equal(again.predict(X).labels, index.predict(X).labels)


def test_nothing_new_changes_no_classifier() -> None:
    old = fit()
    index = fit(start=old)
    before, after = (one._fitted().contents.model.layout for one in (old, index))
    for name in ("starts", "gaps", "weights", "scale", "constant", "near_weights"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert p1(index) > 0.95


def test_many_new_rows_choose_again() -> None:
    old = fit(X[:300], Y[:300])
    index = fit(start=old)
    tried = [entry["choice"] for entry in index.history if "choice" in entry]
    assert tried.count("ranker") == 4  # two ways, twice
    assert p1(index) > 0.95


def test_rows_with_other_labels_are_new() -> None:
    """A few rows change hands: the labels that they had lose them."""
    old = fit()
    changed = np.flatnonzero(Y[:, [0]].toarray().ravel())
    other = Y.tolil()
    other[changed, 0] = 0
    other[changed, 1] = 1
    turned = sp.csr_array(other)
    index = fit(labels=turned, start=old)
    assert p1(old, X[changed], turned[changed]) < 0.1
    assert p1(index, X[changed], turned[changed]) > 0.9


def test_routers_take_a_part_of_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = []

    def learn(problem: Any, recipe: Any, run: Any, start: Any = None) -> Any:
        epochs.append(recipe.epochs)
        return real(problem, recipe, run, start)

    real = learner.learn
    monkeypatch.setattr(learner, "learn", learn)
    fit(start=fit())
    assert epochs == [10, 2]


def test_texts_go_on_with_their_words() -> None:
    old = LabelIndex(ranker=True).fit_text(TEXTS, LISTS, threads=1)
    more = [*TEXTS, *["word1 own1 unheard"] * 3]
    index = LabelIndex(ranker=True).fit_text(
        more, [*LISTS, *[["new"]] * 3], start=old, titles={"new": "word1"}, threads=1
    )
    assert index.names is not None
    assert list(index.names) == [*(f"label{i}" for i in range(5)), "new"]
    assert index.names.titles == {"new": "word1"}
    assert index.vectorizer is old.vectorizer
    assert index.predict_text(["own3"], k=1)[0][0][0] == "label3"
    with pytest.raises(InvalidParameter, match=r"'vectorizer'.*left out with start"):
        index.fit_text(TEXTS, LISTS, start=old, vectorizer=old.vectorizer)


def test_the_recipe_is_that_of_the_start() -> None:
    old = fit(X[:800], Y[:800])
    index = LabelIndex().fit(X, Y, start=old, threads=1)
    assert index.recipe == old.recipe


def test_what_a_start_must_be() -> None:
    old = fit(X[:200], Y[:200])
    with pytest.raises(InvalidParameter, match=r"'start'.*LabelIndex.*Got str"):
        LabelIndex().fit(X, Y, start="index")  # type: ignore[arg-type]
    with pytest.raises(irli.errors.NotFitted):
        LabelIndex().fit(X, Y, start=LabelIndex())
    with pytest.raises(InvalidParameter, match=r"'hidden'.*must be .*Got 48"):
        LabelIndex(small_labels(hidden=48)).fit(X, Y, start=old)
    with pytest.raises(InvalidParameter, match=r"'start'.*left out for an index in shards"):
        ShardedLabelIndex(small_labels(), shards=2).fit(X, Y, start=old)  # type: ignore[arg-type]
