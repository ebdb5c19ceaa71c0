"""k-means on learned features: a network that spreads the vectors evenly over a sphere.

After "Spreading vectors for similarity search" (Sablayrolles et al.). Its loss has two terms: a
point shall be nearer to a neighbour than to the one of rank 50 among the features, and the nearest
feature of each shall be far (the entropy of the features, after Kozachenko and Leonenko).
"""

from __future__ import annotations

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bench.paper.baselines.network import apply, count_multiplications, make_network
from bench.paper.baselines.partition import Floats, Partition, Scores

_BATCH = 512
_RATE = 1e-3
_NEGATIVE = 50  # the rank of the negative
_POOL = 8192  # items among which negatives are looked for, at their rank in this sample
_TINY = 1e-6


class OnFeatures(Partition):
    """A partition of the features that a network makes of the items."""

    def __init__(self, network: nn.Module, inner: Partition) -> None:
        self.network, self.inner = network, inner
        self.assignment, self.count = inner.assignment, inner.count
        self.multiplications = inner.multiplications + count_multiplications(network)
        self.opening, self.temperatures = inner.opening, inner.temperatures

    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        return self.inner.score(make_features(self.network, queries), temperature)


def learn_features(
    items: Floats,
    near: NDArray[np.int64],
    features: int,
    hidden: int,
    spread: float,
    epochs: int,
    seed: int,
) -> nn.Module:
    """Train a network (d -> features) on items (N, d) and their neighbours (N, j).

    `spread` is the weight of the entropy.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = make_network(items.shape[1], (hidden, hidden), features)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    points, rows = torch.from_numpy(items), np.arange(len(items))
    for _ in range(epochs):
        positive = near[rows, rng.integers(near.shape[1], size=len(items))]
        made = make_features(network, items)
        pool = rng.permutation(rows)[:_POOL]
        rank = max(2, _NEGATIVE * len(pool) // len(items))
        _, nearest = faiss.knn(made, made[pool], rank)
        negative = pool[nearest[:, -1]]
        network.train()
        for chosen in np.array_split(rng.permutation(rows), -(-len(items) // _BATCH)):
            both = np.concatenate([chosen, positive[chosen], negative[chosen]])
            out = nn.functional.normalize(network(points[both]))
            anchor, good, bad = out.chunk(3)
            closer = torch.relu(_distance(anchor, good) - _distance(anchor, bad)).mean()
            loss = closer - spread * _entropy(anchor)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return network


def make_features(network: nn.Module, vectors: Floats) -> Floats:
    """Return the features of vectors (n, d), of length 1."""
    return np.asarray(nn.functional.normalize(apply(network, vectors)).numpy())


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one - other).square().sum(dim=1).add(_TINY).sqrt()


def _entropy(points: torch.Tensor) -> torch.Tensor:
    """Return the mean logarithm of the distance to the nearest other point of the batch."""
    products = (points @ points.T).detach().fill_diagonal_(-2.0)
    return torch.log(_distance(points, points[products.argmax(dim=1)])).mean()
