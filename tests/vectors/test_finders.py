"""What finds the neighbours that training needs: all ways find the same, or nearly."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import METRICS, small_default
from planted import clusters

from irli.engine.exact import exact_neighbors
from irli.engine.metric import prepare_vectors
from irli.learning.neighbors import torch_neighbors
from irli.vectors.build.problem import make_problem
from irli.vectors.finders import choose_finder, find_by_index

X = clusters(40, 30, dim=8, spread=0.5, seed=3).points


@pytest.mark.parametrize("metric", METRICS)
def test_torch_finds_the_neighbours_that_the_cpu_finds(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles of any size: here the CPU stands in for a GPU."""
    monkeypatch.setattr("irli.learning.neighbors._QUERIES", 70)
    monkeypatch.setattr("irli.learning.neighbors._ITEMS", 333)
    base = prepare_vectors(X, metric)
    rows = np.arange(200) - 100  # half of the queries are items
    queries = base[np.where(rows >= 0, rows, rows + 600)] + np.float32(0.01) * (rows < 0)[:, None]
    right = exact_neighbors(queries, base, 9, metric, rows=rows, threads=1)
    out = np.empty((200, 9), dtype=np.int32)
    found = torch_neighbors(queries, base, 9, metric, rows=rows, out=out, device="cpu")
    assert found is out
    np.testing.assert_array_equal(np.sort(found), np.sort(right))


def test_fewer_items_than_neighbours_leave_gaps() -> None:
    out = np.empty((2, 3), dtype=np.int32)
    torch_neighbors(X[:2], X[:3], 3, "l2", rows=np.array([0, -1]), out=out, device="cpu")
    assert out[0].tolist()[2] == -1
    assert sorted(out[1].tolist()) == [0, 1, 2]


def test_an_index_finds_nearly_all() -> None:
    rows = np.arange(len(X))
    right = exact_neighbors(X, X, 10, rows=rows, threads=1)
    out = np.empty(right.shape, dtype=np.int32)
    found = find_by_index(X, X, 10, "l2", rows=rows, out=out, threads=1, recall=0.97)
    assert (found[:, :, None] == right[:, None, :]).any(axis=2).mean() > 0.9
    assert not (found == rows[:, None]).any()
    assert (found >= 0).all()


def test_the_recipe_and_the_device_choose() -> None:
    assert choose_finder(small_default(), "cpu") is None
    near = choose_finder(small_default(neighbor_recall=0.97), "cpu")
    made = make_problem(X, "l2", small_default().resolve(*X.shape), find_neighbors=near, threads=1)
    assert len(made.problem.indices) == made.problem.indptr[-1]
    on_device = choose_finder(small_default(), "meta")
    with pytest.raises((NotImplementedError, RuntimeError)):
        make_problem(X, "l2", small_default().resolve(*X.shape), find_neighbors=on_device)
