"""The centroids of buckets against mean distances, written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.engine import centroids as module
from irli.engine.centroids import find_centroids
from irli.engine.vector_layout import Centroids


def nearness(found: Centroids, query: NDArray) -> NDArray[np.float64]:
    """What the kernels compute: larger is nearer."""
    columns, bias = found.columns.astype(np.float64), found.bias.astype(np.float64)
    return (query - found.centre.astype(np.float64)) @ columns + bias


def make_buckets(
    count: int, buckets: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Up to two buckets for each item; some buckets are empty."""
    rng = np.random.default_rng(seed)
    lists = [
        np.flatnonzero(rng.random(count) < 2 * (b % 3 > 0) / buckets).astype(np.int32)
        for b in range(buckets)
    ]
    return np.cumsum([0] + [len(part) for part in lists]), np.concatenate(lists)


def leave_out_outliers(inside: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the items that are at most ten times as far from the middle as half of them."""
    some = inside[:: max(1, len(inside) // 64)]
    far = np.square(inside - np.median(some, axis=0)).sum(axis=1)
    typical = np.sort(far)[len(far) // 2]
    return inside[(far <= 100 * typical) | (typical == 0)]


def test_an_item_far_away_changes_nothing_for_the_others() -> None:
    X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    offsets, items = np.array([0, 20, 40]), np.arange(40, dtype=np.int32)
    plain = find_centroids(X, "l2", offsets, items)
    X[3] = 1e4
    for metric in ("l2", "ip"):
        found = find_centroids(X, metric, offsets, items)
        same = abs(found.spread[0] / plain.spread[0] - 1) < 0.2
        assert same == (metric == "l2")  # with inner products, it is the nearest to many queries
        assert found.spread[1] == pytest.approx(plain.spread[1], rel=0.01)


def test_many_items_far_away_change_nothing_for_the_others() -> None:
    """A third of a bucket draws its mean away: then most items are far from the mean, too."""
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    offsets, items = np.array([0, 60]), np.arange(60, dtype=np.int32)
    plain = find_centroids(X[:40], "l2", np.array([0, 40]), items[:40])
    X[40:] *= 100
    found = find_centroids(X, "l2", offsets, items)
    np.testing.assert_allclose(found.spread, plain.spread, rtol=0.01)
    means = (part.columns[:, 0] + part.centre for part in (found, plain))
    np.testing.assert_allclose(*means, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 200),
    dim=st.integers(1, 6),
    buckets=st.integers(1, 12),
    l2=st.booleans(),
    offset=st.sampled_from([0.0, 1e3, -1e5]),
)
def test_nearness_is_the_mean_distance(
    seed: int, count: int, dim: int, buckets: int, l2: bool, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    shift = offset if l2 else 0.0
    X = (rng.normal(size=(count, dim)) + shift).astype(np.float32)
    query = (rng.normal(size=dim) + shift).astype(np.float32).astype(np.float64)
    offsets, items = make_buckets(count, buckets, seed)
    found = find_centroids(X, "l2" if l2 else "ip", offsets, items)
    assert all(part.dtype == np.float32 for part in found)
    assert (found.centre.shape, found.columns.shape, found.bias.shape) == (
        (dim,),
        (dim, buckets),
        (buckets,),
    )
    assert found.columns.flags.c_contiguous
    near = nearness(found, query)
    means = []
    for b in range(buckets):
        inside = X[items[offsets[b] : offsets[b + 1]]].astype(np.float64)
        if len(inside) == 0:
            assert near[b] == -np.inf
            continue
        if l2:
            inside = leave_out_outliers(inside)
        distances = np.square(inside - query).sum(axis=1) if l2 else -inside @ query
        means.append((near[b], distances.mean()))
    if not means:
        return
    got, right = np.array(means).T
    # Up to a number that is the same for all buckets.
    gaps, true_gaps = got - got[0], -(right - right[0]) / (2 if l2 else 1)
    np.testing.assert_allclose(gaps, true_gaps, atol=1e-3 + 1e-6 * abs(offset))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).integers(-9, 9, size=(300, 4)).astype(np.float32)
    offsets, items = make_buckets(300, 7, seed=1)
    whole = find_centroids(X, "l2", offsets, items)
    for block in (1, 7, 64):
        monkeypatch.setattr(module, "_BLOCK", block)
        for one, other in zip(find_centroids(X, "l2", offsets, items), whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_the_first_repetition_may_lie_anywhere_in_the_entries() -> None:
    X = np.arange(6, dtype=np.float32)[:, None]
    items = np.array([5, 5, 0, 1, 4, 5], dtype=np.int32)
    found = find_centroids(X, "l2", np.array([2, 4, 6]), items)
    assert (found.columns + found.centre).tolist() == [[0.5, 4.5]]


def test_spread_is_the_deviation_along_one_axis() -> None:
    rng = np.random.default_rng(0)
    X = (7 + rng.normal(size=(4000, 5)) * np.where(np.arange(4000) < 2000, 2, 0.1)[:, None]).astype(
        np.float32
    )
    offsets, items = np.array([0, 2000, 4000, 4000]), np.arange(4000, dtype=np.int32)
    for metric in ("l2", "ip"):
        spread = find_centroids(X, metric, offsets, items).spread
        np.testing.assert_allclose(spread, [2, 0.1, 0], rtol=0.05)


def test_reach_is_how_far_apart_the_items_of_a_bucket_are() -> None:
    """In the first bucket 1, in the second 10, but for an outlier; the third has only copies."""
    places = [*range(9), *range(100, 180, 10), 1e4, 50, 50]
    X = np.array(places, dtype=np.float32)[:, None]
    offsets, items = np.array([0, 9, 18, 20, 20]), np.arange(20, dtype=np.int32)
    found = find_centroids(X, "l2", offsets, items)
    np.testing.assert_allclose(found.reach, [1, 100, 50.5, 50.5])  # a median, where it is unknown
    assert found.base.tolist() == [0, 0, 0, 0]


def test_reach_by_angle_and_by_product() -> None:
    angles = np.array([0.0, 0.1, 0.2, 1.0, 1.5, 2.0])
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    offsets, items = np.array([0, 3, 6]), np.arange(6, dtype=np.int32)
    found = find_centroids(X, "cosine", offsets, items)
    np.testing.assert_allclose(found.reach, 1 - np.cos([0.1, 0.5]), rtol=1e-4)
    assert found.base.tolist() == [-1, -1]
    found = find_centroids(3 * X, "ip", offsets, items)
    np.testing.assert_allclose(found.reach, 3 * np.cos([0.1, 0.5]), rtol=1e-4)
    np.testing.assert_array_equal(found.base, -found.reach)
