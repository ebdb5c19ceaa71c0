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
from irli.base.sparse import as_rows
from irli.cluster import ShardedLabelIndex
from irli.labels.build.scaling import GIVEN, SCALINGS, Scaling, list_scalings
from irli.labels.tuning.scaling import choose_scaling


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
        (counts(), ["unit", "tf-idf", "given"]),
        (Scaling("unit").apply(counts()), ["given"]),
        (random_rows(20, 12), ["unit", "given"]),
        (gaussian(), ["standard", "unit", "given"]),
        (Scaling("unit").apply(gaussian()), ["given", "standard"]),
        (counts().toarray() + 1, ["standard", "unit", "tf-idf", "given"]),
        (np.eye(5, dtype=np.float32), ["given", "tf-idf"]),
        (sp.csr_array((5, 3), dtype=np.float32), ["given"]),
        (gaussian() * np.float32(1e12), ["standard", "unit"]),
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


def test_a_scaling_that_helps_is_chosen_and_kept(tmp_path: Path) -> None:
    X, Y = stretched()
    index = LabelIndex(small_labels(epochs=1), ranker=True).fit(X, Y, threads=1)
    tried = {e["tried"]: e["quality"] for e in index.history if e.get("choice") == "scaling"}
    assert list(tried) == ["standard", "unit", "given"]
    assert tried["standard"] > tried["given"] + 0.1
    model = index._fitted().contents.model
    assert model.scaling.name == "standard"
    right = index.predict(X, 3)
    index.save(tmp_path / "index")
    for mmap in (True, False):
        again = irli.load(tmp_path / "index", mmap=mmap)
        kept = again._fitted().contents.model
        assert kept.scaling.name == "standard"
        np.testing.assert_array_equal(kept.scaling.means, model.scaling.means)
        assert kept.prune == model.prune
        for one, other in zip(again.predict(X, 3), right, strict=True):
            np.testing.assert_array_equal(one, other)


def test_added_labels_are_learned_from_scaled_rows() -> None:
    """The ranker of new labels sees rows as that of the others does."""
    X, Y = stretched()
    old = np.asarray(Y[:, 8:].sum(axis=1)).ravel() == 0
    recipe = small_labels(epochs=1, buckets=4)
    index = LabelIndex(recipe, ranker=True).fit(X[old], Y[old][:, :8], threads=1)
    assert index._fitted().contents.model.scaling.name == "standard"
    index.add_labels(X, Y[:, 8:], threads=1)
    best = index.predict(X[~old], 1).labels.ravel()
    assert (best == Y[~old].indices).mean() > 0.8


def test_a_scaling_is_chosen_but_not_for_the_paper() -> None:
    X, Y = stretched()
    chosen, trials = choose_scaling(X, Y, small_labels(), 1)
    assert chosen.name == "standard"
    shards = ShardedLabelIndex(small_labels(epochs=2), shards=2).fit(X, Y, threads=1)
    told = [one for one in shards.history if one.get("choice") == "scaling"]
    assert told == [one | {"shard": shard} for shard in range(2) for one in trials]
    paper = irli.recipe("paper-labels", buckets=4, hidden=8, repetitions=1, choices=2)
    assert choose_scaling(X, Y, paper, 1) == (GIVEN, [])


# --- rows of every kind ----------------------------------------------------------------------


def planted_rows(kind: str) -> tuple[Any, np.ndarray[Any, Any], str]:
    """Rows of 12 clusters that only some scalings tell apart, their labels, and the best one."""
    rng = np.random.default_rng(4)
    own = np.arange(900) % 12
    rows = rng.normal(size=(12, 16))[own] * 2 + rng.normal(size=(900, 16)) * 0.5
    if kind == "plain":
        return rows, own, "standard"
    if kind == "far from 0":
        return rows + 1000, own, "standard"
    if kind == "very far from 0":
        return rows + 1e5, own, "standard"
    if kind == "a column of years":
        return np.hstack([rows, rng.integers(1950, 2025, size=(900, 1))]), own, "standard"
    if kind == "columns of every scale":
        return rows * 10.0 ** rng.uniform(-8, 8, size=16), own, "standard"
    if kind == "rows of every length":
        return rows * 10.0 ** rng.uniform(-2, 2, size=(900, 1)), own, "unit"
    if kind == "unit length":
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), own, "given"
    words = np.where(np.arange(60) // 5 == own[:, None], 0.3, 0.0)  # each label has five words
    words[:, -5:] = 20  # and five are everywhere
    counts = rng.poisson(np.hstack([words, np.full((900, 5), 20.0)]))
    return sp.csr_array(counts), own, "tf-idf"


KINDS = ["plain", "far from 0", "very far from 0", "a column of years", "columns of every scale"]
KINDS += ["rows of every length", "unit length", "counts"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_scaled_so_that_labels_can_be_told_apart(kind: str) -> None:
    X, own, best = planted_rows(kind)
    _, Y = labelled(len(own), 12, most=1)
    scaling, trials = choose_scaling(as_rows(X), Y, small_labels(), 1)
    assert scaling.name == best, trials


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_dense_rows_of_every_kind_are_learned(kind: str) -> None:
    X, own, _ = planted_rows(kind)
    train, test = np.arange(720), np.arange(720, 900)
    index = LabelIndex(small_labels()).fit(X[train], own[train], threads=1)
    assert np.mean(index.predict(X[test], 1).labels.ravel() == own[test]) > 0.95


@pytest.mark.parametrize("scale", [1e30, 1e17, 1e-17, 1e-30, 1e-37])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("count", [900, 120])
def test_rows_of_extreme_scale_are_learned(scale: float, sparse: bool, count: int) -> None:
    dense, own, _ = planted_rows("plain")
    X: Any = sp.csr_array(dense * scale) if sparse else dense * scale
    train, test = np.arange(count * 4 // 5), np.arange(count * 4 // 5, count)
    index = LabelIndex(small_labels()).fit(X[train], own[train], threads=1)
    assert np.mean(index.predict(X[test], 1).labels.ravel() == own[test]) > 0.95
