"""The contract, over every kind of index; and what concerns `fit` rather than an index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import METRICS, small_default
from contract import Case, VectorContract, same
from planted import clusters

import irli
from irli import VectorIndex

KINDS = [
    (recipe, metric, form)
    for recipe, metrics in (
        ("default", METRICS),
        ("codes", METRICS),
        ("paper", METRICS),
        ("two repetitions", ("l2",)),
    )
    for metric in metrics
    for form in ("memory", "mapped", "read")
    if form != "read" or metric == "l2"  # once is enough: only the mapping differs
]
KINDS += [
    ("default", "l2", "shards"),
    ("paper", "ip", "shards"),
    ("two repetitions", "cosine", "shards"),
    ("two repetitions", "cosine", "ray"),
]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def case(request: pytest.FixtureRequest, cases: Any) -> Case:
    if request.param[2] == "ray":
        request.getfixturevalue("on_ray")
    return cases(*request.param)


class TestVectorIndex(VectorContract):
    pass


@pytest.mark.parametrize("metric", METRICS)
def test_fit_neither_changes_nor_keeps_the_caller_s_arrays(metric: str) -> None:
    X = clusters(10, 10, dim=6, seed=1).points
    ids = np.arange(100, 200)
    queries = X[:30] + 0.05
    held = X.copy(), ids.copy(), queries.copy()
    index = VectorIndex(metric, recipe=small_default()).fit(X, ids=ids, queries=queries, threads=1)
    for now, before in zip((X, ids, queries), held, strict=True):
        np.testing.assert_array_equal(now, before)
    right = index.search(held[2], k=5)
    X[:], ids[:], queries[:] = 0, 0, 0
    same(index.search(held[2], k=5), right)


def test_read_only_input() -> None:
    X = clusters(10, 10, dim=6, seed=1).points
    plain = VectorIndex(recipe=small_default()).fit(X.copy(), threads=1).search(X, k=5, probes=3)
    X.setflags(write=False)
    index = VectorIndex(recipe=small_default()).fit(X, threads=1)
    same(index.search(X, k=5, probes=3), plain)


def test_a_failed_fit_leaves_the_index_as_it_was() -> None:
    X = clusters(10, 10, dim=6, seed=1).points
    index = VectorIndex(recipe=small_default()).fit(X, ids=np.arange(100) + 500)
    before = index.search(X, k=3)
    with pytest.raises(irli.IrliError):
        index.fit(X[:50], workers=0)
    with pytest.raises(irli.IrliError):
        index.fit(X[:50], queries=X[:, :2])
    same(index.search(X, k=3), before)
    assert len(index) == 100


def test_fit_again_on_fewer_items() -> None:
    X = clusters(40, 10, dim=6, seed=1).points
    index = VectorIndex(recipe=small_default()).fit(X, threads=1)
    index.fit(X[:30], threads=1)  # what the recipe left open is chosen anew
    fresh = VectorIndex(recipe=small_default()).fit(X[:30], threads=1)
    assert len(index) == 30
    assert index.recipe == fresh.recipe
    same(index.search(X, k=3, probes=2), fresh.search(X, k=3, probes=2))


def test_fit_returns_the_index() -> None:
    index = VectorIndex(recipe=small_default())
    assert index.fit(np.eye(8)) is index
