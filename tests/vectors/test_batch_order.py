"""The order of a batch: near queries follow each other, and nobody's answer changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import small_default
from contract import same
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import clusters

import irli
from irli.vectors import searcher as searching
from irli.vectors.batch_order import order_batch


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 200),
    st.sampled_from([0.0, 1e-30, 1.0, 1e30, 3e38]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@pytest.mark.filterwarnings("error")
def test_every_query_is_there_once(
    count: int, dim: int, size: float, angle: bool, seed: int
) -> None:
    queries = np.random.default_rng(seed).uniform(-1, 1, (count, dim)) * size
    order = order_batch(queries.astype(np.float32), angle)
    np.testing.assert_array_equal(np.sort(order), np.arange(count))


@pytest.mark.parametrize("dim", [3, 70, 200])
def test_clusters_are_taken_one_by_one(dim: int) -> None:
    planted = clusters(100, 8, dim=dim, spread=0.05, seed=1)
    owner = planted.owner[order_batch(planted.points)]
    assert np.count_nonzero(np.diff(owner)) == 7


def test_by_angle_lengths_do_not_matter() -> None:
    planted = clusters(100, 8, dim=6, spread=0.05, seed=3)
    away = planted.points - planted.centres.mean(axis=0)
    longer = np.random.default_rng(0).uniform(0.01, 100, (800, 1)).astype(np.float32)
    owner = planted.owner[order_batch(longer * away, angle=True)]
    assert np.count_nonzero(np.diff(owner)) == 7


def test_answers_are_those_of_the_given_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    points = clusters(30, 20, dim=6, spread=0.3, seed=2).points
    index = irli.VectorIndex(recipe=small_default(buckets=16)).fit(points, threads=1)
    plain = index.search(points, 5, probes=2)
    index.save(tmp_path / "index")
    orders = []
    monkeypatch.setattr(searching, "FEWEST", 8)
    monkeypatch.setattr(searching, "_CACHE", 0)
    monkeypatch.setattr(searching, "_AT_ONCE", 250)
    monkeypatch.setattr(
        searching,
        "order_batch",
        lambda *given, **how: orders.append(1) or order_batch(*given, **how),
    )
    again = irli.load(tmp_path / "index")
    for threads in (1, 2):
        same(again.search(points, 5, probes=2, threads=threads), plain)
    assert len(orders) == 6  # three parts of the batch, twice
