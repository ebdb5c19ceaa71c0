"""The recipes "auto" and "exact": few items are compared, and nothing is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import METRICS
from contract import same
from planted import clusters, exact_distances, nearness

import irli
from irli import VectorIndex
from irli.base import recipe as recipes
from irli.errors import InvalidParameter

X = clusters(15, 20, dim=8, spread=0.8, seed=1).points
QUERIES = X[::7] + np.float32(0.1)
IDS = np.arange(len(X)) * 3 + 5


def true_distances(metric: str, k: int, rows: Any = slice(None)) -> np.ndarray:
    exact = nearness(exact_distances(QUERIES, X[rows], metric), metric)
    return nearness(np.sort(exact, axis=1)[:, :k], metric)


@pytest.fixture(scope="module", params=METRICS)
def index(request: pytest.FixtureRequest) -> VectorIndex:
    return VectorIndex(request.param).fit(X, ids=IDS)


def test_few_items_are_not_learned(index: VectorIndex) -> None:
    stats = index.stats()
    assert (index.recipe.name, index.history) == ("exact", [])
    assert (stats["repetitions"], stats["buckets"], stats["entries"]) == (1, 1, len(X))
    assert index.defaults.exact
    assert index.tuned is not None
    assert (index.tuned.recall, index.tuned.self_hits, index.tuned.reached) == (1.0, 1.0, True)
    assert index.tuned.scanned == len(X)


@pytest.mark.parametrize("k", [1, 10, len(X), len(X) + 2])
def test_answers_are_brute_force(index: VectorIndex, k: int) -> None:
    found = index.search(QUERIES, k=k)
    width = min(k, len(X))
    right = true_distances(index.metric, k)
    np.testing.assert_allclose(found.distances[:, :width], right, rtol=1e-4, atol=1e-4)
    assert (found.ids[:, width:] == -1).all()
    for i in range(3):
        same(index.search(QUERIES[i], k=k), type(found)(found.distances[i], found.ids[i]))


def test_filters(index: VectorIndex) -> None:
    rows = np.arange(0, len(X), 4)
    right = true_distances(index.metric, 10, rows)
    for filter in (IDS[rows], np.isin(np.arange(len(X)), rows), irli.Deny(np.delete(IDS, rows))):
        found = index.search(QUERIES, k=10, filter=filter)
        np.testing.assert_allclose(found.distances, right, rtol=1e-4, atol=1e-4)
        assert np.isin(found.ids, IDS[rows]).all()


def test_all_that_an_index_does(index: VectorIndex, tmp_path: Path) -> None:
    told = index.explain(QUERIES, k=5)
    assert told.exact.all()
    assert (told.candidates == len(X)).all()
    np.testing.assert_array_equal(told.ids, index.search(QUERIES, k=5).ids)
    same(index.search(QUERIES, k=5, probes=3), index.search(QUERIES, k=5))
    same(index.search(QUERIES, k=5, exact=False), index.search(QUERIES, k=5))  # one bucket
    assert index.tune(recall=0.5, k=7).parameters == index.defaults
    with pytest.raises(InvalidParameter, match="without codes"):
        index.search(QUERIES, score="codes")
    index.save(tmp_path / "index")
    for mmap in (True, False):
        again = irli.load(tmp_path / "index", mmap=mmap)
        same(again.search(QUERIES, k=9), index.search(QUERIES, k=9))
        assert (again.tuned, again.defaults) == (index.tuned, index.defaults)
        assert again.stats() == index.stats()
        assert 5 in again
        assert 6 not in again


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hardly_any_items(count: int) -> None:
    index = VectorIndex().fit(X[:count])
    assert index.search(X[:count], k=1).ids[:, 0].tolist() == list(range(count))
    assert index.search(X[0], k=5).counts == count


def test_many_items_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where comparing all would take long."""
    monkeypatch.setattr(recipes, "_EXACT_MOST", 0.0)
    index = VectorIndex(recipe=irli.recipe("auto", seed=3)).fit(X, threads=1)
    assert (index.recipe.name, index.recipe.seed) == ("default", 3)
    assert index.stats()["buckets"] > 1
    assert len(index.history) > 0
    monkeypatch.undo()
    assert index.fit(X).recipe.name == "exact"  # chosen anew


def test_who_asks_for_it_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "_EXACT_MOST", 0.0)
    assert VectorIndex(recipe="exact").fit(X).recipe.name == "exact"
    monkeypatch.undo()
    short = irli.recipe("auto", epochs=1, buckets=4)
    assert VectorIndex(recipe=short).fit(X, threads=1).stats()["buckets"] == 4


def test_relevance_is_learned_always() -> None:
    index = VectorIndex().fit(X, queries=X, relevance=np.arange(len(X))[:, None], threads=1)
    assert index.recipe.name == "relevance"
