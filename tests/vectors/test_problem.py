"""What there is to learn from vectors: who wants what, and who is held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import METRICS, small_default
from planted import clusters, exact_distances, nearness

from irli.engine.metric import prepare_vectors
from irli.vectors.build.problem import VectorProblem, make_problem

X = clusters(20, 10, dim=6, spread=0.5, seed=1).points
QUERIES = clusters(4, 10, dim=6, spread=0.5, seed=2).points


def made(metric: str = "l2", relevance: Any = None, **changes: Any) -> VectorProblem:
    recipe = small_default(neighbors=5, **changes).resolve(*X.shape)
    items, queries = prepare_vectors(X, metric), prepare_vectors(QUERIES, metric)
    return make_problem(items, metric, recipe, queries=queries, relevance=relevance, threads=1)


@pytest.mark.parametrize("metric", METRICS)
def test_mixed_queries_lie_between_two_given_ones_and_want_their_neighbours(metric: str) -> None:
    """They fill the gaps between few sample queries."""
    plain, mixing = made(metric, mixed_queries=0).problem, made(metric, mixed_queries=60).problem
    count = len(plain.queries)
    assert len(mixing.queries) == count + 60
    given = plain.queries[plain.query_items < 0].astype(np.float64)
    assert len(given) == 38  # two are held out
    measure = _angle if metric == "cosine" else _gap
    between = measure(given[:, None], given[None])
    apart = []
    for query in mixing.queries[count:].astype(np.float64):
        near = measure(query, given)
        detour = near[:, None] + near[None] - between  # from one given query to another, by this
        assert detour[~np.eye(len(given), dtype=bool)].min() < 1e-3
        apart.append(near.min())
    assert np.median(apart) > 0.01  # nor are they the given ones themselves
    _check_neighbours(mixing, metric, count)


def _gap(one: Any, other: Any) -> Any:
    return np.linalg.norm(one - other, axis=-1)


def _angle(one: Any, other: Any) -> Any:
    return np.arccos(np.clip((one * other).sum(axis=-1), -1, 1))


def _check_neighbours(problem: Any, metric: str, start: int) -> None:
    """What the queries from `start` on want are their 5 exact neighbours."""
    far = nearness(exact_distances(problem.queries[start:], problem.items, metric), metric)
    right = np.sort(far, axis=1)[:, :5]
    for place, row in enumerate(range(start, len(problem.queries))):
        wanted = problem.indices[problem.indptr[row] : problem.indptr[row + 1]]
        np.testing.assert_allclose(np.sort(far[place, wanted]), right[place], rtol=1e-4, atol=1e-4)


def test_all_mixed_queries_together_weigh_as_much_as_the_given_ones() -> None:
    problem = made(mixed_queries=60).problem
    weight = np.add.reduceat(problem.weights, problem.indptr[:-1])
    given = problem.query_items < 0
    given[-60:] = False
    assert weight[-60:].sum() == pytest.approx(weight[given].sum())
    assert weight[given][0] == pytest.approx(3 * weight[0])  # one counts like three items


def test_what_is_held_out_is_not_trained_on() -> None:
    problem, held, _ = made(mixed_queries=0)
    items, strangers = held.rows[held.rows >= 0], held.queries[held.rows < 0]
    assert len(items) == 10
    assert not set(items) & set(problem.query_items)
    np.testing.assert_array_equal(held.queries[held.rows >= 0], X[items])
    assert len(strangers) == 2
    learned = {row.tobytes() for row in problem.queries}
    assert not learned & {row.tobytes() for row in strangers}
    np.testing.assert_array_equal(problem.held_queries, strangers)  # validation goes by them


def test_a_problem_survives_its_folder(tmp_path: Path) -> None:
    one = made(mixed_queries=10)
    one.save(tmp_path)
    again = VectorProblem.load(tmp_path)
    recipe = small_default()
    assert again.problem.fingerprint(recipe) == one.problem.fingerprint(recipe)
    for now, before in zip(again.held + again.truth, one.held + one.truth, strict=True):
        np.testing.assert_array_equal(now, before)


# --- shares and weights ----------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_queries_are_drawn_by_their_share(share: float) -> None:
    problem = made(query_share=share, mixed_queries=20).problem
    strangers = problem.query_items < 0
    assert strangers.sum() == 38 + 20
    assert problem.sampling.sum() == pytest.approx(1)
    assert problem.sampling[strangers].sum() == pytest.approx(share)
    assert len(np.unique(problem.sampling[strangers])) == 1  # mixed ones as often as given ones
    assert (problem.queries[~strangers] == X[problem.query_items[~strangers]]).all()
    assert (strangers.all()) == (share == 1.0)  # then items serve validation only


def test_a_few_mixed_queries_weigh_as_much_as_given_ones_each() -> None:
    problem = made(mixed_queries=7).problem
    weight = np.add.reduceat(problem.weights, problem.indptr[:-1])
    assert weight[-7:].tolist() == [pytest.approx(weight[-8])] * 7


def test_queries_with_a_relevance_are_not_mixed() -> None:
    """What a point between two of them wants is not known."""
    relevance = sp.csr_array(np.eye(len(QUERIES), len(X), dtype=np.float32))
    problem = made(mixed_queries=60, relevance=relevance).problem
    assert (problem.query_items < 0).sum() == 38
    given = np.flatnonzero(problem.query_items < 0)
    for query in given:
        [wanted] = problem.indices[problem.indptr[query] : problem.indptr[query + 1]]
        np.testing.assert_array_equal(problem.queries[query], QUERIES[wanted])


def test_a_single_query_is_not_mixed() -> None:
    recipe = small_default(mixed_queries=60).resolve(*X.shape)
    problem = make_problem(X, "l2", recipe, queries=QUERIES[:1], threads=1).problem
    assert (problem.query_items < 0).sum() == 1


# --- what is wanted --------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_items_want_their_neighbours_and_not_themselves(metric: str) -> None:
    recipe = small_default(neighbors=5).resolve(*X.shape)
    problem, held, _ = make_problem(prepare_vectors(X, metric), metric, recipe, threads=1)
    assert len(problem.query_items) == 190
    _check_neighbours_of_items(problem, metric)
    np.testing.assert_array_equal(problem.held_queries, held.queries)
    assert problem.held_truth.shape == (10, 10)
    assert (problem.held_truth >= 0).all()


def _check_neighbours_of_items(problem: Any, metric: str) -> None:
    far = nearness(exact_distances(problem.queries, problem.items, metric), metric)
    far[np.arange(len(far)), problem.query_items] = np.inf
    right = np.sort(far, axis=1)[:, :5]
    for query in range(len(far)):
        wanted = problem.indices[problem.indptr[query] : problem.indptr[query + 1]]
        np.testing.assert_allclose(np.sort(far[query, wanted]), right[query], rtol=1e-4, atol=1e-4)


def test_given_neighbours_are_used() -> None:
    recipe = small_default(neighbors=3).resolve(*X.shape)
    near = np.random.default_rng(0).integers(len(X), size=(len(X), 6))
    near[7] = -1  # which has none wants itself
    problem, held, _ = make_problem(X, "l2", recipe, neighbors=near, threads=1)
    for query, item in enumerate(problem.query_items):
        wanted = problem.indices[problem.indptr[query] : problem.indptr[query + 1]]
        assert wanted.tolist() == ([7] if item == 7 else near[item, :3].tolist())
    np.testing.assert_array_equal(problem.held_truth[:, :3], near[held.rows, :3])
    assert (near[7] == -1).all()  # nothing was written there


def test_a_relevance_names_the_heaviest_items_of_held_out_queries() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((len(QUERIES), len(X))) * (rng.random((len(QUERIES), len(X))) < 0.2)
    relevance = sp.csr_array(weights.astype(np.float32))
    problem = made(relevance=relevance).problem
    for query, truth in zip(problem.held_queries, problem.held_truth, strict=True):
        [row] = np.flatnonzero((query == QUERIES).all(axis=1))
        np.testing.assert_array_equal(truth, np.argsort(-weights[row])[:10])


def test_no_more_base_vectors_than_the_recipe_says() -> None:
    recipe = small_default(training_points=50).resolve(*X.shape)
    problem = make_problem(X, "l2", recipe, threads=1).problem
    assert len(problem.query_items) == len(set(problem.query_items)) == 50


def test_a_handful_of_items_serves_for_both() -> None:
    recipe = small_default().resolve(5, 6)
    problem, held, _ = make_problem(X[:5], "l2", recipe, threads=1)
    assert sorted(held.rows) == sorted(problem.query_items) == list(range(5))
    one = make_problem(X[:1], "l2", small_default().resolve(1, 6), threads=1).problem
    assert one.indices.tolist() == [0]  # wants itself
