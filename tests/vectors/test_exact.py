"""Exact search: queries that are compared together have the answers of one by one."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import irli
from irli._native import COMPARED
from irli.base.ids import Ids
from irli.cluster import ShardedIndex
from irli.errors import InvalidParameter
from irli.vectors.cost import Sizes, count_exact_work
from irli.vectors.searcher import Searcher

METRICS = ("l2", "ip", "cosine")


@settings(max_examples=60, deadline=None)
@given(
    items=st.integers(1, 300),
    dim=st.integers(1, 40),
    queries=st.sampled_from([0, 1, 3, 4, 15, 16, 17, COMPARED - 1, COMPARED, COMPARED + 1, 150]),
    k=st.integers(1, 90),
    metric=st.sampled_from(METRICS),
    share=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_a_batch_has_the_answers_of_its_queries(
    items: int, dim: int, queries: int, k: int, metric: str, share: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers: sums are exact in any order, and there are many ties.
    X, Q = (rng.integers(-3, 4, size=(n, dim)).astype(np.float32) for n in (items, queries))
    if metric == "cosine":
        X, Q = X + 4, Q + 4  # a row of zeros has no angle
    index = irli.VectorIndex(metric, recipe="exact").fit(X)  # type: ignore[arg-type]
    allowed = None if share is None else np.flatnonzero(rng.random(items) < share)
    together = index.search(Q, k, filter=allowed, threads=1)
    for row, query in enumerate(Q):
        alone = index.search(query, k, filter=allowed)
        if metric == "cosine":  # lengths are rounded, so that ties are close calls
            assert np.allclose(together.distances[row], alone.distances, atol=1e-6)
            continue
        assert np.array_equal(together.ids[row], alone.ids)
        assert np.array_equal(together.distances[row], alone.distances)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10, 500, 3000])
def test_exact_search_is_exact(metric: str, k: int) -> None:
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(3000, 24)), rng.normal(size=(100, 24))
    index = irli.VectorIndex(metric, recipe="exact").fit(X)  # type: ignore[arg-type]
    x, q = (v / np.linalg.norm(v, axis=1)[:, None] if metric == "cosine" else v for v in (X, Q))
    truth = ((q[:, None] - x) ** 2).sum(2) if metric == "l2" else -(q @ x.T)
    found = index.search(Q, k).ids
    far = np.sort(truth, axis=1)[:, :k]
    assert np.allclose(np.take_along_axis(truth, found, axis=1), far, atol=1e-5)
    assert all(len(set(row)) == k for row in found.tolist())


def test_threads_do_not_change_an_exact_search() -> None:
    rng = np.random.default_rng(1)
    index = irli.VectorIndex(recipe="exact").fit(rng.normal(size=(500, 8)))
    Q = rng.normal(size=(333, 8))
    one, several = (index.search(Q, 7, threads=threads) for threads in (1, 4))
    assert np.array_equal(one.ids, several.ids)
    assert np.array_equal(one.distances, several.distances)


def test_comparing_many_queries_together_costs_less() -> None:
    layout = irli.VectorIndex(recipe="exact").fit(np.eye(50))._fitted().searcher.layout
    costs = [count_exact_work(Sizes.of(layout), 50, queries) for queries in (1, 16, COMPARED)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 2
    assert count_exact_work(Sizes.of(layout), 50, 10 * COMPARED) == costs[-1]


@settings(deadline=None)
@given(st.lists(st.integers(-5, 200)), st.integers(1, 150))
def test_ids_in_any_order_allow_their_items_once(wanted: list[int], items: int) -> None:
    allowed = Ids(np.arange(items)).allowed(np.array(wanted, dtype=np.int64))
    assert allowed is not None
    assert allowed.rows.tolist() == sorted({id for id in wanted if 0 <= id < items})
    assert np.flatnonzero(allowed.mask).tolist() == allowed.rows.tolist()


def test_a_prepared_filter_allows_what_the_filter_did() -> None:
    rng = np.random.default_rng(2)
    index = irli.VectorIndex(recipe="exact").fit(rng.normal(size=(300, 4)), ids=np.arange(300) * 3)
    mask, Q = rng.random(300) < 0.3, rng.normal(size=(20, 4))
    ids = np.flatnonzero(mask) * 3
    right = index.search(Q, 5, filter=mask).ids
    for filter in (mask, ids, irli.Deny(np.flatnonzero(~mask) * 3), set(ids.tolist())):
        prepared = index.allow(filter)
        assert prepared.count == mask.sum()
        assert np.array_equal(index.search(Q, 5, filter=prepared).ids, right)
        assert np.array_equal(index.search(Q[0], 5, filter=prepared).ids, right[0])
        assert np.array_equal(index.search(Q, 5, filter=[prepared] * 20).ids, right)
    assert index.allow(None).count == 300
    changed = index.allow(mask)
    mask[:] = True
    assert np.array_equal(index.search(Q, 5, filter=changed).ids, right)


@pytest.mark.parametrize("recipe", ["exact", "default"])
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_a_single_query_with_a_filter_is_answered_as_in_a_batch(recipe: str, metric: str) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 10)).astype(np.float32)
    changes = {"epochs": 1} if recipe == "default" else {}
    index = irli.VectorIndex(metric, recipe=irli.recipe(recipe, **changes))
    index.fit(X, ids=np.arange(3000) + 7)
    Q = rng.normal(size=(20, 10)).astype(np.float32)
    for share in (0.001, 0.1, 0.5):
        mask = rng.random(3000) < share
        for filter in (mask, index.allow(mask), np.flatnonzero(mask) + 7):
            for k in (1, 10):
                found = index.search(Q, k, filter=filter, exact=True)
                one = [index.search(q, k, filter=filter, exact=True) for q in Q]
                assert np.array_equal([each.ids for each in one], found.ids)
                assert np.array_equal([each.distances for each in one], found.distances)
                alone = np.array([index.search(q, k, filter=filter).ids for q in Q])
                again = np.array([index.search(q.tolist(), k, filter=filter).ids for q in Q])
                assert np.array_equal(alone, again)
                known = (alone - 7)[alone >= 0]
                assert mask[known].all()


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_a_single_query_with_few_answers_is_searched_once(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = irli.VectorIndex(metric).fit(np.random.default_rng(0).normal(size=(50, 4)))
    query = np.ones(4, dtype=np.float32)
    few = index.search(query[None].tolist(), 5, filter=[3, 7])
    searched = []
    for name in ("search", "search_one"):
        real = getattr(Searcher, name)
        monkeypatch.setattr(Searcher, name, lambda *a, real=real: searched.append(a) or real(*a))
    found = index.search(query, 5, filter=[3, 7])
    assert len(searched) == 1
    assert found.ids.tolist() == few.ids[0].tolist()
    assert found.distances.tolist() == few.distances[0].tolist()
    assert (found.ids[2:] == -1).all()


def test_a_filter_of_another_index_is_refused() -> None:
    one, other = (irli.VectorIndex().fit(np.eye(4), ids=ids) for ids in (range(4), range(100, 104)))
    with pytest.raises(InvalidParameter, match="prepared for this index of 4 items"):
        other.search(np.eye(4), 2, filter=one.allow([1]))


def test_a_filter_of_an_earlier_fit_is_refused() -> None:
    index = irli.VectorIndex().fit(np.eye(4))
    before = index.allow([1])
    assert index.search(np.eye(4), 1, filter=before).ids.tolist() == [[1]] * 4
    index.fit(np.eye(4)[::-1])
    with pytest.raises(InvalidParameter, match="from before this one was fitted"):
        index.search(np.eye(4), 1, filter=before)


def test_copies_take_what_the_original_has_prepared(tmp_path: Path) -> None:
    index = irli.VectorIndex().fit(np.eye(4))
    prepared = index.allow([1])
    copies = [copy.copy(index), copy.deepcopy(index), pickle.loads(pickle.dumps(index))]
    for made in copies:
        for filter in (prepared, pickle.loads(pickle.dumps(prepared))):
            assert made.search(np.eye(4)[0], 1, filter=filter).ids.tolist() == [1]
    index.save(tmp_path / "saved")
    with pytest.raises(InvalidParameter, match=r"or loaded\. Prepare it with"):
        irli.load(tmp_path / "saved").search(np.eye(4), 1, filter=prepared)


def test_exact_search_cannot_learn_relevance() -> None:
    X = np.eye(4)
    with pytest.raises(InvalidParameter, match="'relevance' parameter of fit must be left out"):
        irli.VectorIndex(recipe="exact").fit(X, queries=X, relevance=[[1], [2], [3], [0]])
    with pytest.raises(InvalidParameter, match="Use recipe='relevance' to learn it"):
        ShardedIndex(recipe="exact").fit(X, queries=X, relevance=[[1], [2], [3], [0]])
    index = irli.VectorIndex(recipe="exact").fit(X, queries=2 * X)  # it finds what is near these
    assert index.search(2 * X, 1).ids.ravel().tolist() == [0, 1, 2, 3]
