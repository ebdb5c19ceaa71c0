"""Learning from new rows: partial_fit, add_labels, and the ranker that starts from its weights."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from plantedlabels import labelled, random_ranker, random_rows, small_labels, train

import irli
from irli import InvalidParameter, IrliWarning, LabelIndex
from irli.labels.build.assemble import add_near_rows
from irli.labels.changes.online import choose_replay, restore_lengths, update_ranker, widen_ranker
from irli.labels.learned import Learned
from irli.labels.ranking.near_rows import NearRows, scale_to_unit
from irli.labels.ranking.ranker import Ranker, train_ranker

LABELS, DIM = 12, 3 * 12 + 40
X, Y = labelled(600, LABELS)
OLD, NEW = np.arange(480), np.arange(480, 600)
RECIPE = small_labels(buckets=4)


@pytest.fixture(scope="module")
def fitted() -> LabelIndex:
    """An index of the old rows, with ten labels. The last two are new."""
    some = np.flatnonzero(np.diff(Y[OLD][:, 10:].indptr) == 0)
    return LabelIndex(RECIPE, ranker=True).fit(X[some], Y[some][:, :10], threads=1)


def with_near_rows(index: LabelIndex, rows: Any, labels: Any) -> LabelIndex:
    """Return the index with near rows that vote, whatever was chosen."""
    contents, _ = index._fitted()
    ranked = contents.model.scaling.apply(rows)
    layout = add_near_rows(contents.model.layout, NearRows.pack(sp.csr_array(ranked), labels))
    calibration = contents.model.calibration
    if calibration.by_votes <= 0:
        calibration = calibration._replace(by_votes=0.5)
    model = contents.model._replace(
        layout=layout,
        calibration=calibration,
        parameters=contents.model.parameters.replace(near=20),
    )
    made = LabelIndex(RECIPE)
    made._learned = Learned.of(dataclasses.replace(contents, model=model))
    return made


def copy_of(index: LabelIndex) -> LabelIndex:
    return copy.copy(index)


# --- partial_fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [False, True])
def test_new_rows_and_labels_are_learned(fitted: LabelIndex, near: bool) -> None:
    index = copy_of(fitted)
    if near:
        some = np.flatnonzero(np.diff(Y[OLD][:, 10:].indptr) == 0)
        index = with_near_rows(index, X[some], Y[some][:, :10])
    before = index.rows
    assert index.partial_fit(X[NEW], Y[NEW], threads=1) is index
    assert len(index) == LABELS
    assert index.rows == before + len(NEW)
    fresh = labelled(240, LABELS, seed=9)
    assert index.score(fresh.X, fresh.Y) > 0.95
    carries_new = np.flatnonzero(np.diff(fresh.Y[:, 10:].indptr))
    assert index.score(fresh.X[carries_new], fresh.Y[carries_new]) > 0.9
    assert len(index._fitted().contents.model.layout.near_scale) in (0, before + len(NEW))


def test_counts_and_keys_are_kept(fitted: LabelIndex) -> None:
    index = copy_of(fitted)
    old = index._fitted().contents
    index.partial_fit(X[NEW], Y[NEW], threads=1)
    contents = index._fitted().contents
    expected = np.asarray(Y[NEW].sum(axis=0)).ravel()
    expected[:10] += old.counts
    np.testing.assert_array_equal(contents.counts, expected)
    np.testing.assert_array_equal(contents.trained, old.trained)  # the routers have seen no more
    index.fit(sp.vstack([X[OLD], X[NEW]]), sp.vstack([Y[OLD], Y[NEW]]), threads=1, start=index)
    assert index.rows == 600


def test_rows_without_labels_are_not_used(fitted: LabelIndex) -> None:
    index, other = copy_of(fitted), copy_of(fitted)
    none = sp.csr_array((5, LABELS), dtype=np.float32)
    index.partial_fit(sp.vstack([X[NEW], X[:5]]), sp.vstack([Y[NEW], none]), threads=1)
    other.partial_fit(X[NEW], Y[NEW], threads=1)
    assert index.rows == other.rows
    np.testing.assert_array_equal(index.predict(X).scores, other.predict(X).scores)


def test_it_is_as_good_as_a_new_fit() -> None:
    """Rows whose labels share features: 20 % new rows, with features that no old row has."""
    all_X, all_Y = labelled(1500, 30, most=3, noise=6, seed=3)
    fresh = labelled(600, 30, most=3, noise=6, seed=4)
    recipe = small_labels()
    index = LabelIndex(recipe, ranker=True).fit(all_X[:1200], all_Y[:1200], threads=1)
    index.partial_fit(all_X[1200:], all_Y[1200:], threads=1)
    new = LabelIndex(recipe, ranker=True).fit(all_X, all_Y, threads=1)
    assert index.score(*fresh) >= new.score(*fresh) - 0.003


def test_what_changes_is_learned_from_a_few_rows(fitted: LabelIndex) -> None:
    """A feature that no old row has begins to speak for a known label."""
    index = copy_of(fitted)
    quiet = np.setdiff1d(np.arange(DIM), X[:480].indices)
    rows = np.zeros((30, DIM), dtype=np.float32)
    word = quiet[0] if len(quiet) else DIM - 1
    rows[:, word] = 1
    rows[:, 36:38] = 0.3
    index.partial_fit(rows, np.full((30, 1), 4), threads=1)
    assert index.predict(rows[0], k=1).labels[0] == 4
    assert index.score(X[:480], Y[:480]) > 0.9


@pytest.mark.parametrize("count", [1, 2])
def test_a_row_or_two_do_no_harm(fitted: LabelIndex, count: int) -> None:
    index = copy_of(fitted)
    before = index.score(X[OLD], Y[OLD])
    weights = index.stats()["ranker_weights"]
    index.partial_fit(X[:count], Y[:count][:, :10], threads=1)
    assert index.score(X[OLD], Y[OLD]) >= before - 0.01
    assert (
        index.stats()["ranker_weights"] >= 0.95 * weights
    )  # nothing is pruned by one row's values


def test_before_fit_it_is_fit() -> None:
    index = LabelIndex(RECIPE).partial_fit(X, Y, threads=1)
    right = LabelIndex(RECIPE).fit(X, Y, threads=1)
    np.testing.assert_array_equal(index.predict(X).scores, right.predict(X).scores)


def test_without_a_ranker_it_warns_and_adds_labels() -> None:
    index = LabelIndex(RECIPE, ranker=False).fit(X[OLD], Y[OLD][:, :10], threads=1)
    with pytest.warns(IrliWarning, match="no ranker"):
        index.partial_fit(X[NEW], Y[NEW], threads=1)
    assert len(index) == LABELS
    assert (index.predict(X[NEW], k=LABELS).labels >= 10).any()


def test_a_loaded_index_learns_on_and_is_saved(fitted: LabelIndex, tmp_path: Path) -> None:
    right = copy_of(fitted).partial_fit(X[NEW], Y[NEW], threads=1)
    fitted.save(tmp_path / "index")
    index = irli.load(tmp_path / "index")
    index.partial_fit(X[NEW], Y[NEW], threads=1)
    index.save(tmp_path / "index")
    found = irli.load(tmp_path / "index").predict(X)
    np.testing.assert_array_equal(found.labels, right.predict(X).labels)
    np.testing.assert_array_equal(found.scores, right.predict(X).scores)


def test_the_same_bytes_with_more_threads(fitted: LabelIndex) -> None:
    one, more = (copy_of(fitted).partial_fit(X[NEW], Y[NEW], threads=n) for n in (1, 3))
    np.testing.assert_array_equal(one.predict(X).scores, more.predict(X).scores)


def test_wrong_arguments(fitted: LabelIndex) -> None:
    with pytest.raises(irli.DimensionMismatch, match="features"):
        copy_of(fitted).partial_fit(X[:, :5], Y)
    with pytest.raises(InvalidParameter, match="partial_fit's Y"):
        copy_of(fitted).partial_fit(X[NEW], Y[NEW][:, :4])
    with pytest.raises(InvalidParameter, match="'names' parameter of partial_fit"):
        copy_of(fitted).partial_fit(X[NEW], Y[NEW], names=["a", "b"])


def test_sources_are_weighed_again_for_labels_that_routers_do_not_know() -> None:
    """The routers tell the old labels apart so well that nothing else would count."""
    rng = np.random.default_rng(0)
    own = np.arange(400) % 8
    rows = np.eye(10)[own] + 0.1 * rng.random((400, 10))
    index = LabelIndex(small_labels(epochs=15), ranker=True).fit(rows, own[:, None], threads=1)
    contents = index._fitted().contents
    loud = contents.model.calibration._replace(by_score=50.0, by_margin=0.5)
    model = contents.model._replace(calibration=loud)
    index._learned = Learned.of(dataclasses.replace(contents, model=model))
    more = np.arange(80) % 10  # 8 and 9 are new
    new = np.eye(10)[more] + 0.1 * rng.random((80, 10))
    index.partial_fit(new, np.eye(10)[more], threads=1)
    assert index.calibration.by_score < loud.by_score
    assert index.score(new, np.eye(10)[more]) > 0.95
    few = index.calibration
    index.partial_fit(new[:5], np.eye(10)[more[:5]], threads=1)
    assert index.calibration == few


# --- texts ---------------------------------------------------------------------------------------

PETS = ("cat", "dog", "bird")
TEXTS = [f"the {pet} {verb}" for pet in PETS for verb in ("eats", "naps", "plays", "sits")] * 4
LISTS = [[text.split()[1]] for text in TEXTS]


def make_text_index() -> LabelIndex:
    return LabelIndex(ranker=True).fit_text(TEXTS, LISTS, titles={"cat": "Felis"}, threads=1)


def test_texts_with_a_new_label() -> None:
    index = make_text_index()
    more = [("naps naps", ["sloth"]), ("naps", ["sloth"]), ("the dog", ["dog"])] * 3
    index.partial_fit_text(more, titles={"sloth": "Bradypus"}, threads=1)
    assert list(index.names or []) == ["bird", "cat", "dog", "sloth"]
    assert index.names is not None
    assert index.names.titles == {"cat": "Felis", "sloth": "Bradypus"}
    found = index.predict_text(["naps", "the dog", "bird"], 1)
    assert [row[0][0] for row in found] == ["sloth", "dog", "bird"]
    assert index.rows == len(TEXTS) + len(more)


def test_texts_without_known_words() -> None:
    index = make_text_index()
    with pytest.warns(IrliWarning, match="2 of 3 texts have no word .* They teach nothing"):
        index.partial_fit_text(["xyz", "the cat", "zyx"], [["cat"]] * 3, threads=1)
    assert index.rows == len(TEXTS) + 1
    with pytest.warns(IrliWarning, match="1 of 1"):
        index.partial_fit_text(["xyz"], [["cat"]])
    assert index.rows == len(TEXTS) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.partial_fit_text(["the cat"], [["cat"]], threads=1)


def test_texts_before_fit() -> None:
    index = LabelIndex(small_labels(buckets=3)).partial_fit_text(TEXTS, LISTS, threads=1)
    assert [row[0][0] for row in index.predict_text(["a bird"], 1)] == ["bird"]


# --- add_labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [False, True])
def test_added_labels_are_found_and_not_everywhere(fitted: LabelIndex, near: bool) -> None:
    index = copy_of(fitted)
    if near:
        some = np.flatnonzero(np.diff(Y[OLD][:, 10:].indptr) == 0)
        index = with_near_rows(index, X[some], Y[some][:, :10])
    carrying = NEW[np.flatnonzero(np.diff(Y[NEW][:, 10:].indptr))]
    before = len(index._fitted().contents.model.layout.near_scale)
    index.add_labels(X[carrying], Y[carrying][:, 10:], threads=1)
    assert len(index) == LABELS
    found = index.predict(X[carrying], k=2).labels
    assert np.mean((found >= 10).any(axis=1)) > 0.9
    others = np.flatnonzero(np.diff(Y[:, 10:].indptr) == 0)
    assert np.mean(index.predict(X[others], k=1).labels >= 10) < 0.05
    after = len(index._fitted().contents.model.layout.near_scale)
    assert after == before + (len(carrying) if before else 0)


def test_known_labels_keep_their_classifiers(fitted: LabelIndex) -> None:
    index = copy_of(fitted)
    right = index._fitted().predictor.layout
    carrying = NEW[np.flatnonzero(np.diff(Y[NEW][:, 10:].indptr))]
    index.add_labels(X[carrying], Y[carrying][:, 10:], threads=1)
    layout = index._fitted().predictor.layout
    np.testing.assert_array_equal(layout.constant[:10], right.constant)
    np.testing.assert_allclose(layout.scale[:10], right.scale, rtol=1e-6)


def test_a_label_of_known_rows_is_learned(fitted: LabelIndex) -> None:
    """The known copies of the rows do not speak against the label."""
    some = np.flatnonzero(np.diff(Y[OLD][:, 10:].indptr) == 0)
    index = with_near_rows(fitted, X[some], Y[some][:, :10])
    rows = some[np.flatnonzero(Y[some][:, [3]].toarray().ravel())]
    index.add_labels(X[rows], np.ones((len(rows), 1), dtype=bool), threads=1)
    found = index.predict(X[rows], k=3).labels
    assert np.mean((found == 10).any(axis=1)) > 0.9


# --- parts ---------------------------------------------------------------------------------------


def test_training_without_rows_changes_nothing() -> None:
    ranker = random_ranker(6, 9)
    rows = random_rows(4, 9)
    none = sp.csr_array((4, 6), dtype=np.float32)
    again = train_ranker(
        rows, none, none, cost=1.0, importance=np.ones(6, dtype=np.float32), prune=0.02,
        threads=1, start=ranker,
    )  # fmt: skip
    np.testing.assert_array_equal(again.bias, ranker.bias)
    np.testing.assert_allclose(again.matrix().toarray(), ranker.matrix().toarray(), rtol=1e-5)


def test_weights_that_fit_do_not_change() -> None:
    """The start has no loss on its own training rows, so it is the nearest solution."""
    rows, labels = sp.csr_array(np.eye(4, dtype="f4") * 5), sp.csr_array(np.eye(4, dtype="f4"))
    ranker = train(rows, labels, cost=100.0)
    assert np.abs(ranker.margins(rows)).min() > 0.9
    near = ranker._replace(scale=ranker.scale * 1.5, bias=ranker.bias * 1.5)
    again = train(rows, labels, start=near)
    np.testing.assert_allclose(again.margins(rows), near.margins(rows), rtol=1e-4)


def test_new_classifiers_start_unlikely() -> None:
    ranker = widen_ranker(random_ranker(3, 5), 5)
    assert ranker.margins(random_rows(2, 5)).shape == (2, 5)
    assert (ranker.bias[3:] == -1).all()


def test_near_rows_are_unpacked_and_extended() -> None:
    rows, labels = labelled(50, 5)
    known = NearRows.pack(rows[:40], labels[:40])
    unit, carried = known.unpack(5)
    np.testing.assert_allclose(unit.toarray(), scale_to_unit(rows[:40]).toarray(), atol=0.005)
    np.testing.assert_array_equal(carried.toarray(), labels[:40].toarray())
    none = np.zeros(rows.shape[1], dtype=bool)
    both, right = known.extend(rows[40:], labels[40:], none), NearRows.pack(rows, labels)
    for part, expected in zip(both, right, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-8)


def test_features_that_were_left_out_stay_out() -> None:
    rows, labels = labelled(50, 5)
    known = NearRows.pack(rows[:40], labels[:40])
    left_out = np.zeros(rows.shape[1], dtype=bool)
    left_out[0] = True
    unit, _ = known.extend(rows[40:], labels[40:], left_out).unpack(5)
    assert unit[40:, [0]].nnz == 0
    assert unit[:40, [0]].nnz > 0


def test_replayed_rows_are_no_copies() -> None:
    rows, labels = labelled(50, 5)
    known = NearRows.pack(rows, labels)
    with_copies = choose_replay(known, rows[:10], 0, spare_copies=False)
    without = choose_replay(known, rows[:10], 0, spare_copies=True)
    assert with_copies.shape[0] == 50
    assert without.shape[0] <= 40


def test_lengths_of_binary_rows_are_restored() -> None:
    binary = sp.csr_array((random_rows(20, 30).toarray() != 0).astype(np.float32))
    found = restore_lengths(scale_to_unit(binary), binary)
    np.testing.assert_allclose(found.toarray(), binary.toarray(), rtol=1e-5)


def test_labels_that_no_row_touches_keep_their_weights() -> None:
    rows, labels = labelled(60, 5)
    ranker = random_ranker(5, rows.shape[1])
    only = sp.csr_array(labels[:1])
    after = update_ranker(
        ranker, rows[:1], only, rows[:0], cost=1.0, share=0.5, importance=np.ones(5, "f4"),
        prune=0.0, partly=True, seed=0, threads=1,
    )  # fmt: skip
    quiet = np.setdiff1d(np.arange(5), only.indices)
    np.testing.assert_array_equal(after.bias[quiet], ranker.bias[quiet])


def plant_crowds(n: int, seed: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Draw rows of two topics, with many labels each. A few rows carry a part of them only."""
    rng = np.random.default_rng([seed, 5])
    topics, words, labels = 12, 20, 40
    rows = np.zeros((n, topics * words), dtype=np.float32)
    carried = np.zeros((n, topics * labels), dtype=np.float32)
    for row in range(n):
        for topic in rng.choice(topics, 2, replace=False):
            rows[row, topic * words + rng.choice(words, 8, replace=False)] = 1
            carried[row, topic * labels : (topic + 1) * labels] = rng.random(labels) < 0.25
    carried[:, 0] = 1
    return sp.csr_array(rows / np.sqrt(16)), sp.csr_array(carried)


def test_labels_of_new_rows_keep_their_places_among_the_others() -> None:
    """They had .65 of the places among the best ten. With a free bias they took .85 of them."""
    old_rows, old_labels = plant_crowds(400, 0)
    new_rows, new_labels = plant_crowds(20, 1)
    rows, labels = plant_crowds(300, 2)
    ranker = train(old_rows, old_labels)
    after = update_ranker(
        ranker, new_rows, new_labels, new_rows[:0], cost=0.125, share=20 / 420,
        importance=np.ones(labels.shape[1], "f4"), prune=0.0, partly=False, seed=0, threads=1,
    )  # fmt: skip
    carried = np.unique(new_labels.indices)

    def count_carried(one: Ranker) -> float:
        best = np.argsort(-one.margins(rows), axis=1)[:, :10]
        return float(np.isin(best, carried).mean())

    assert abs(count_carried(after) - count_carried(ranker)) < 0.1
    moved = np.abs(after.bias - ranker.bias)
    assert 0 < moved.max() < 0.1
