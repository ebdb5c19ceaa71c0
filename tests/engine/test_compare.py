"""Plans that compare all items, against brute force, on every back-end."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import assemble_layout, random_partition, random_router
from searching import explain, list_rows, plan, search, search_one

from irli._native import COSINE, DOT, IP, L2, PLAIN, VectorSearcher
from irli.engine.metric import prepare_vectors
from irli.engine.vector_layout import VectorLayout

pytestmark = pytest.mark.usefixtures("simd")

FORMS = {"l2": PLAIN, "ip": IP, "cosine": COSINE}


@cache
def index(n: int, dim: int, metric: int, span: int = 3) -> VectorLayout:
    """Whole numbers: many ties, and float32 is exact."""
    X = np.random.default_rng(n + dim).integers(-span, span + 1, size=(n, dim)).astype(np.float32)
    return assemble_layout([random_router(dim, 4)], [random_partition(n, 4)], X, metric)


def compare_all(
    q: NDArray[np.float32], layout: VectorLayout, allowed: NDArray[np.bool_] | None, k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k nearest allowed items, the smaller row first of equals."""
    q64, X = q.astype(np.float64), layout.vectors.astype(np.float64)
    exact = -q64 @ X.T if layout.metric == DOT else np.square(q64[:, None] - X).sum(axis=2)
    rows = np.arange(len(X)) if allowed is None else np.flatnonzero(allowed)
    distances, items = np.full((len(q), k), np.inf), np.full((len(q), k), -1)
    for i, values in enumerate(exact[:, rows]):
        order = np.lexsort((rows, values))[:k]
        distances[i, : len(order)], items[i, : len(order)] = values[order], rows[order]
    return distances, items


@settings(max_examples=80, deadline=None)
@given(
    n=st.sampled_from([1, 2, 15, 64, 255, 257, 1100]),
    dim=st.sampled_from([1, 3, 16, 65]),
    count=st.integers(1, 19),
    k=st.integers(1, 400),
    metric=st.sampled_from([L2, DOT]),
    share=st.one_of(st.none(), st.floats(0, 1)),
    seed=st.integers(0, 2**32 - 1),
)
def test_all_items_are_compared(
    n: int, dim: int, count: int, k: int, metric: int, share: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layout = index(n, dim, metric)
    q = rng.integers(-3, 4, size=(count, dim)).astype(np.float32)
    allowed = None if share is None else rng.random(n) < share
    searcher, p = VectorSearcher(layout), plan(k=k, exact=True)
    distances, items = compare_all(q, layout, allowed, k)
    found = search(searcher, q, p, allowed)
    np.testing.assert_array_equal(found.items, items)
    np.testing.assert_array_equal(found.distances, distances)
    total = n if allowed is None else int(allowed.sum())
    assert found.work is not None
    assert found.work.tolist() == [[0, total, total, 1, 0, 0, 0, 0]] * count
    told = explain(layout, q[0], p, allowed)
    np.testing.assert_array_equal(told.items, items[0])
    np.testing.assert_array_equal(told.distances, distances[0])
    assert (told.probed, told.read, told.exact) == ([], total, True)
    assert (told.votes == 0).all()
    if allowed is None:
        one = search_one(searcher, q[0], p, np.arange(n))
        np.testing.assert_array_equal(one.items, items[0])


@pytest.mark.parametrize("allowed", [20, 127, 128, 129, 513])  # the first 128 are sorted in lanes
@pytest.mark.parametrize("k", [1, 16, 17])  # up to 16
@pytest.mark.parametrize("metric", [L2, DOT])
def test_a_batch_answers_like_single_queries(allowed: int, k: int, metric: int) -> None:
    rng = np.random.default_rng(allowed)
    X, q = (rng.normal(size=(n, 50)).astype(np.float32) for n in (600, 37))
    layout = assemble_layout([random_router(50, 4)], [random_partition(600, 4)], X, metric)
    mask = np.isin(np.arange(600), rng.choice(600, allowed, replace=False))
    searcher, p = VectorSearcher(layout), plan(k=k, exact=True)
    batch = search(searcher, q, p, mask)
    np.testing.assert_array_equal(batch.items, compare_all(q, layout, mask, k)[1])
    for i in range(len(q)):
        one = search(searcher, q[i : i + 1], p, mask)
        np.testing.assert_array_equal(one.items[0], batch.items[i])
        np.testing.assert_array_equal(one.distances[0], batch.distances[i])


@pytest.mark.parametrize("metric", FORMS)
@pytest.mark.parametrize("share", [None, 0.3])
def test_each_metric_is_brute_force(metric: str, share: float | None) -> None:
    rng = np.random.default_rng(0)
    X, q = (rng.normal(size=(n, 24)).astype(np.float32) for n in (900, 21))
    vectors, unit = prepare_vectors(X, metric), prepare_vectors(q, metric)
    kind = L2 if metric == "l2" else DOT
    layout = assemble_layout([random_router(24, 4)], [random_partition(900, 4)], vectors, kind)
    allowed = None if share is None else rng.random(900) < share
    names = rng.permutation(900) + 10**10
    found = search(VectorSearcher(layout), q, plan(k=15, exact=True), allowed, names, FORMS[metric])
    distances, items = compare_all(unit, layout, allowed, 15)
    np.testing.assert_array_equal(found.items, names[items])
    right = {"l2": distances, "ip": -distances, "cosine": 1 + distances}[metric]
    np.testing.assert_allclose(found.distances, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 63, 64, 65, 4096, 4097, 5000, 9000])
def test_any_k_in_a_block_of_queries(k: int) -> None:
    """For a large k, there is no room for the keys of a whole block. Then each comes alone."""
    layout = index(8000, 2, L2, 40)
    q = np.random.default_rng(0).integers(-50, 51, size=(8, 2)).astype(np.float32)
    distances, items = compare_all(q, layout, None, k)
    found = search(VectorSearcher(layout), q, plan(k=k, exact=True))
    np.testing.assert_array_equal(found.items, items)
    np.testing.assert_array_equal(found.distances, distances)


@pytest.mark.parametrize("order", ["near first", "far first"])
def test_the_order_of_the_items_is_no_matter(order: str) -> None:
    X = np.arange(5000, dtype=np.float32)[:: 1 if order == "near first" else -1, None]
    layout = assemble_layout([random_router(1, 2)], [random_partition(5000, 2)], X.copy())
    found = search(VectorSearcher(layout), np.zeros((8, 1), "f4"), plan(k=7, exact=True))
    assert found.distances.tolist() == [[float(i * i) for i in range(7)]] * 8


def test_equal_items_come_in_the_order_of_their_rows() -> None:
    """More of them than there is room for, in a block of queries and alone."""
    X = np.ones((3000, 3), dtype=np.float32)
    layout = assemble_layout([random_router(3, 2)], [random_partition(3000, 2)], X)
    for count in (1, 8):
        found = search(VectorSearcher(layout), X[:count], plan(k=100, exact=True))
        assert found.items.tolist() == [list(range(100))] * count


def test_distances_that_are_not_numbers_are_left_out() -> None:
    X = np.array([[1, 1], [3e38, -3e38], [2, 2]], dtype=np.float32)
    layout = assemble_layout([random_router(2, 1)], [random_partition(3, 1)], X, DOT)
    found = search(
        VectorSearcher(layout), np.full((2, 2), 3e38, dtype=np.float32), plan(k=3, exact=True)
    )
    assert not np.isnan(found.distances).any()
    assert {0, 2} <= set(found.items[0].tolist())


def test_the_rows_of_a_filter_are_all_that_is_read() -> None:
    """An exact plan needs no mask."""
    layout = index(64, 3, L2)
    rows = list_rows(np.arange(64) % 7 == 0)
    q = layout.vectors[:2].copy()
    distances, items = np.empty((2, 3), dtype=np.float32), np.empty((2, 3), dtype=np.int64)
    mask = np.zeros(64, dtype=bool)
    p = plan(k=3, exact=True)
    VectorSearcher(layout).search(q, p, mask, rows, None, None, PLAIN, 0, 2, distances, items)
    assert (items % 7 == 0).all()
