"""Networks that torch trains: their losses, and what a device is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lessons import make_network, teach
from numpy.typing import NDArray
from torch import nn

from irli.learning.network import LOSSES
from irli.learning.torch_network import LOSS, Bag, Pairs, make_pairs

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


def test_the_kernels_have_the_same_losses() -> None:
    assert tuple(LOSS) == LOSSES


# --- batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2])
def test_the_pairs_of_some_queries(copies: int) -> None:
    """For each head in turn, with weights that add up to one for each query."""
    taught = teach(heads=2, copies=copies)
    rows = np.array([7, 2, 40, 7])  # the second one wants nothing
    row, bucket, weight = (
        part.numpy() for part in make_pairs(taught.lesson, taught.assignments, rows)
    )
    right: list[tuple[int, list[int]]] = []
    for head, assignment in enumerate(taught.assignments):
        for place, query in enumerate(rows):
            low, high = taught.lesson.indptr[query : query + 2]
            for item in taught.lesson.indices[low:high]:
                right.append((2 * place + head, assignment[item].tolist()))
    assert list(zip(row.tolist(), bucket.tolist(), strict=True)) == right
    np.testing.assert_allclose(np.bincount(row, weight, 8), [1, 1, 0, 0, 1, 1, 1, 1], rtol=1e-6)


def test_sparse_batches_are_the_dense_ones() -> None:
    """The bag of features is the matrix product, empty rows included."""
    taught = teach(sparse=True)
    rows: Any = taught.lesson.queries
    rows.data[rows.indptr[4] : rows.indptr[5]] = 0
    rows.eliminate_zeros()
    network = make_network(taught.weights, "torch", sparse=True)
    picked = np.array([7, 4, 4, 29])
    bag = network._copy(rows[picked])
    assert isinstance(bag, Bag)
    with torch.no_grad():
        found = network._compute_features(bag).numpy()
    weights = taught.weights
    right = rows.toarray()[picked] / weights.scale @ weights.project + weights.shift
    np.testing.assert_allclose(found, np.maximum(right, 0), rtol=1e-4, atol=1e-5)


def test_noise_moves_each_query_by_its_own_length(monkeypatch: pytest.MonkeyPatch) -> None:
    taught = teach(noise=1.0)
    lengths = taught.lesson.noise
    assert lengths is not None
    lengths[:30] = 1e-3
    network = make_network(taught.weights, "torch")
    seen = []

    def watched(queries: torch.Tensor) -> torch.Tensor:
        seen.append(queries)
        return network._soften(queries, torch.zeros(60, 1, 7, requires_grad=True))

    monkeypatch.setattr(network, "forward", watched)
    for _ in range(200):
        network.step(taught.lesson, taught.assignments, np.arange(60), 0.0)
    off = torch.stack(seen).numpy() - np.asarray(taught.lesson.queries)
    length = np.sqrt(np.square(off).sum(axis=2).mean(axis=0))
    np.testing.assert_allclose(length, lengths, rtol=0.2)
    assert np.abs(off.mean(axis=0) / lengths[:, None]).max() < 0.15
