"""Near rows: which rows vote, with what, and which of their labels are taken."""

from __future__ import annotations

import copy
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plantedlabels import labelled, random_label_layout, random_rows, small_labels

from irli import InvalidParameter, LabelIndex, load
from irli.engine.linear import unpack_labels
from irli.labels.build.assemble import add_near_rows, read_near_rows
from irli.labels.metrics import precision
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.ranking import near_rows
from irli.labels.ranking.near_rows import NEAREST, NO_ROWS, NearRows, find_near_labels, keep_largest
from irli.labels.tuning import sources
from irli.labels.tuning.calibration import Calibration

LABELS, DIM = 50, 12
MOST = 300  # labels that are returned unless told otherwise


def random_labels(rows: int, seed: int = 0, share: float = 0.1) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((rows, LABELS)) < share).astype(np.float32))


def unpack(known: NearRows) -> NDArray[np.float64]:
    """(n, D): the rows as they are after rounding, of about unit length."""
    feature = np.repeat(np.arange(len(known.starts) - 1), np.diff(known.starts))
    row = unpack_labels(known.starts, known.gaps)
    dense = np.zeros((len(known.scale), len(known.starts) - 1))
    np.add.at(dense, (row, feature), known.weights * known.scale[row].astype(np.float64))
    return dense


def cosines(rows: sp.csr_array, known: NearRows) -> NDArray[np.float64]:
    """(n, known rows), by dense products."""
    dense = rows.toarray().astype(np.float64)
    length = np.linalg.norm(dense, axis=1, keepdims=True)
    return dense / np.where(length > 0, length, 1) @ unpack(known).T


def slowly(row: int, rows: sp.csr_array, labels: sp.csr_array, among: list[int]) -> set[int]:
    """Return the labels by the definition: those of the most votes, which are cosines."""
    cosine = cosines(rows[[row]], NearRows.pack(rows[among], labels[among]))[0]
    near = {other: cosine[place] for place, other in enumerate(among) if other != row}
    votes: dict[int, float] = defaultdict(float)
    for other in sorted(near, key=lambda other: -near[other])[:NEAREST]:
        if near[other] > 1e-7:
            for label in labels[[other]].indices:
                votes[int(label)] += near[other]
    return set(sorted(votes, key=lambda label: -votes[label])[:MOST])


# --- packing ---------------------------------------------------------------------------------


def test_rows_are_packed_with_unit_length() -> None:
    rows, labels = random_rows(40, DIM, seed=3), random_labels(40)
    known = NearRows.pack(rows, labels)
    dense = rows.toarray()
    length = np.linalg.norm(dense, axis=1, keepdims=True)
    right = dense / np.where(length > 0, length, 1)
    step = np.abs(right).max(axis=1, keepdims=True) / 127
    assert (np.abs(unpack(known) - right) <= step / 2 + 1e-6).all()
    np.testing.assert_array_equal(known.label_starts, labels.indptr)
    np.testing.assert_array_equal(known.labels, labels.indices)


def test_common_features_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row reads no more than it may; two rows that share only what all have are not near."""
    dense = np.zeros((40, 21), dtype=np.float32)
    dense[:, 20] = 1
    dense[np.arange(40), np.arange(40) // 2] = 1
    rows, labels = sp.csr_array(dense), sp.csr_array(np.eye(40, dtype=np.float32))
    everyone = np.arange(40)
    assert find_near_labels(rows, labels, everyone).nnz == 40 * NEAREST
    monkeypatch.setattr(near_rows, "MOST_READ", 39)
    found = find_near_labels(rows, labels, everyone)
    assert (found.indices == everyone ^ 1).all()
    monkeypatch.setattr(near_rows, "MOST_READ", 0)
    assert find_near_labels(rows, labels, everyone).nnz == 0


# --- votes -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 60), share=st.floats(0.1, 1))
def test_the_labels_of_near_rows_are_found(seed: int, count: int, share: float) -> None:
    rows, labels = random_rows(count, DIM, seed=seed), random_labels(count, seed)
    some = np.flatnonzero(np.random.default_rng(seed).random(count) < share)
    found = find_near_labels(rows, labels, some)
    assert found.shape == labels.shape
    for row in range(count):
        assert set(found[[row]].indices.tolist()) == slowly(row, rows, labels, some.tolist())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), near=st.integers(1, 50))
def test_a_prediction_adds_up_the_squares_of_cosines(seed: int, near: int) -> None:
    """Against brute force: the `near` nearest rows vote, and no others."""
    known = NearRows.pack(random_rows(40, DIM, seed=seed), random_labels(40, seed))
    layout = add_near_rows(random_label_layout(LABELS, dim=DIM, seed=seed), known)
    X = random_rows(9, DIM, seed=seed + 1)
    carried = sp.csr_array(
        (np.ones(len(known.labels)), known.labels, known.label_starts), shape=(40, LABELS)
    )
    cosine = cosines(X, known)
    cut = -np.sort(-cosine, axis=1)[:, near - 1 : near] if near < 40 else -np.inf
    # Whichever of near equals comes first.
    votes, sure = (
        (np.where((cosine >= cut + margin) & (cosine > 0), cosine, 0) ** 2) @ carried.toarray()
        for margin in (-1e-5, 1e-5)
    )
    asked = Calibration(by_margin=0.0, by_score=1.0, threshold=0.0, by_votes=1.0)
    parameters = LabelParameters(10, LABELS, near=near)
    found = Predictor(layout).list_candidates(X, X, parameters, asked)
    assert (np.sort(found.labels, axis=1) == np.arange(LABELS)).all()
    most, least = (np.take_along_axis(each, found.labels, axis=1) for each in (votes, sure))
    assert (found.votes <= most + 1e-4).all()
    assert (found.votes >= least - 1e-4).all()
    assert found.votes.any() or not votes.any()


def test_of_equal_votes_those_of_the_nearer_rows_are_taken() -> None:
    """A row and 400 labels of one vote each: 200 of them of the nearer of two others."""
    rows = sp.csr_array(np.array([[1, 0], [1, 0.1], [1, 2]], dtype=np.float32))
    labels = np.zeros((3, 400), dtype=np.float32)
    labels[1, 200:], labels[2, :200] = 1, 1
    found = find_near_labels(rows, sp.csr_array(labels), np.arange(3))[[0]].indices
    assert len(found) == MOST
    assert set(range(200, 400)) <= set(found.tolist())
    few = find_near_labels(rows, sp.csr_array(labels), np.arange(3), most=150)[[0]].indices
    assert sorted(few.tolist()) == list(range(200, 350))


def test_a_row_is_not_near_itself() -> None:
    rows, labels = sp.csr_array(np.eye(4, dtype="f4")), sp.csr_array(np.eye(4, dtype="f4"))
    assert find_near_labels(rows, labels, np.arange(4)).nnz == 0
    twice = sp.csr_array(sp.vstack([rows, rows])), sp.csr_array(sp.vstack([labels, labels]))
    found = find_near_labels(*twice, np.arange(8))
    np.testing.assert_array_equal(found.toarray(), twice[1].toarray())


def test_threads_change_nothing() -> None:
    rows, labels = random_rows(9000, DIM, density=0.1), random_labels(9000, share=0.02)
    one, other = (find_near_labels(rows, labels, np.arange(0, 9000, 6), threads=t) for t in (1, 3))
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("value", [0.0, 1e30, -1.0, 1e-30])
def test_extreme_rows_disturb_no_others(value: float) -> None:
    usual, labels = random_rows(30, DIM), random_labels(31)
    rows = sp.csr_array(sp.vstack([np.full((1, DIM), value, dtype=np.float32), usual]))
    right = find_near_labels(usual, labels[1:], np.arange(30))
    found = find_near_labels(rows, labels, np.arange(1, 31))[1:]
    np.testing.assert_array_equal(found.toarray(), right.toarray())


# --- keep_largest ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 9), share=st.floats(0, 1))
def test_the_largest_of_each_row_are_kept(seed: int, count: int, share: float) -> None:
    """Of equal ones the first, as a stable sort has them."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 5, size=(6, 12)) * (rng.random((6, 12)) < share)
    kept = keep_largest(sp.csr_array(dense), count).toarray()
    for row, right in zip(kept, dense, strict=True):
        order = np.argsort(-right, kind="stable")[:count]
        expected = np.zeros_like(right)
        expected[order] = right[order]
        np.testing.assert_array_equal(row, expected)


# --- in an index -----------------------------------------------------------------------------


def points() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows around 40 points. The labels of a point are drawn: hyperplanes can hardly tell."""
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(40), 20)
    dense = rng.normal(size=(40, 8))[place] + 0.15 * rng.normal(size=(800, 8))
    carried = np.zeros((800, LABELS), dtype=np.float32)
    for point in range(40):
        carried[place == point, rng.permutation(LABELS)[:3][:, None]] = 1
    carried[:5] = 0
    return dense.astype(np.float32), carried


@pytest.fixture(scope="module")
def index() -> LabelIndex:
    """An index with near rows. No test may change it."""
    recipe = small_labels(epochs=1)
    return LabelIndex(recipe, ranker=True).fit(*points(), threads=1)


def known_rows(index: LabelIndex) -> NearRows:
    return read_near_rows(index._fitted().predictor.layout)


def test_an_index_has_the_rows_with_labels(index: LabelIndex) -> None:
    assert index.defaults.near > 0
    assert index.calibration.by_votes > 0
    assert len(known_rows(index).scale) == 795
    assert len(known_rows(index).labels) == points()[1].sum()


def test_an_index_without_near_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_NEAR", 0)
    X, Y = labelled(400, 10, most=1)
    without = LabelIndex(small_labels(), ranker=True).fit(X, Y, threads=1)
    assert without.defaults.near == 0
    assert without.calibration.by_votes == 0
    assert len(known_rows(without).scale) == 0
    assert without.predict(X, near=0).labels.shape == (400, 5)
    with pytest.raises(InvalidParameter, match=r"'near' parameter of predict must be 0.*Got 3"):
        without.predict(X, near=3)


def test_a_prediction_can_do_without_near_rows(index: LabelIndex) -> None:
    """With near=0 an index predicts as if its near rows had no weight."""
    X, _ = points()
    contents = index._fitted().contents
    model, layout = contents.model, index._fitted().predictor.layout
    calibration = model.calibration._replace(by_votes=0.0)
    scaled = model.scaling.apply(X)
    bare = Predictor(add_near_rows(layout, NO_ROWS))
    odds, labels = bare.predict(scaled, scaled, 5, model.parameters, calibration)
    found = index.predict(X, near=0)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.scores, 1 / (1 + np.exp(-odds.astype(float))), rtol=1e-5)
    assert not np.array_equal(index.predict(X).scores, found.scores)
    one, many = index.predict(X, near=1), index.predict(X, near=10**6)
    assert not np.array_equal(one.scores, many.scores)
    with pytest.raises(InvalidParameter, match="'near' parameter"):
        index.predict(X, near=-1)
    with pytest.raises(InvalidParameter, match="'near' parameter of predict must be 0"):
        index.predict(X, near=2, ranker=False)


def test_a_folder_keeps_near_rows(index: LabelIndex, tmp_path: Path) -> None:
    X, _ = points()
    index.save(tmp_path / "index")
    for mmap in (True, False):
        again = load(tmp_path / "index", mmap=mmap)
        for one, other in zip(known_rows(again), known_rows(index), strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(again.predict(X), index.predict(X), strict=True):
            np.testing.assert_array_equal(one, other)


def test_rows_of_added_labels_become_near_ones(index: LabelIndex, tmp_path: Path) -> None:
    X, Y = points()
    grown = copy.copy(index).add_labels(X[:60], np.ones((60, 2)), threads=1)
    assert len(grown) == LABELS + 2 == len(index) + 2
    assert len(known_rows(grown).scale) == len(known_rows(index).scale) + 60
    found = grown.predict(X)
    truth = sp.csr_array(np.pad(Y[100:], ((0, 0), (0, 2))))
    assert precision(found.labels[100:], truth, 1) > 0.7
    grown.save(tmp_path / "grown")
    for one, other in zip(load(tmp_path / "grown").predict(X), found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_learning_on_knows_the_new_rows(index: LabelIndex) -> None:
    X, Y = points()
    more, carried = np.vstack([X, 2 * X[300:]]), np.vstack([Y, Y[300:]])
    again = copy.copy(index).fit(more, carried, start=index, threads=1)
    assert len(known_rows(again).scale) in (0, 1295)
    assert (len(known_rows(again).scale) > 0) == (again.defaults.near > 0)
