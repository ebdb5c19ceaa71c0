"""What finds the neighbours that training needs: all ways find the same, or nearly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import METRICS, small_default
from planted import clusters

from irli.engine.exact import exact_neighbors
from irli.engine.metric import prepare_vectors
from irli.learning import neighbors, torch_neighbors
from irli.learning.neighbors import near_neighbors
from irli.vectors.finders import choose_finder

X = clusters(40, 30, dim=8, spread=0.5, seed=3).points


@pytest.mark.parametrize("metric", METRICS)
def test_torch_finds_the_neighbours_that_the_cpu_finds(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles of any size: here the CPU stands in for a GPU."""
    monkeypatch.setattr(torch_neighbors, "_QUERIES", 70)
    monkeypatch.setattr(torch_neighbors, "_ITEMS", 333)
    base = prepare_vectors(X, metric)
    rows = np.arange(200) - 100  # half of the queries are items
    queries = base[np.where(rows >= 0, rows, rows + 600)] + np.float32(0.01) * (rows < 0)[:, None]
    right = exact_neighbors(queries, base, 9, metric, rows=rows, threads=1)
    out = np.empty((200, 9), dtype=np.int32)
    found = torch_neighbors.torch_neighbors(
        queries, base, 9, metric, rows=rows, out=out, device="cpu"
    )
    assert found is out
    np.testing.assert_array_equal(np.sort(found), np.sort(right))


def test_fewer_items_than_neighbours_leave_gaps() -> None:
    out = np.empty((2, 3), dtype=np.int32)
    torch_neighbors.torch_neighbors(
        X[:2], X[:3], 3, "l2", rows=np.array([0, -1]), out=out, device="cpu"
    )
    assert out[0].tolist()[2] == -1
    assert sorted(out[1].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("metric", METRICS)
def test_clusters_hold_nearly_all(
    metric: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items, and queries between them: each kind asks as many clusters as it needs."""
    monkeypatch.setattr(neighbors, "_FEWEST", 100)
    monkeypatch.setattr(neighbors, "_QUERIES", 333)  # in several blocks
    used, real = set(), neighbors.run_all

    def watched(jobs: Any, count: int) -> None:
        used.add(count)
        real(jobs, count)

    monkeypatch.setattr(neighbors, "run_all", watched)
    base = prepare_vectors(X, metric)
    rows = np.concatenate([np.arange(len(base)), np.full(300, -1)])
    queries = np.concatenate([base, (base[:300] + base[300:600]) / 2])
    right = exact_neighbors(queries, base, 9, metric, rows=rows, threads=1)
    out = np.empty(right.shape, dtype=np.int32)
    found = near_neighbors(
        queries, base, 9, metric, rows=rows, out=out, threads=threads, recall=0.9
    )
    assert found is out
    assert used == (set() if metric == "ip" else {threads})
    for kind in (rows >= 0, rows < 0):
        shares = [np.isin(a, b).mean() for a, b in zip(found[kind], right[kind], strict=True)]
        assert np.mean(shares) > (0.999 if metric == "ip" else 0.85)
    assert (found != rows[:, None]).all()  # no item is a neighbour of its own
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in found)


def test_clusters_far_from_the_origin_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where float32 cannot tell neighbours apart, they are exact."""
    monkeypatch.setattr(neighbors, "_FEWEST", 100)
    far = (X + np.float32(1e4)).astype(np.float32)
    rows = np.arange(len(far))
    right = exact_neighbors(far, far, 5, "l2", rows=rows)
    out = np.empty(right.shape, dtype=np.int64)
    found = near_neighbors(far, far, 5, "l2", rows=rows, out=out, recall=0.97)
    shares = [np.isin(a, b).mean() for a, b in zip(found, right, strict=True)]
    assert np.mean(shares) > 0.9


def test_the_recipe_and_the_device_choose() -> None:
    assert choose_finder(small_default(neighbor_recall=1.0), "cpu") is None
    assert choose_finder(small_default(), "cpu").func is near_neighbors
    assert choose_finder(small_default(neighbor_recall=1.0), "torch").func is (
        torch_neighbors.torch_neighbors
    )
