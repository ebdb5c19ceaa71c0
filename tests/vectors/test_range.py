"""Range search against brute force."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import exact_distances, nearness

from irli import Deny, NotFitted, VectorIndex
from irli.errors import InvalidParameter
from irli.vectors.range_search import find_within
from irli.vectors.results import RangeResult, SearchResult

METRICS = ("l2", "ip", "cosine")
X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
QUERIES = np.random.default_rng(1).normal(size=(9, 6)).astype(np.float32)
INDEX = {metric: VectorIndex(metric, recipe="exact").fit(X) for metric in METRICS}


@settings(max_examples=40, deadline=None)
@given(
    metric=st.sampled_from(METRICS),
    rank=st.integers(0, 299),
    row=st.integers(0, 8),
    share=st.floats(0, 1),
)
def test_all_within_the_radius_are_found(metric: str, rank: int, row: int, share: float) -> None:
    exact = exact_distances(QUERIES, X, metric)
    ordered = np.sort(exact.ravel())
    middle = np.flatnonzero(np.diff(ordered) > 1e-4)  # no distance is near the radius
    place = middle[np.abs(middle - 9 * rank).argmin()]
    radius = float(ordered[place : place + 2].mean())
    allowed = np.random.default_rng(rank).random(300) < share
    for filter in (None, allowed):
        found = INDEX[metric].search_range(QUERIES, radius, filter=filter)
        right = (exact >= radius) if metric == "ip" else (exact <= radius)
        if filter is not None:
            right &= filter
        assert found.counts.tolist() == right.sum(axis=1).tolist()
        for query, part in enumerate(found.split()):
            assert {*part.ids} == {*np.flatnonzero(right[query])}
            np.testing.assert_allclose(part.distances, exact[query][part.ids], atol=1e-4)
            assert (np.diff(nearness(part.distances, metric)) >= 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_the_radius_of_an_answer_includes_it(metric: str) -> None:
    index = INDEX[metric]
    nearest = index.search(QUERIES[0], 20)
    found = index.search_range(QUERIES[0], float(nearest.distances[16]))
    assert found.lims.tolist() == [0, 17]
    np.testing.assert_array_equal(found.ids, nearest.ids[:17])
    np.testing.assert_array_equal(found.distances, nearest.distances[:17])


def test_it_is_a_tuple_as_in_faiss() -> None:
    found = INDEX["l2"].search_range(QUERIES, 3.0)
    lims, distances, ids = found
    assert lims.dtype == ids.dtype == np.int64
    assert distances.dtype == np.float32
    assert len(lims) == 10
    assert lims[-1] == len(ids) == len(distances)
    np.testing.assert_array_equal(found.similarities, -distances)
    assert [part.metric for part in found.split()] == ["l2"] * 9


def test_nothing_and_everything() -> None:
    index = INDEX["l2"]
    assert index.search_range(QUERIES, -1.0).lims.tolist() == [0] * 10
    assert index.search_range(QUERIES[:0], 1.0).lims.tolist() == [0]
    assert index.search_range(QUERIES, 1e9).counts.tolist() == [300] * 9
    assert index.search_range(QUERIES, 1e9, filter=Deny([0])).counts.tolist() == [299] * 9
    each: list[Any] = [None, {3}, range(5), [], *[Deny([1])] * 5]
    assert index.search_range(QUERIES, 1e9, filter=each).counts.tolist() == [
        300, 1, 5, 0, *[299] * 5
    ]  # fmt: skip


def test_many_queries_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irli.vectors.range_search._CELLS", 1000)
    sizes = []

    def search(rows: Any, k: int) -> SearchResult:
        sizes.append(len(rows) * k)
        return INDEX["l2"].search(QUERIES[rows], k)

    found = find_within(search, 9, 1e9, metric="l2", items=300)
    assert found.counts.tolist() == [300] * 9
    assert max(sizes) <= 1000


@pytest.mark.parametrize("radius", ["far", None, np.nan, np.inf, [1.0]])
def test_what_is_no_radius(radius: Any) -> None:
    with pytest.raises(InvalidParameter, match="'radius' parameter of search_range must be"):
        INDEX["l2"].search_range(QUERIES, radius)


def test_results_are_in_order_of_distance() -> None:
    index = copy.copy(INDEX["l2"])
    index.defaults = dataclasses.replace(index.defaults, rank="score", exact=False)
    found, right = index.search_range(QUERIES, 5.0), INDEX["l2"].search_range(QUERIES, 5.0)
    np.testing.assert_array_equal(found.ids, right.ids)
    with pytest.raises(InvalidParameter, match="'rank' parameter of search_range"):
        index.search_range(QUERIES, 5.0, rank="score")


def test_what_else_is_wrong() -> None:
    with pytest.raises(NotFitted):
        VectorIndex().search_range(QUERIES, 1.0)
    with pytest.raises(TypeError, match="probes"):
        INDEX["l2"].search_range(QUERIES, 1.0, probe=3)  # type: ignore[call-arg]
    assert isinstance(INDEX["l2"].search_range(QUERIES, 1.0, exact=True), RangeResult)
