"""Scaling: each kind against NumPy and scikit-learn, which are tried, and what an index keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, random_rows, small_labels

import irli
from irli import LabelIndex
from irli.cluster import ShardedLabelIndex
from irli.labels.build import routing
from irli.labels.build.scaling import GIVEN, SCALINGS, Scaling, list_scalings
from irli.labels.tuning import tune
from irli.labels.tuning.tune import Wishes
from irli.learning.options import LearnOptions


def counts(rows: int = 30, dim: int = 12, seed: int = 0) -> sp.csr_array:
    """Rows of counts, some of them empty."""
    rng = np.random.default_rng(seed)
    dense = rng.poisson(0.8, size=(rows, dim)).astype(np.float32)
    dense[::7] = 0
    return sp.csr_array(dense)


def gaussian(rows: int = 40, dim: int = 9) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(1)
    return (rng.normal(size=(rows, dim)) * np.arange(1, dim + 1) + 5).astype(np.float32)


def named(scalings: list[Scaling], name: str) -> Scaling:
    return next(scaling for scaling in scalings if scaling.name == name)


def as_dense(rows: Any) -> Any:
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


# --- each kind -------------------------------------------------------------------------------


def test_given_rows_stay_as_they_are() -> None:
    for rows in (counts(), gaussian()):
        assert GIVEN.apply(rows) is rows


@pytest.mark.parametrize("dense", [False, True])
def test_unit_length(dense: bool) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    X = random_rows(20, 12)
    scaled = Scaling("unit").apply(X.toarray() if dense else X)
    assert isinstance(scaled, np.ndarray) == dense
    np.testing.assert_allclose(as_dense(scaled), preprocessing.normalize(X.toarray()), atol=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_counts_of_words(dense: bool) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    X, fresh = counts(), counts(seed=1)
    scaling = named(list_scalings(X.toarray() if dense else X), "tf-idf")
    learned = text.TfidfTransformer(sublinear_tf=True).fit(X)
    for rows in (X, fresh):
        scaled = scaling.apply(rows.toarray() if dense else rows)
        assert isinstance(scaled, np.ndarray) == dense
        np.testing.assert_allclose(as_dense(scaled), learned.transform(rows).toarray(), atol=1e-5)


def test_standard_columns() -> None:
    X = gaussian()
    scaling = named(list_scalings(X), "standard")
    right = (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(X.shape[1])
    scaled = scaling.apply(X)
    np.testing.assert_allclose(scaled, right, atol=1e-5)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaling.apply(sp.csr_array(X)), right, atol=1e-5)
    assert np.mean((scaled**2).sum(axis=1)) == pytest.approx(1, rel=1e-4)


def test_columns_that_never_change_become_zero() -> None:
    X = gaussian()
    X[:, 3] = 7
    scaled = named(list_scalings(X), "standard").apply(X)
    assert (scaled[:, 3] == 0).all()
    assert np.isfinite(scaled).all()


@pytest.mark.parametrize("name", ["unit", "tf-idf"])
def test_odd_values_do_no_harm(name: str) -> None:
    """A query may have what no training row had: values of 0, below 1 and below 0."""
    row = sp.csr_array(np.array([[0.5, -3.0, 2.0, 1e-3]], dtype=np.float32))
    empty = sp.csr_array((2, 4), dtype=np.float32)
    scaling = Scaling(name, np.ones(4 if name == "tf-idf" else 0, dtype=np.float32))
    for rows in (row, empty):
        assert np.isfinite(scaling.apply(rows).toarray()).all()
    assert scaling.apply(empty).nnz == 0


def test_scaling_changes_nothing_of_the_caller_s() -> None:
    for X in (counts(), counts().toarray() + 1):
        before = as_dense(X).copy()
        for scaling in list_scalings(X):
            scaling.apply(X)
        np.testing.assert_array_equal(as_dense(X), before)


# --- which are tried -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (counts(), ["given", "unit", "tf-idf"]),
        (Scaling("unit").apply(counts()), ["given"]),
        (random_rows(20, 12), ["given", "unit"]),
        (gaussian(), ["given", "unit", "standard"]),
        (Scaling("unit").apply(gaussian()), ["given", "standard"]),
        (counts().toarray() + 1, ["given", "unit", "tf-idf", "standard"]),
        (np.eye(5, dtype=np.float32), ["given", "tf-idf"]),
        (sp.csr_array((5, 3), dtype=np.float32), ["given"]),
    ],
)
def test_what_makes_sense_is_tried(rows: Any, names: list[str]) -> None:
    scalings = list_scalings(rows)
    assert [scaling.name for scaling in scalings] == names
    assert set(names) <= set(SCALINGS)
    for scaling in scalings:
        arrays = {"tf-idf": (True, False), "standard": (True, True)}.get(scaling.name, (False,) * 2)
        lengths = [rows.shape[1] if there else 0 for there in arrays]
        assert [len(scaling.factors), len(scaling.means)] == lengths


# --- in an index -----------------------------------------------------------------------------


def test_state_round_trip() -> None:
    for rows in (counts(), gaussian()):
        for scaling in list_scalings(rows):
            again = Scaling.from_state(scaling.state())
            assert again.name == scaling.name
            np.testing.assert_array_equal(
                as_dense(again.apply(rows)), as_dense(scaling.apply(rows))
            )


def stretched() -> tuple[np.ndarray[Any, Any], Any]:
    """Columns of very different size: those that speak of labels are the smallest."""
    X, Y = labelled(500, 12, most=1, seed=1)
    rng = np.random.default_rng(0)
    loud = rng.normal(size=(500, 5)) * 30 + 100
    quiet = X.toarray()[:, :36] + 0.01 * rng.random((500, 36))
    return np.hstack([quiet, loud]).astype(np.float32), Y


@pytest.fixture
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "LEAST_ROWS", 100)


@pytest.mark.usefixtures("few_rows_are_enough")
def test_a_scaling_that_helps_is_chosen_and_kept(tmp_path: Path) -> None:
    X, Y = stretched()
    index = LabelIndex(small_labels(epochs=1), ranker=True).fit(X, Y, threads=1)
    tried = {e["tried"]: e["quality"] for e in index.history if e.get("choice") == "scaling"}
    assert list(tried) == ["given", "unit", "standard"]
    assert tried["standard"] > tried["given"] + 0.1
    model = index._fitted().contents.model
    assert model.ranking.name == "standard"
    right = index.predict(X, 3)
    index.save(tmp_path / "index")
    for mmap in (True, False):
        again = irli.load(tmp_path / "index", mmap=mmap)
        kept = again._fitted().contents.model
        assert (kept.ranking.name, kept.routing.name) == ("standard", model.routing.name)
        np.testing.assert_array_equal(kept.ranking.means, model.ranking.means)
        assert (kept.cost, kept.prune) == (model.cost, model.prune)
        for one, other in zip(again.predict(X, 3), right, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("few_rows_are_enough")
def test_added_labels_are_learned_from_scaled_rows() -> None:
    """The ranker of new labels sees rows as that of the others does."""
    X, Y = stretched()
    old = np.asarray(Y[:, 8:].sum(axis=1)).ravel() == 0
    recipe = small_labels(epochs=1, buckets=4)
    index = LabelIndex(recipe, ranker=True).fit(X[old], Y[old][:, :8], threads=1)
    assert index._fitted().contents.model.ranking.name == "standard"
    index.add_labels(X, Y[:, 8:], threads=1)
    best = index.predict(X[~old], 1).labels.ravel()
    assert (best == Y[~old].indices).mean() > 0.8


def test_routers_choose_a_scaling_but_not_those_of_the_paper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "LEAST_ROWS", 100)
    X, Y = stretched()
    run = LearnOptions(threads=1)
    chosen, _, trials = routing.choose_routing(X, Y, small_labels(epochs=2), Wishes(), run)
    assert chosen.name in SCALINGS
    index = LabelIndex(small_labels(epochs=2)).fit(X, Y, threads=1)
    shards = ShardedLabelIndex(small_labels(epochs=2), shards=2).fit(X, Y, threads=1)
    assert [one["tried"] for one in trials] == ["given", "unit", "standard"]
    assert [one for one in index.history if one.get("choice") == "routing"] == trials
    told = [one for one in shards.history if one.get("choice") == "routing"]
    assert told == [one | {"shard": shard} for shard in range(2) for one in trials]
    tried: list[Any] = []
    monkeypatch.setattr(routing, "list_scalings", tried.append)
    paper = irli.recipe("paper-labels", buckets=4, hidden=8, repetitions=1, choices=2)
    kept = routing.choose_routing(X, Y, paper, Wishes(), run)
    assert kept == (GIVEN, paper.resolve_for_labels(Y.shape[1]), [])
    assert not tried
