"""What there is to learn from vectors: who wants what, and who is held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import METRICS, small_default
from planted import clusters, exact_distances, nearness

from irli.engine.metric import prepare_vectors
from irli.vectors.problem import VectorProblem, make_problem

X = clusters(20, 10, dim=6, spread=0.5, seed=1).points
QUERIES = clusters(4, 10, dim=6, spread=0.5, seed=2).points


def made(metric: str = "l2", **changes: Any) -> VectorProblem:
    recipe = small_default(neighbors=5, **changes).resolve(*X.shape)
    items, queries = prepare_vectors(X, metric), prepare_vectors(QUERIES, metric)
    return make_problem(items, metric, recipe, queries=queries, threads=1)


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
    problem, held = made(mixed_queries=0)
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
    for now, before in zip(again.tuning, one.tuning, strict=True):
        np.testing.assert_array_equal(now, before)
