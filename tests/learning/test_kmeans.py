from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import clusters

from irli import _native
from irli.learning import kmeans as module
from irli.learning.kmeans import find_owners, kmeans, nearest_centroids
from irli.learning.threads import use_threads

Floats = NDArray[np.float32]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def measure_squares(points: Floats, centroids: Floats) -> NDArray[np.float64]:
    gaps = points[:, None, :].astype(np.float64) - centroids[None]
    return np.asarray(np.square(gaps).sum(axis=2))


def quantisation(points: Floats, centroids: Floats) -> float:
    return float(measure_squares(points, centroids).min(axis=1).mean())


@pytest.fixture(params=["one level", "two levels"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "two levels":
        monkeypatch.setattr(module, "_ONE_LEVEL", 4)
    return request.param


@pytest.mark.parametrize("count", [1, 3, 5, 8, 30, 59, 60])
def test_as_many_centroids_as_asked_for(level: str, count: int) -> None:
    points = clusters(10, 6, dim=4, seed=0).points
    centroids = kmeans(points, count, generator())
    assert centroids.shape == (count, 4)
    assert np.isfinite(centroids).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.data(), st.integers(0, 2**31 - 1))
def test_any_points_two_levels(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(1, n))
    points = np.random.default_rng(seed).integers(0, 3, size=(n, 2)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ONE_LEVEL", 2)
        centroids = kmeans(points, count, generator(seed))
    assert centroids.shape == (count, 2)
    assert np.isfinite(centroids).all()


def test_planted_clusters_are_found(level: str) -> None:
    """With many more centroids than clusters none straddles two clusters."""
    made = clusters(50, 6, dim=4, spread=0.1, seed=1)
    points = made.points
    centroids = kmeans(points, 40, generator())
    owner = find_owners(points, centroids)
    for centroid in range(40):
        assert len(set(made.owner[owner == centroid])) <= 1
    assert quantisation(points, centroids) < 2 * 4 * 0.1**2


def test_more_centroids_fit_better(level: str) -> None:
    points = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    errors = [quantisation(points, kmeans(points, count, generator())) for count in (1, 8, 40, 160)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(float(points.var(axis=0).sum()), rel=0.1)  # of a sample


@pytest.mark.parametrize("dim", [2, 8])
def test_even_clusters_where_points_are_dense(dim: int, level: str) -> None:
    """Points are dense in the middle and sparse outside, where plain k-means goes."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4000, dim)) * np.exp(1.5 * rng.normal(size=(4000, 1)))
    rows = points.astype(np.float32)

    def deviation(even: bool) -> float:
        centroids = kmeans(rows, 100, generator(), even=even)
        return float(np.bincount(find_owners(rows, centroids), minlength=100).std())

    assert deviation(even=True) < 0.6 * deviation(even=False)


def test_same_seed_same_centroids(level: str) -> None:
    points = clusters(10, 6, dim=4, seed=0).points
    one, again = (kmeans(points, 20, generator(3)) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, kmeans(points, 20, generator(4)))


def test_points_are_not_changed(level: str) -> None:
    points = clusters(10, 6, dim=4, seed=0).points
    before = points.copy()
    kmeans(points, 60, generator())
    np.testing.assert_array_equal(points, before)


def test_identical_points(level: str) -> None:
    centroids = kmeans(np.full((20, 3), 2.5, dtype=np.float32), 7, generator())
    np.testing.assert_array_equal(centroids, np.full((7, 3), 2.5, dtype=np.float32))


@pytest.mark.parametrize("count", [1, 9, 40, 300])
def test_nearest_centroids_are_by_distance(count: int) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 4)).astype(np.float32)
    centroids = rng.normal(size=(count, 4)).astype(np.float32)
    buckets, scores = nearest_centroids(points, centroids, count)
    squares = measure_squares(points, centroids)
    right = (np.square(points).sum(axis=1, keepdims=True) - squares) / 2
    np.testing.assert_array_equal(np.sort(buckets, axis=1), np.arange(count)[None].repeat(30, 0))
    np.testing.assert_allclose(scores, -np.sort(-right, axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        scores, np.take_along_axis(right, buckets, axis=1), rtol=1e-4, atol=1e-4
    )
    nearest = np.take_along_axis(squares, find_owners(points, centroids)[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(nearest, squares.min(axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("even", [False, True])
def test_threads_change_no_centroid(level: str, even: bool) -> None:
    """There are vectors for several threads."""
    points = np.random.default_rng(0).normal(size=(3000, 5)).astype(np.float32)
    found = []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(kmeans(points, 50, generator(), even=even))
            buckets = find_owners(points, found[0])
            np.testing.assert_array_equal(buckets, nearest_centroids(points, found[0], 1)[0][:, 0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("matrix", "offsets", "rows", "out"),
    [
        ((0, 3), (0,), (2, 3), (2, 0)),
        ((4, 3), (3,), (2, 3), (2, 4)),
        ((4, 3), (4,), (2, 2), (2, 4)),
        ((4, 3), (4,), (2, 3), (2, 5)),
        ((4, 3), (4,), (2, 3), (3, 4)),
        ((4, 3), (4,), (2,), (2, 4)),
    ],
)
def test_wrong_arrays_are_refused(matrix: Any, offsets: Any, rows: Any, out: Any) -> None:
    def offer(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.float32)

    with pytest.raises((ValueError, TypeError)):
        _native.Panels(offer(*matrix), offer(*offsets)).score(offer(*rows), offer(*out))


def test_a_place_for_each_row_is_needed() -> None:
    panels = _native.Panels(np.zeros((4, 3), np.float32), np.zeros(4, np.float32))
    rows = np.zeros((2, 3), dtype=np.float32)
    for wrong in (np.empty(3, np.int64), np.empty(1, np.int64), np.empty(2, np.int32)):
        with pytest.raises((ValueError, TypeError)):
            panels.find_best(rows, wrong)  # type: ignore[arg-type]
    panels.find_best(rows[:0], np.empty(0, np.int64))
