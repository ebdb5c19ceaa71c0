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
    found = find_centroids(X, l2, offsets, items)
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
    whole = find_centroids(X, True, offsets, items)
    for block in (1, 7, 64):
        monkeypatch.setattr(module, "_BLOCK", block)
        for one, other in zip(find_centroids(X, True, offsets, items), whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_the_first_repetition_may_lie_anywhere_in_the_entries() -> None:
    X = np.arange(6, dtype=np.float32)[:, None]
    items = np.array([5, 5, 0, 1, 4, 5], dtype=np.int32)
    found = find_centroids(X, True, np.array([2, 4, 6]), items)
    assert (found.columns + found.centre).tolist() == [[0.5, 4.5]]
