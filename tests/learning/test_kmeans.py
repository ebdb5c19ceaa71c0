from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import clusters

from irli.learning import kmeans as module
from irli.learning.kmeans import kmeans, nearest_centroids


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quantisation(points: torch.Tensor, centroids: torch.Tensor) -> float:
    return float(torch.cdist(points, centroids).min(dim=1).values.square().mean())


@pytest.fixture(params=["one level", "two levels"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "two levels":
        monkeypatch.setattr(module, "_ONE_LEVEL", 4)
    return request.param


@pytest.mark.parametrize("count", [1, 3, 5, 8, 30, 59, 60])
def test_as_many_centroids_as_asked_for(level: str, count: int) -> None:
    points = torch.from_numpy(clusters(10, 6, dim=4, seed=0).points)
    centroids = kmeans(points.numpy(), count, generator())
    assert centroids.shape == (count, 4)
    assert torch.isfinite(centroids).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.data(), st.integers(0, 2**31 - 1))
def test_any_points_two_levels(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(1, n))
    points = torch.from_numpy(
        np.random.default_rng(seed).integers(0, 3, size=(n, 2)).astype(np.float32)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ONE_LEVEL", 2)
        centroids = kmeans(points.numpy(), count, generator(seed))
    assert centroids.shape == (count, 2)
    assert torch.isfinite(centroids).all()


def test_planted_clusters_are_found(level: str) -> None:
    """With many more centroids than clusters none straddles two clusters."""
    made = clusters(50, 6, dim=4, spread=0.1, seed=1)
    points = torch.from_numpy(made.points)
    centroids = kmeans(points.numpy(), 40, generator())
    owner = nearest_centroids(points, centroids, 1)[0][:, 0].numpy()
    for centroid in range(40):
        assert len(set(made.owner[owner == centroid])) <= 1
    assert quantisation(points, centroids) < 2 * 4 * 0.1**2


def test_more_centroids_fit_better(level: str) -> None:
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32))
    errors = [
        quantisation(points, kmeans(points.numpy(), count, generator()))
        for count in (1, 8, 40, 160)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(
        float(points.var(dim=0, correction=0).sum()), rel=0.1
    )  # of a sample


@pytest.mark.parametrize("dim", [2, 8])
def test_even_clusters_where_points_are_dense(dim: int, level: str) -> None:
    """Points are dense in the middle and sparse outside, where plain k-means goes."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4000, dim)) * np.exp(1.5 * rng.normal(size=(4000, 1)))
    rows = points.astype(np.float32)

    def deviation(even: bool) -> float:
        centroids = kmeans(rows, 100, generator(), even=even)
        owner = nearest_centroids(torch.from_numpy(rows), centroids, 1)[0][:, 0]
        return float(torch.bincount(owner, minlength=100).float().std())

    assert deviation(even=True) < 0.6 * deviation(even=False)


def test_same_seed_same_centroids(level: str) -> None:
    points = torch.from_numpy(clusters(10, 6, dim=4, seed=0).points)
    one, again = (kmeans(points.numpy(), 20, generator(3)) for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, kmeans(points.numpy(), 20, generator(4)))


def test_points_are_not_changed(level: str) -> None:
    points = torch.from_numpy(clusters(10, 6, dim=4, seed=0).points)
    before = points.clone()
    kmeans(points.numpy(), 60, generator())
    assert torch.equal(points, before)


def test_identical_points(level: str) -> None:
    centroids = kmeans(np.full((20, 3), 2.5, dtype=np.float32), 7, generator())
    assert torch.equal(centroids, torch.full((7, 3), 2.5))


def test_nearest_centroids_are_by_distance() -> None:
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.normal(size=(30, 4)).astype(np.float32))
    centroids = torch.from_numpy(rng.normal(size=(9, 4)).astype(np.float32))
    buckets, scores = nearest_centroids(points, centroids, 9)
    distances = torch.cdist(points, centroids)
    assert torch.equal(buckets, distances.argsort(dim=1))
    right = (points.square().sum(dim=1, keepdim=True) - distances.square()) / 2
    torch.testing.assert_close(scores, right.gather(1, buckets), rtol=1e-4, atol=1e-4)
