"""What is held out, and what there is to learn from the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plantedlabels import labelled, small_labels

from irli.labels.build import problem
from irli.labels.build.problem import LabelProblem, Split, hold_out, make_label_problem, row_keys
from irli.labels.build.profiles import normalize
from irli.labels.build.scaling import GIVEN, Scaling


def families(
    count: int, size: int, *, dim: int = 24, spread: float = 1e-3, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows in random order, `size` near ones of each family; and the family of each."""
    rng = np.random.default_rng(seed)
    family = rng.permutation(np.repeat(np.arange(count), size))
    places = rng.normal(size=(count, dim))[family] + spread * rng.normal(size=(len(family), dim))
    return normalize(places.astype(np.float32)), family


def split(places: NDArray[np.float32], seed: int = 0) -> Split:
    return hold_out(places, np.arange(len(places)), np.random.default_rng(seed))


def assert_whole(parts: Split, rows: int) -> None:
    """Every row is on exactly one side."""
    assert sorted([*parts.train, *parts.held]) == list(range(rows))


# --- holding out -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.0, 1e-3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 20])
def test_near_rows_are_on_one_side(size: int, spread: float, seed: int) -> None:
    places, family = families(1200 // size, size, spread=spread, seed=seed)
    parts = split(places, seed)
    assert_whole(parts, len(places))
    assert not set(family[parts.held]) & set(family[parts.train])
    wanted = int(0.05 * len(places))
    assert wanted <= len(parts.held) <= max(wanted + 20, size)


def test_a_family_of_half_the_rows_stays_in_training() -> None:
    """Held out, it would be the judge of everything; split, it would flatter."""
    places, _ = families(200, 1)
    twins = np.repeat(places[:1], 300, axis=0)
    parts = split(np.concatenate([places, twins]))
    assert_whole(parts, 500)
    assert (parts.held < 200).all()
    assert 25 <= len(parts.held) <= 50


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rows_all_alike_serve_for_both(value: float) -> None:
    parts = split(normalize(np.full((300, 4), value, dtype=np.float32)))
    np.testing.assert_array_equal(parts.train, np.arange(300))
    np.testing.assert_array_equal(parts.held, parts.train)


def test_copies_of_a_few_rows_serve_for_both() -> None:
    """Without one of four families, little is left to learn, and nothing to judge it by."""
    parts = split(families(4, 50, spread=0.0)[0])
    np.testing.assert_array_equal(parts.held, parts.train)


def test_families_with_labels_of_their_own_serve_for_both() -> None:
    """Of a held-out label, the routers would learn nothing."""
    places, family = families(80, 20, spread=0.0)
    own = sp.csr_array(np.eye(80, dtype=np.float32)[family])
    parts = make_label_problem(places, own, small_labels()).split
    np.testing.assert_array_equal(parts.held, parts.train)
    shared = sp.csr_array(np.eye(4, dtype=np.float32)[family % 4])
    assert_whole(make_label_problem(places, shared, small_labels()).split, len(places))


@pytest.mark.parametrize("rows", [1, 2, 19])
def test_a_handful_of_rows_serves_for_both(rows: int) -> None:
    places, _ = families(rows, 1)
    parts = split(places)
    np.testing.assert_array_equal(parts.train, np.arange(rows))
    np.testing.assert_array_equal(parts.held, parts.train)


@pytest.mark.parametrize("size", [10, 100])
def test_a_few_families_serve_for_both(size: int) -> None:
    """One of them alone would decide that its labels are the best for all."""
    places, _ = families(8, size)
    parts = split(places)
    np.testing.assert_array_equal(parts.train, np.arange(8 * size))
    np.testing.assert_array_equal(parts.held, parts.train)


@pytest.mark.parametrize("rows", [20, 40, 100, 300])
def test_of_few_rows_some_of_all_kinds_are_held_out(rows: int) -> None:
    """Not a single group of near ones."""
    places, kind = families(5, rows // 5, spread=0.1)
    parts = split(places)
    assert_whole(parts, rows)
    assert 4 <= len(parts.held) <= rows // 5
    assert len(set(kind[parts.held])) >= 3


def test_new_rows_of_one_family_do_not_decide_alone() -> None:
    places, _ = families(200, 1)
    every = np.concatenate([places, np.repeat(places[:1], 40, axis=0)])
    rows = np.arange(len(every))
    parts = hold_out(every, rows, np.random.default_rng(0), unseen=rows[200:])
    assert len(set(parts.held[parts.held < 200])) >= 3


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(20, 300),
    dim=st.integers(1, 6),
    distinct=st.integers(1, 300),
)
def test_any_rows_are_split(seed: int, rows: int, dim: int, distinct: int) -> None:
    rng = np.random.default_rng(seed)
    places = normalize(rng.normal(size=(distinct, dim)).astype(np.float32))
    places = places[rng.integers(distinct, size=rows)]
    parts = split(places, seed)
    assert len(parts.train) > 0
    assert len(parts.held) > 0
    if len(parts.train) < rows:
        assert_whole(parts, rows)
        assert len(parts.held) <= rows / 2 + 8


def test_only_useful_rows_are_split() -> None:
    places, _ = families(400, 1)
    useful = np.arange(1, 400, 3)
    parts = hold_out(places, useful, np.random.default_rng(0))
    assert sorted([*parts.train, *parts.held]) == useful.tolist()


def test_large_data_hold_out_a_fixed_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "_HELD_MOST", 3500)
    places = normalize(np.random.default_rng(0).normal(size=(80_000, 4)).astype(np.float32))
    assert 3500 <= len(split(places).held) <= 3508


# --- the problem -----------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True])
def test_make_label_problem(dense: bool) -> None:
    X, Y = labelled(300, 12)
    rows = X.toarray() if dense else X
    problem, parts, trained, scaling, *_ = make_label_problem(rows, Y, small_labels())
    assert scaling is GIVEN
    assert not problem.items_are_queries
    assert problem.items.shape[0] == 12
    assert (problem.query_items == -1).all()
    assert problem.sampling.sum() == pytest.approx(1)
    queries = problem.queries if dense else problem.queries.toarray()
    np.testing.assert_array_equal(queries, X.toarray()[parts.train])
    shape = (len(parts.train), 12)
    wanted = sp.csr_array((problem.weights, problem.indices, problem.indptr), shape=shape)
    np.testing.assert_array_equal(wanted.toarray(), Y.toarray()[parts.train])
    held = problem.held_queries if dense else problem.held_queries.toarray()
    np.testing.assert_array_equal(held, X.toarray()[parts.held])
    for row, truth in zip(parts.held, problem.held_truth, strict=True):
        assert set(truth[truth >= 0]) == set(np.flatnonzero(Y.toarray()[row]))
    np.testing.assert_array_equal(trained, np.unique(row_keys(rows)[parts.train]))


def test_rows_without_labels_are_on_neither_side() -> None:
    X, Y = labelled(300, 12)
    carried = Y.toarray()
    carried[::3] = 0
    problem, parts, *_ = make_label_problem(X, sp.csr_array(carried), small_labels())
    assert sorted([*parts.train, *parts.held]) == np.flatnonzero(carried.any(axis=1)).tolist()
    assert (np.diff(problem.indptr) > 0).all()
    assert (problem.held_truth >= 0).any(axis=1).all()


def test_twins_of_sparse_rows_are_on_one_side() -> None:
    X, Y = labelled(400, 100)
    twice = sp.csr_array(sp.vstack([X, X]))
    parts = make_label_problem(twice, sp.csr_array(sp.vstack([Y, Y])), small_labels()).split
    assert len(parts.held) >= 40
    assert not set(parts.held % 400) & set(parts.train % 400)


def test_many_labels_of_a_held_row_are_cut() -> None:
    X, _ = labelled(100, 30)
    everything = sp.csr_array(np.ones((100, 30), dtype=np.float32))
    problem = make_label_problem(X, everything, small_labels()).problem
    assert problem.held_truth.shape[1] == 10
    assert all(len(set(row)) == 10 for row in problem.held_truth)


def test_the_seed_decides_what_is_held_out() -> None:
    X, Y = labelled(300, 12)
    one, again, other = (
        make_label_problem(X, Y, small_labels(seed=seed)).split.held.tolist() for seed in (0, 0, 1)
    )
    assert one == again != other


# --- holding out again -----------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), dense=st.booleans())
def test_keys_go_with_the_row_and_not_with_its_place(seed: int, dense: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, size=(40, 5)).astype(np.float32)
    keys = row_keys(rows if dense else sp.csr_array(rows))
    _, same = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(keys[:, None] == keys, same[:, None] == same)


@pytest.mark.parametrize("dense", [False, True])
def test_known_rows_are_not_held_out(dense: bool) -> None:
    """Among others, in another order, and whatever the seed."""
    X, Y = labelled(600, 12, seed=1)
    old, order = 400, np.random.default_rng(0).permutation(600)
    rows = X.toarray() if dense else X
    _, first, known, *_ = make_label_problem(rows[:old], Y[:old], small_labels())
    np.testing.assert_array_equal(known, np.unique(row_keys(rows[:old])[first.train]))
    _, then, both, *_ = make_label_problem(rows[order], Y[order], small_labels(seed=1), known)
    held = set(order[then.held])
    assert len(held) >= 30
    assert not held & set(first.train)
    assert max(held) >= old  # new ones are among them
    assert_whole(then, 600)
    keys = row_keys(rows[order])
    np.testing.assert_array_equal(both, np.union1d(known, keys[then.train]))


def test_known_rows_are_held_out_if_there_are_no_others() -> None:
    X, Y = labelled(600, 12, seed=1)
    parts = make_label_problem(X, Y, small_labels(), row_keys(X)[5:]).split
    assert len(parts.held) >= 30
    assert_whole(parts, 600)


def test_a_label_problem_survives_its_files(tmp_path: Path) -> None:
    X, Y = labelled(100, 6)
    scaling = Scaling("tf-idf", np.arange(X.shape[1], dtype=np.float32))
    made = make_label_problem(X, Y, small_labels(), scaling=scaling)
    made = made._replace(trials=[{"choice": "routing", "tried": "tf-idf", "quality": 0.5}])
    made.save(tmp_path)
    again = LabelProblem.load(tmp_path)
    np.testing.assert_array_equal(again.split.train, made.split.train)
    np.testing.assert_array_equal(again.split.held, made.split.held)
    np.testing.assert_array_equal(again.trained, made.trained)
    assert again.scaling.name == "tf-idf"
    np.testing.assert_array_equal(again.scaling.factors, scaling.factors)
    assert len(again.scaling.means) == 0
    assert again.trials == made.trials
    recipe = small_labels()
    assert again.problem.fingerprint(recipe) == made.problem.fingerprint(recipe)
