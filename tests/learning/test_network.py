"""The router while it learns: heads, warm start, losses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from planted import clusters
from torch import nn

from irli.base.types import Rows
from irli.learning import network as module
from irli.learning.batches import Inputs
from irli.learning.network import LOSS, Pairs, RouterNetwork, softmax_loss

# --- heads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_heads_are_scored_alike_as_routers_and_loaded_again(sparse: bool) -> None:
    torch.manual_seed(0)
    network = RouterNetwork(9, 0, 6, 5, heads=3, sparse=sparse)
    rng = np.random.default_rng(0)
    rows: Rows = rng.normal(size=(20, 9)).astype(np.float32)
    if sparse:
        rows = sp.csr_array(rows * (rng.random(rows.shape) < 0.4))
    network.standardize(rows)
    batch = Inputs(rows).take(np.arange(20))
    with torch.no_grad():
        logits = network(batch)
        assert logits.shape == (20, 3, 5)
        for head in range(3):
            torch.testing.assert_close(network.score(batch, head), logits[:, head])
        right = torch.log_softmax(logits, dim=2).numpy()
        routers = network.to_routers()
        again = RouterNetwork(9, 0, 6, 5, heads=3, sparse=sparse)
        again.load_routers(routers)
        torch.testing.assert_close(again(batch), logits, rtol=1e-4, atol=1e-4)
    for head, router in enumerate(routers):
        np.testing.assert_allclose(
            router.log_probabilities(rows), right[:, head], rtol=1e-4, atol=1e-4
        )
        assert router.project is routers[0].project


def test_a_linear_part_is_folded_into_the_router() -> None:
    torch.manual_seed(0)
    network = RouterNetwork(9, 4, 6, 5)
    rows = (np.random.default_rng(0).normal(size=(20, 9)) * 50 + 9).astype(np.float32)
    network.standardize(rows)
    with torch.no_grad():
        right = torch.log_softmax(network(torch.from_numpy(rows))[:, 0], dim=1).numpy()
    [router] = network.to_routers()
    assert router.linear == 4
    np.testing.assert_allclose(router.log_probabilities(rows), right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("block", [3, 65_536])
def test_inputs_are_centred_and_of_unit_length(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = (np.random.default_rng(0).normal(size=(20, 4)) * 7 + 100).astype(np.float32)
    network = RouterNetwork(4, 0, 6, 5)
    network.standardize(rows)
    inside = (torch.from_numpy(rows) - network.centre) / network.scale
    torch.testing.assert_close(inside.mean(dim=0), torch.zeros(4), rtol=0, atol=1e-5)
    assert float(inside.square().sum(dim=1).mean()) == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_inputs_of_zeros_have_a_scale(sparse: bool) -> None:
    zeros: Rows = np.zeros((5, 4), dtype=np.float32)
    network = RouterNetwork(4, 0, 6, 5, sparse=sparse)
    network.standardize(sp.csr_array(zeros) if sparse else zeros)
    assert float(network.scale) == 1.0


def test_a_network_takes_inputs_as_they_are() -> None:
    torch.manual_seed(0)
    network = RouterNetwork(9, 0, 6, 5)
    rows = (np.random.default_rng(0).normal(size=(20, 9)) * 50 + 9).astype(np.float32)
    batch = torch.from_numpy(rows)
    assert isinstance(network.hidden, nn.Linear)
    with torch.no_grad():
        hidden = torch.relu(batch @ network.hidden.weight.T + network.hidden.bias)
        logits = hidden @ network.out.weight.T + network.out.bias
        torch.testing.assert_close(network(batch)[:, 0], logits)
    [router] = network.to_routers()
    right = torch.log_softmax(logits, dim=1).numpy()
    np.testing.assert_allclose(router.log_probabilities(rows), right, rtol=1e-3, atol=1e-3)


# --- the warm start --------------------------------------------------------------------------


class Warm:
    """Queries around centroids that want the items of one bucket each, or of a few."""

    def __init__(self, spread: float, inner_product: bool) -> None:
        made = clusters(20, 6, dim=5, spread=0.3, seed=2)
        self.centroids = torch.from_numpy(made.centres)
        noise = np.random.default_rng(1).normal(size=made.points.shape)
        self.queries = (made.points + spread * noise).astype(np.float32)
        self.pairs = Pairs(
            row=torch.arange(len(self.queries)),
            bucket=torch.from_numpy(made.owner)[:, None],
            weight=torch.ones(len(self.queries)),
        )
        torch.manual_seed(0)
        self.inner_product = inner_product
        self.network = RouterNetwork(5, 5, 3, 6)
        self.network.standardize(self.queries)

    def begin(self) -> torch.Tensor:
        """Return the logits after the warm start."""
        batch = torch.from_numpy(self.queries)
        self.network.warm_start(self.centroids, self.inner_product, self.pairs, batch)
        with torch.no_grad():
            return self.network(batch)[:, 0]

    def centroid_scores(self) -> torch.Tensor:
        """The scores at temperature 1 by the definition: q c, or -|q - c|^2 / 2."""
        q = (torch.from_numpy(self.queries) - self.network.centre) / self.network.scale
        c = (self.centroids - self.network.centre) / self.network.scale
        return q @ c.T if self.inner_product else -torch.cdist(q, c).square() / 2


@pytest.mark.parametrize("inner_product", [False, True])
@pytest.mark.parametrize("spread", [0.0, 3.0, 10.0])
def test_the_warm_start_takes_the_temperature_that_explains_most(
    spread: float, inner_product: bool
) -> None:
    """The loss is at most that of any one temperature for all queries."""
    world = Warm(spread, inner_product)
    logits, scores = world.begin(), world.centroid_scores()
    powers = range(module._SHARPEST + 1)
    losses = [float(softmax_loss(2.0**power * scores, world.pairs)) for power in powers]
    got = float(softmax_loss(logits, world.pairs))
    assert got <= min(losses) + 1e-3
    assert got < 0.9 * max(losses)
    if inner_product:  # distances mean nothing there
        right = torch.log_softmax(2.0 ** int(np.argmin(losses)) * scores, dim=1)
        torch.testing.assert_close(torch.log_softmax(logits, dim=1), right, rtol=1e-3, atol=1e-3)


def test_all_queries_choose_the_temperature() -> None:
    """The first ones are easy and call for a high temperature; the others would be lost with it."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(20, 4)).astype(np.float32)
    owner = np.arange(3000) % 20
    blur = np.where(np.arange(3000) < 1500, 0.01, 1.0)[:, None]
    batch = torch.from_numpy((centroids[owner] + blur * rng.normal(size=(3000, 4))).astype("f4"))
    network = RouterNetwork(4, 4, 3, 20)
    network.standardize(batch.numpy())
    pairs = Pairs(torch.arange(3000), torch.from_numpy(owner)[:, None], torch.ones(3000))
    network.warm_start(torch.from_numpy(centroids), False, pairs, batch, soften=False)
    with torch.no_grad():
        logits = network(batch)[:, 0]
    best = min(float(softmax_loss(2.0**power * logits, pairs)) for power in range(-12, 3))
    assert float(softmax_loss(logits, pairs)) == pytest.approx(best)


def test_queries_far_from_all_centroids_are_less_sure() -> None:
    """Half of the centroids are 30 times as far apart: no one temperature suits both."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(40, 4))
    centroids[20:] *= 30
    owner = np.repeat(np.arange(40), 20)
    scale = np.where(owner < 20, 1, 30)[:, None]
    queries = (centroids[owner] + 0.5 * scale * rng.normal(size=(800, 4))).astype(np.float32)
    batch = torch.from_numpy(queries)
    network = RouterNetwork(4, 4, 3, 40)
    network.standardize(queries)
    pairs = Pairs(torch.arange(800), torch.from_numpy(owner)[:, None], torch.ones(800))
    network.warm_start(torch.from_numpy(centroids.astype(np.float32)), False, pairs, batch)
    with torch.no_grad():
        logits = network(batch)[:, 0]
        distances = torch.cdist(batch.double(), torch.from_numpy(centroids)).square()
        single = min(
            float(softmax_loss(-(2.0**power) * distances, pairs)) for power in range(-30, 10)
        )
        assert float(softmax_loss(logits, pairs)) < 0.7 * single
        right = torch.log_softmax(logits, dim=1).numpy()
    [router] = network.to_routers()
    np.testing.assert_allclose(router.log_probabilities(queries), right, rtol=1e-2, atol=5e-2)


def test_the_less_queries_tell_the_lower_the_temperature() -> None:
    def sharpness(spread: float) -> float:
        return float(torch.softmax(Warm(spread, False).begin(), dim=1).amax(dim=1).mean())

    assert sharpness(0.0) > 0.95
    assert sharpness(10.0) < 0.7


def test_the_warm_start_tells_towns_of_a_large_country_apart() -> None:
    """Centroids that are close together, beside the extent of the data, need a high temperature."""
    centroids = np.array([[x, y] for x in (-50, 50) for y in range(8)], dtype=np.float32)
    owner = np.repeat(np.arange(16), 20)
    queries = centroids[owner] + np.random.default_rng(0).normal(scale=0.1, size=(320, 2))
    batch = torch.from_numpy(queries.astype(np.float32))
    network = RouterNetwork(2, 2, 3, 16)
    network.standardize(batch.numpy())
    pairs = Pairs(torch.arange(320), torch.from_numpy(owner)[:, None], torch.ones(320))
    network.warm_start(torch.from_numpy(centroids), False, pairs, batch)
    with torch.no_grad():
        likely = torch.softmax(network(batch)[:, 0], dim=1)
    assert float(likely[torch.arange(320), owner].mean()) > 0.9


def test_a_narrow_warm_start_keeps_the_directions_in_which_centroids_differ() -> None:
    """Centroids on a plane: two directions score them as all five do."""
    world = Warm(1.0, True)
    flat = torch.zeros_like(world.centroids)
    flat[:, [1, 3]] = world.centroids[:, [1, 3]]
    world.centroids = flat
    whole = torch.log_softmax(world.begin(), dim=1)
    narrow = RouterNetwork(5, 2, 3, 6)
    narrow.standardize(world.queries)
    world.network = narrow
    torch.testing.assert_close(torch.log_softmax(world.begin(), dim=1), whole, rtol=1e-3, atol=1e-3)


def test_without_a_linear_part_there_is_nothing_to_warm() -> None:
    world = Warm(1.0, False)
    world.network = RouterNetwork(5, 0, 3, 6)
    before = world.network.out.weight.clone()
    world.begin()
    assert torch.equal(world.network.out.weight, before)


# --- losses ----------------------------------------------------------------------------------


def random_pairs(seed: int, per_item: int) -> tuple[torch.Tensor, Pairs, NDArray]:
    """Logits (7, 9) and pairs of every query; and the holds-a-relevant-item matrix."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(7, 9)) * 3)
    lengths = rng.integers(1, 6, size=7)
    row = np.repeat(np.arange(7), lengths)
    bucket = np.argsort(rng.random((len(row), 9)), axis=1)[:, :per_item]
    if per_item > 1:
        bucket[rng.random(len(row)) < 0.3, 1] = -1
    weight = rng.random(len(row)) + 0.1
    weight /= np.bincount(row, weights=weight)[row]
    holds = np.zeros((7, 9))
    for r, buckets in zip(row, bucket, strict=True):
        holds[r, buckets[buckets >= 0]] = 1
    pairs = Pairs(torch.from_numpy(row), torch.from_numpy(bucket), torch.from_numpy(weight))
    return logits, pairs, holds


@pytest.mark.parametrize("seed", range(3))
def test_softmax_is_the_cross_entropy_with_the_histogram(seed: int) -> None:
    logits, pairs, _ = random_pairs(seed, per_item=1)
    histogram = torch.zeros(7, 9, dtype=torch.float64)
    for row, bucket, weight in zip(pairs.row, pairs.bucket[:, 0], pairs.weight, strict=True):
        histogram[row, bucket] += weight
    right = nn.functional.cross_entropy(logits, histogram)
    torch.testing.assert_close(LOSS["softmax"](logits, pairs), right)


@pytest.mark.parametrize("seed", range(3))
def test_softmax_with_two_buckets_counts_either(seed: int) -> None:
    logits, pairs, _ = random_pairs(seed, per_item=2)
    p = torch.softmax(logits, dim=1)
    total = 0.0
    for row, buckets, weight in zip(pairs.row, pairs.bucket, pairs.weight, strict=True):
        total -= float(weight) * float(torch.log(sum(p[row, b] for b in buckets if b >= 0)))
    assert float(LOSS["softmax"](logits, pairs)) == pytest.approx(total / 7, rel=1e-6)


@pytest.mark.parametrize("per_item", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_binary_cross_entropies(seed: int, per_item: int) -> None:
    logits, pairs, holds = random_pairs(seed, per_item)
    z = logits.numpy()
    for name, p in (
        ("sigmoid-bce", 1 / (1 + np.exp(-z))),
        ("softmax-bce", np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)),
    ):
        right = -(holds * np.log(p) + (1 - holds) * np.log(1 - p)).mean()
        assert float(LOSS[name](logits, pairs)) == pytest.approx(right, rel=1e-4)


@pytest.mark.parametrize("loss", LOSS)
def test_a_relevant_bucket_learns_however_unlikely_it_is(loss: str) -> None:
    logits = torch.tensor([[30.0, 0.0, 0.0]], requires_grad=True)
    pairs = Pairs(torch.tensor([0]), torch.tensor([[1]]), torch.ones(1))
    LOSS[loss](logits, pairs).backward()
    assert logits.grad is not None
    assert logits.grad[0, 1] < -0.1


@pytest.mark.parametrize("loss", LOSS)
def test_losses_stay_finite_for_extreme_logits(loss: str) -> None:
    logits, pairs, _ = random_pairs(0, per_item=2)
    extreme = (logits * 1e4).float().requires_grad_()
    value = LOSS[loss](extreme, pairs._replace(weight=pairs.weight.float()))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(extreme.grad).all()  # type: ignore[arg-type]
