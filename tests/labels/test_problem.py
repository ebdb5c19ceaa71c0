"""What is held out, and what there is to learn from the rest."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plantedlabels import labelled, small_labels

from irli.labels.problem import Split, hold_out, make_label_problem, row_keys
from irli.labels.profiles import embed_rows, profiles, unit


def families(
    count: int, size: int, *, dim: int = 24, spread: float = 1e-3, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows in random order, `size` near ones of each family; and the family of each."""
    rng = np.random.default_rng(seed)
    family = rng.permutation(np.repeat(np.arange(count), size))
    places = rng.normal(size=(count, dim))[family] + spread * rng.normal(size=(len(family), dim))
    return unit(places.astype(np.float32)), family


def split(places: NDArray[np.float32], seed: int = 0) -> Split:
    return hold_out(places, np.arange(len(places)), np.random.default_rng(seed))


def assert_whole(parts: Split, rows: int) -> None:
    """Every row is on exactly one side."""
    assert sorted([*parts.train, *parts.held]) == list(range(rows))


# --- holding out -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.0, 1e-3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 20, 100])
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
    parts = split(unit(np.full((300, 4), value, dtype=np.float32)))
    np.testing.assert_array_equal(parts.train, np.arange(300))
    np.testing.assert_array_equal(parts.held, parts.train)


@pytest.mark.parametrize("rows", [1, 2, 19])
def test_a_handful_of_rows_serves_for_both(rows: int) -> None:
    places, _ = families(rows, 1)
    parts = split(places)
    np.testing.assert_array_equal(parts.train, np.arange(rows))
    np.testing.assert_array_equal(parts.held, parts.train)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(20, 300),
    dim=st.integers(1, 6),
    distinct=st.integers(1, 300),
)
def test_any_rows_are_split(seed: int, rows: int, dim: int, distinct: int) -> None:
    rng = np.random.default_rng(seed)
    places = unit(rng.normal(size=(distinct, dim)).astype(np.float32))
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


def test_large_data_hold_out_a_fixed_number() -> None:
    places = unit(np.random.default_rng(0).normal(size=(50_000, 4)).astype(np.float32))
    assert 2000 <= len(split(places).held) <= 2008


# --- the problem -----------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [False, True])
def test_pose(dense: bool) -> None:
    X, Y = labelled(300, 12)
    rows = X.toarray() if dense else X
    problem, parts = make_label_problem(rows, Y, small_labels())
    assert not problem.own
    assert problem.items.shape[0] == 12
    assert (problem.rows == -1).all()
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


def test_rows_without_labels_are_on_neither_side() -> None:
    X, Y = labelled(300, 12)
    carried = Y.toarray()
    carried[::3] = 0
    problem, parts = make_label_problem(X, sp.csr_array(carried), small_labels())
    assert sorted([*parts.train, *parts.held]) == np.flatnonzero(carried.any(axis=1)).tolist()
    assert (np.diff(problem.indptr) > 0).all()
    assert (problem.held_truth >= 0).any(axis=1).all()


def test_twins_of_sparse_rows_are_on_one_side() -> None:
    X, Y = labelled(400, 100)
    twice = sp.csr_array(sp.vstack([X, X]))
    _, parts = make_label_problem(twice, sp.csr_array(sp.vstack([Y, Y])), small_labels())
    assert len(parts.held) >= 40
    assert not set(parts.held % 400) & set(parts.train % 400)


def test_many_labels_of_a_held_row_are_cut() -> None:
    X, _ = labelled(100, 30)
    problem, _ = make_label_problem(
        X, sp.csr_array(np.ones((100, 30), dtype=np.float32)), small_labels()
    )
    assert problem.held_truth.shape[1] == 10
    assert all(len(set(row)) == 10 for row in problem.held_truth)


def test_the_seed_decides_what_is_held_out() -> None:
    X, Y = labelled(300, 12)
    one, again, other = (
        make_label_problem(X, Y, small_labels(seed=seed))[1].held.tolist() for seed in (0, 0, 1)
    )
    assert one == again != other


# --- where labels lie ------------------------------------------------------------------------


def test_profiles_are_mean_directions() -> None:
    rng = np.random.default_rng(0)
    places = rng.normal(size=(40, 6)).astype(np.float32)
    carried = (rng.random((40, 5)) < 0.3).astype(np.float32)
    carried[:, 3] = 0
    found = profiles(places, sp.csr_array(carried))
    assert (found[3] == 0).all()
    for label in (0, 1, 2, 4):
        rows = places[carried[:, label] > 0]
        mean = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).sum(axis=0)
        np.testing.assert_allclose(found[label], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


def test_an_embedding_keeps_the_leading_directions() -> None:
    """Of rows of low rank, all scalar products stay; of others, as much as an exact SVD keeps."""
    rng = np.random.default_rng(0)
    low = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 80))
    found = embed_rows(sp.csr_array(low.astype(np.float32)), 8, seed=0)
    np.testing.assert_allclose(found @ found.T, low @ low.T, rtol=1e-2, atol=0.1)
    rows = low + 0.3 * rng.normal(size=low.shape)
    kept = np.square(embed_rows(sp.csr_array(rows.astype(np.float32)), 5, seed=0)).sum()
    best = np.square(np.linalg.svd(rows)[1][:5]).sum()
    assert 0.99 * best < kept <= 1.001 * best


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (3, 4)])
def test_an_embedding_of_few_rows_or_features(shape: tuple[int, int]) -> None:
    rows = sp.csr_array(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    found = embed_rows(rows, 128, seed=0)
    assert found.shape == (shape[0], min(shape))
    dense = rows.toarray()
    np.testing.assert_allclose(found @ found.T, dense @ dense.T, rtol=1e-3, atol=1e-3)


def test_an_embedding_of_empty_rows_is_nothing() -> None:
    found = embed_rows(sp.csr_array((6, 9), dtype=np.float32), 4, seed=0)
    assert found.shape == (6, 4)
    assert not found.any()
    assert not unit(found).any()


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
    _, first = make_label_problem(rows[:old], Y[:old], small_labels())
    known = row_keys(rows[:old])[first.train]
    _, then = make_label_problem(rows[order], Y[order], small_labels(seed=1), known)
    held = set(order[then.held])
    assert len(held) >= 30
    assert not held & set(first.train)
    assert max(held) >= old  # new ones are among them
    assert_whole(then, 600)


def test_known_rows_are_held_out_if_there_are_no_others() -> None:
    X, Y = labelled(600, 12, seed=1)
    _, parts = make_label_problem(X, Y, small_labels(), row_keys(X)[5:])
    assert len(parts.held) >= 30
    assert_whole(parts, 600)
