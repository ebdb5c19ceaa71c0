"""Problems: what they say of themselves, and that they survive their files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import small_default
from plantedlabels import small_labels, small_paper_labels
from problems import label_task, points, vector_task

from irli.learning.problem import Problem


def test_wanted_by_is_the_relevance_transposed() -> None:
    X = points()
    problem, _ = vector_task(small_default(mixed_queries=0), X, queries=X[:50] + 5.0)
    strange = int((problem.query_items < 0).sum())
    dense = np.zeros((len(X), len(X) + strange), dtype=np.float32)
    stranger = len(X)
    for query, item in enumerate(problem.query_items):
        column = item if item >= 0 else stranger
        stranger += item < 0
        for pair in range(problem.indptr[query], problem.indptr[query + 1]):
            dense[problem.indices[pair], column] += problem.weights[pair]
    np.testing.assert_allclose(problem.wanted_by(problem.weights).toarray(), dense, rtol=1e-6)


def test_scored_points_are_the_columns_of_wanted_by() -> None:
    X = points()
    queries = X[:50] + 5.0
    problem, _ = vector_task(small_default(mixed_queries=0), X, queries=queries)
    first, more = problem.scored_points()
    assert first is problem.items
    assert more is not None
    np.testing.assert_array_equal(more, problem.queries[problem.query_items < 0])
    assert len(first) + len(more) == problem.wanted_by(problem.weights).shape[1]
    assert vector_task(small_default()).problem.scored_points()[1] is None
    labels, _ = label_task(small_labels())
    assert labels.scored_points()[0] is labels.queries
    assert labels.wanted_by(labels.weights).shape == (30, labels.queries.shape[0])


def test_each_pair_has_its_query() -> None:
    problem, _ = label_task(small_labels())
    right = np.repeat(np.arange(len(problem.query_items)), np.diff(problem.indptr))
    np.testing.assert_array_equal(problem.pair_queries, right)


@pytest.mark.parametrize("dense", [False, True])
def test_a_problem_survives_its_files(tmp_path: Path, dense: bool) -> None:
    problem, recipe = label_task(small_paper_labels(), dense=dense)
    problem.save(tmp_path)
    again = Problem.load(tmp_path)
    assert again.fingerprint(recipe) == problem.fingerprint(recipe)
    assert again.items_are_queries is False
    for field in dataclasses.fields(Problem):
        one, other = getattr(problem, field.name), getattr(again, field.name)
        if sp.issparse(one):
            assert one.shape == other.shape
            assert (one != other).nnz == 0
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)


def change(value: Any) -> Any:
    """Return a value that differs in one place."""
    if isinstance(value, str | bool):
        return "ip" if isinstance(value, str) else not value
    changed = value.copy()
    numbers = changed.data if sp.issparse(changed) else changed.reshape(-1)
    numbers[3] += 1
    return changed


@pytest.mark.parametrize("dense", [False, True])
def test_the_fingerprint_sees_every_part(dense: bool) -> None:
    problem, recipe = label_task(small_labels(), dense=dense)
    seen = [problem.fingerprint(recipe)]
    for field in dataclasses.fields(Problem):
        other = dataclasses.replace(problem, **{field.name: change(getattr(problem, field.name))})
        seen.append(other.fingerprint(recipe))
    seen.append(problem.fingerprint(dataclasses.replace(recipe, seed=1)))
    if not dense:
        moved: Any = problem.queries.copy()
        moved.indices[0] += 1
        seen.append(dataclasses.replace(problem, queries=moved).fingerprint(recipe))
    assert len(set(seen)) == len(seen)
    assert label_task(small_labels(), dense=dense).problem.fingerprint(recipe) == seen[0]
