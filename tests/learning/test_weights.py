"""Weights: the first ones, those of centroids, and the routers that are made of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from lessons import LEARNERS, make_network
from numpy.typing import NDArray
from planted import clusters

from irli.base.types import Rows
from irli.learning import weights as module
from irli.learning.network import log_scores
from irli.learning.weights import Weights, draw_weights, read_routers

Floats = NDArray[np.float32]


def draw(
    dim: int, linear: int, hidden: int, buckets: int, *, heads: int = 1, sparse: bool = False
) -> Weights:
    shape = dim, linear, hidden
    return draw_weights(shape, buckets, heads, sparse, np.random.default_rng(0))


def score(weights: Weights, rows: Rows, head: int = 0) -> Floats:
    network = make_network(weights, sparse=not isinstance(rows, np.ndarray))
    logits: Floats = network.score(rows, head)
    return logits


# --- heads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", LEARNERS)
@pytest.mark.parametrize("sparse", [False, True])
def test_heads_are_scored_alike_as_routers_and_read_again(sparse: bool, device: str) -> None:
    weights = draw(9, 0, 6, 5, heads=3, sparse=sparse)
    rng = np.random.default_rng(0)
    rows: Rows = rng.normal(size=(20, 9)).astype(np.float32)
    if sparse:
        rows = sp.csr_array(rows * (rng.random(rows.shape) < 0.4))
    weights.standardize(rows)
    network = make_network(weights, device, sparse=sparse)
    routers = network.read().to_routers()
    again = make_network(read_routers(routers), device, sparse=sparse)
    for head, router in enumerate(routers):
        logits = network.score(rows, head)
        assert logits.shape == (20, 5)
        right = log_scores(logits, "softmax")
        np.testing.assert_allclose(router.log_probabilities(rows), right, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(again.score(rows, head), logits, rtol=1e-4, atol=1e-4)
        assert router.project is routers[0].project


@pytest.mark.parametrize("device", LEARNERS)
def test_a_linear_part_is_folded_into_the_router(device: str) -> None:
    weights = draw(9, 4, 6, 5)
    rows = (np.random.default_rng(0).normal(size=(20, 9)) * 50 + 9).astype(np.float32)
    weights.standardize(rows)
    network = make_network(weights, device)
    right = log_scores(network.score(rows, 0), "softmax")
    [router] = network.read().to_routers()
    assert router.linear == 4
    np.testing.assert_allclose(router.log_probabilities(rows), right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("block", [3, 65_536])
def test_inputs_are_centred_and_of_unit_length(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = (np.random.default_rng(0).normal(size=(20, 4)) * 7 + 100).astype(np.float32)
    weights = draw(4, 0, 6, 5)
    weights.standardize(rows)
    inside = (rows - weights.centre) / weights.scale
    np.testing.assert_allclose(inside.mean(axis=0), 0, atol=1e-5)
    assert np.square(inside).sum(axis=1).mean() == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_inputs_of_zeros_have_a_scale(sparse: bool) -> None:
    zeros: Rows = np.zeros((5, 4), dtype=np.float32)
    weights = draw(4, 0, 6, 5, sparse=sparse)
    weights.standardize(sp.csr_array(zeros) if sparse else zeros)
    assert weights.scale == 1.0


@pytest.mark.parametrize("device", LEARNERS)
def test_a_network_takes_inputs_as_they_are(device: str) -> None:
    weights = draw(9, 0, 6, 5)
    rows = (np.random.default_rng(0).normal(size=(20, 9)) * 50 + 9).astype(np.float32)
    hidden = np.maximum(rows @ weights.project + weights.shift, 0)
    logits = hidden @ weights.out[0].T + weights.bias[0]
    found = make_network(weights, device).score(rows, 0)
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-4)
    [router] = weights.to_routers()
    right = log_scores(logits, "softmax")
    np.testing.assert_allclose(router.log_probabilities(rows), right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_first_weights_are_small_and_differ(sparse: bool) -> None:
    weights = draw(50, 0, 40, 30, heads=2, sparse=sparse)
    assert not np.array_equal(weights.out[0], weights.out[1])
    assert np.abs(weights.out).max() <= 40**-0.5
    if sparse:
        assert weights.project.std() == pytest.approx(module._SPARSE_SPREAD, rel=0.1)
    else:
        assert np.abs(weights.project).max() <= 50**-0.5
        assert np.abs(weights.shift).max() <= 50**-0.5
    assert {array.dtype for array in (weights.project, weights.shift, weights.out)} == {
        np.dtype(np.float32)
    }


# --- the start from centroids ----------------------------------------------------------------


def find_loss(logits: NDArray, owner: NDArray) -> float:
    """Return the cross-entropy of the buckets that queries want."""
    exact = np.asarray(logits, dtype=np.float64)
    top = exact.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(exact - top).sum(axis=1))
    return float((total - exact[np.arange(len(owner)), owner]).mean())


def want(owner: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int32], Floats]:
    """Each query wants an item of one bucket."""
    return np.arange(len(owner)), owner[:, None].astype(np.int32), np.ones(len(owner), np.float32)


def measure_squares(queries: NDArray, centroids: NDArray) -> NDArray[np.float64]:
    gaps = queries[:, None, :].astype(np.float64) - centroids[None]
    return np.asarray(np.square(gaps).sum(axis=2))


class Warm:
    """Queries around centroids that want the items of one bucket each."""

    def __init__(self, spread: float, inner_product: bool) -> None:
        made = clusters(20, 6, dim=5, spread=0.3, seed=2)
        self.centroids, self.owner = made.centres, made.owner
        noise = np.random.default_rng(1).normal(size=made.points.shape)
        self.queries = (made.points + spread * noise).astype(np.float32)
        self.inner_product = inner_product
        self.weights = draw(5, 5, 3, 6)
        self.weights.standardize(self.queries)

    def begin(self) -> Floats:
        """Return the logits after the start from centroids."""
        self.weights.start_from_centroids(
            self.centroids, self.inner_product, self.queries, want(self.owner)
        )
        return score(self.weights, self.queries)

    def centroid_scores(self) -> NDArray:
        """The scores at temperature 1 by the definition: q c, or -|q - c|^2 / 2."""
        q = (self.queries - self.weights.centre) / self.weights.scale
        c = (self.centroids - self.weights.centre) / self.weights.scale
        return q @ c.T if self.inner_product else -measure_squares(q, c) / 2


@pytest.mark.parametrize("inner_product", [False, True])
@pytest.mark.parametrize("spread", [0.0, 3.0, 10.0])
def test_the_start_takes_the_temperature_that_explains_most(
    spread: float, inner_product: bool
) -> None:
    """The loss is at most that of any one temperature for all queries."""
    world = Warm(spread, inner_product)
    logits, scores = world.begin(), world.centroid_scores()
    powers = range(module._SHARPEST + 1)
    losses = [find_loss(2.0**power * scores, world.owner) for power in powers]
    got = find_loss(logits, world.owner)
    assert got <= min(losses) + 1e-3
    assert got < 0.9 * max(losses)
    if inner_product:  # distances mean nothing there
        right = (2.0 ** int(np.argmin(losses)) * scores).astype(np.float32)
        np.testing.assert_allclose(
            log_scores(logits, "softmax"), log_scores(right, "softmax"), rtol=1e-3, atol=1e-3
        )


def test_all_queries_choose_the_temperature() -> None:
    """The first ones are easy and call for a high temperature; the others would be lost with it."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(20, 4)).astype(np.float32)
    owner = np.arange(3000) % 20
    blur = np.where(np.arange(3000) < 1500, 0.01, 1.0)[:, None]
    queries = (centroids[owner] + blur * rng.normal(size=(3000, 4))).astype(np.float32)
    weights = draw(4, 4, 3, 20)
    weights.standardize(queries)
    weights.start_from_centroids(centroids, False, queries, want(owner), soften=False)
    logits = score(weights, queries)
    best = min(find_loss(2.0**power * logits, owner) for power in range(-12, 3))
    assert find_loss(logits, owner) == pytest.approx(best)


def test_queries_far_from_all_centroids_are_less_sure() -> None:
    """Half of the centroids are 30 times as far apart: no one temperature suits both."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(40, 4))
    centroids[20:] *= 30
    owner = np.repeat(np.arange(40), 20)
    scale = np.where(owner < 20, 1, 30)[:, None]
    queries = (centroids[owner] + 0.5 * scale * rng.normal(size=(800, 4))).astype(np.float32)
    weights = draw(4, 4, 3, 40)
    weights.standardize(queries)
    weights.start_from_centroids(centroids.astype(np.float32), False, queries, want(owner))
    logits = score(weights, queries)
    squares = measure_squares(queries, centroids)
    single = min(find_loss(-(2.0**power) * squares, owner) for power in range(-30, 10))
    assert find_loss(logits, owner) < 0.7 * single
    [router] = weights.to_routers()
    right = log_scores(logits, "softmax")
    np.testing.assert_allclose(router.log_probabilities(queries), right, rtol=1e-2, atol=5e-2)


def test_the_less_queries_tell_the_lower_the_temperature() -> None:
    def sharpness(spread: float) -> float:
        likely = np.exp(log_scores(Warm(spread, False).begin(), "softmax"))
        return float(likely.max(axis=1).mean())

    assert sharpness(0.0) > 0.95
    assert sharpness(10.0) < 0.7


def test_the_start_tells_towns_of_a_large_country_apart() -> None:
    """Centroids that are close together, beside the extent of the data, need a high temperature."""
    centroids = np.array([[x, y] for x in (-50, 50) for y in range(8)], dtype=np.float32)
    owner = np.repeat(np.arange(16), 20)
    queries = centroids[owner] + np.random.default_rng(0).normal(scale=0.1, size=(320, 2))
    queries = queries.astype(np.float32)
    weights = draw(2, 2, 3, 16)
    weights.standardize(queries)
    weights.start_from_centroids(centroids, False, queries, want(owner))
    likely = np.exp(log_scores(score(weights, queries), "softmax"))
    assert likely[np.arange(320), owner].mean() > 0.9


def test_a_narrow_start_keeps_the_directions_in_which_centroids_differ() -> None:
    """Centroids on a plane: two directions score them as all five do."""
    world = Warm(1.0, True)
    flat = np.zeros_like(world.centroids)
    flat[:, [1, 3]] = world.centroids[:, [1, 3]]
    world.centroids = flat
    whole = log_scores(world.begin(), "softmax")
    world.weights = draw(5, 2, 3, 6)
    world.weights.standardize(world.queries)
    narrow = log_scores(world.begin(), "softmax")
    np.testing.assert_allclose(narrow, whole, rtol=1e-3, atol=1e-3)


def test_a_missing_second_bucket_changes_nothing() -> None:
    alone, padded = Warm(3.0, False), Warm(3.0, False)
    alone.begin()
    row, buckets, weight = want(padded.owner)
    both = np.concatenate([buckets, np.full_like(buckets, -1)], axis=1)
    padded.weights.start_from_centroids(
        padded.centroids, False, padded.queries, (row, both, weight)
    )
    assert (padded.weights.slope, padded.weights.near) == (alone.weights.slope, alone.weights.near)


# --- learning on -----------------------------------------------------------------------------


@pytest.mark.parametrize("near", [0.0, 0.5])
@pytest.mark.parametrize("rounded", [False, True])
def test_routers_are_read_in_the_scale_of_new_ones(near: float, rounded: bool) -> None:
    weights = draw(9, 4, 6, 5)
    rows = (np.random.default_rng(0).normal(size=(200, 9)) * 50 + 9).astype(np.float32)
    weights.standardize(rows)
    weights.near, weights.most, weights.slope = near, 3.0, 0.25
    router = weights.to_routers()[0]
    if rounded:
        router = router.to_int8(rows)
    again = read_routers([router], rows)
    tolerance = 0.1 if rounded else 1e-3
    right = log_scores(score(weights, rows), "softmax")
    np.testing.assert_allclose(log_scores(score(again, rows), "softmax"), right, atol=tolerance)
    assert again.linear == 4
    assert again.scale == pytest.approx(weights.scale, rel=1e-3)
    assert again.gain == weights.gain
    np.testing.assert_allclose(np.linalg.norm(again.project[:, :4], axis=0), 1, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(again.project[:, 4:], axis=0), 3 / 3**0.5, rtol=1e-3)
    np.testing.assert_allclose(again.to_routers()[0].log_probabilities(rows), right, atol=tolerance)
    if near:
        found = again.near, again.most, again.slope
        assert found == pytest.approx((near, 3.0, 0.25), rel=1e-2)
