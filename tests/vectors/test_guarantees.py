"""The promises of docs/guarantees.md, on a sample of the shapes. The benchmark has all of them."""

from __future__ import annotations

import numpy as np
import pytest
from bench.guarantees.promises import (
    FILTERS,
    make_filter,
    measure_recall,
    measure_self_hits,
    measure_work,
)
from bench.guarantees.shapes import SHAPES, Shape, make_shape, make_strange_queries
from hypothesis import given, settings
from hypothesis import strategies as st

import irli
from irli import VectorIndex

ITEMS = 3000
SAMPLE = ("tight clusters", "clusters 48", "offset 10000", "copies", "d = 3, by angle")


@pytest.fixture(scope="module", params=SAMPLE)
def learned(request: pytest.FixtureRequest) -> tuple[VectorIndex, Shape]:
    shape = make_shape(request.param, ITEMS, 300)
    recipe = irli.recipe("default", epochs=2)
    return VectorIndex(shape.metric, recipe=recipe).fit(shape.base), shape


@pytest.mark.parametrize("k", [1, 10, 40, 100, 400, 1000])
def test_recall_holds_for_every_k(learned: tuple[VectorIndex, Shape], k: int) -> None:
    index, shape = learned
    assert measure_recall(index, shape.queries if k <= 10 else shape.queries[:60], k) >= 0.93


def test_items_find_themselves(learned: tuple[VectorIndex, Shape]) -> None:
    index, shape = learned
    if shape.metric != "ip":
        assert measure_self_hits(index, np.arange(ITEMS)) >= 0.999


@pytest.mark.parametrize("kind", FILTERS)
def test_filters_keep_the_recall(learned: tuple[VectorIndex, Shape], kind: str) -> None:
    index, shape = learned
    for share in (0.9, 0.5, 0.1, 0.01, 0.001):
        allowed = make_filter(shape, kind, share)
        assert measure_recall(index, shape.queries[:60], 10, allowed) >= 0.93


@settings(deadline=None, max_examples=20)
@given(st.floats(-15, 15), st.integers(0, 299))
def test_inner_products_answer_alike_whatever_the_length_of_a_query(
    products: tuple[VectorIndex, Shape], exponent: float, place: int
) -> None:
    index, shape = products
    query, longer = shape.queries[place], shape.queries[place] * np.float32(10**exponent)
    found, again = index.search(query, 10), index.search(longer, 10)
    assert np.isin(found.ids, again.ids).mean() >= 0.9  # rounding may exchange the last
    close = np.allclose(again.distances, found.distances * 10**exponent, rtol=1e-3)
    assert close or set(found.ids) != set(again.ids)
    told, told_again = index.explain(query, 10), index.explain(longer, 10)
    assert told_again.probed[0] <= told.probed[0] + 2


@pytest.fixture(scope="module")
def products() -> tuple[VectorIndex, Shape]:
    shape = make_shape("factors", ITEMS, 300)
    return VectorIndex("ip", recipe=irli.recipe("default", epochs=2)).fit(shape.base), shape


@pytest.mark.parametrize("kind", ["between", "noise", "far"])
def test_strange_queries_have_a_floor(learned: tuple[VectorIndex, Shape], kind: str) -> None:
    index, shape = learned
    queries = make_strange_queries(shape, kind, 60)
    assert measure_recall(index, queries, 10) >= 0.7
    assert measure_work(index, queries) <= 4.5 * measure_work(index, shape.queries)


def test_the_same_answers_again() -> None:
    shape = make_shape("heavy tails by product", 1500, 100)
    recipe = irli.recipe("default", epochs=1)
    index = VectorIndex(shape.metric, recipe=recipe).fit(shape.base)
    again = VectorIndex(shape.metric, recipe=recipe).fit(shape.base)
    assert again.tuned == index.tuned
    for k in (1, 10, 100):
        one, other = index.search(shape.queries, k), again.search(shape.queries, k)
        np.testing.assert_array_equal(one.ids, other.ids)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(SHAPES)),
    items=st.integers(1, 400),
    k=st.integers(1, 500),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_exact_search_is_exact(name: str, items: int, k: int, share: float, seed: int) -> None:
    shape = make_shape(name, items, 5, seed)
    index = VectorIndex(shape.metric).fit(shape.base)
    assert index.recipe.name == "exact"
    allowed = np.flatnonzero(np.random.default_rng(seed).random(items) < share)
    found = index.search(shape.queries, k, filter=allowed)
    vectors, queries = index.vectors.astype(np.float64), shape.queries.astype(np.float64)
    if shape.metric == "cosine":
        queries /= np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-300)
    true = -queries @ vectors.T
    if shape.metric == "l2":
        true = np.square(queries[:, None] - vectors).sum(axis=2)
    right = np.sort(true[:, allowed], axis=1)[:, :k]
    assert (found.counts == min(k, len(allowed))).all()
    sign = -1 if shape.metric == "ip" else 1
    mine = sign * found.distances[:, : right.shape[1]] - (shape.metric == "cosine")
    # A cosine distance is 1 less a product, in float32.
    scale = max(np.abs(true).max(initial=1e-30), float(shape.metric == "cosine"))
    np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5 * scale)
    assert np.isin(found.ids[found.ids >= 0], allowed).all()
