"""Networks that learn the buckets of a given partition: Neural LSH, and a linear router."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bench.paper.baselines.partition import Floats, Partition, Scores, no_parents

_BATCH = 512
_RATE, _LINEAR_RATE = 2e-3, 2e-2
_DROPOUT = 0.1


class Learned(Partition):
    """Items in buckets, which a network predicts."""

    def __init__(self, assignment: NDArray[np.int64], count: int, network: nn.Module) -> None:
        self.assignment, self.count, self.network = assignment, count, network
        self.multiplications = float(count_multiplications(network))

    def score(self, queries: Floats, temperature: float = 1.0) -> Scores:
        return no_parents(torch.log_softmax(apply(self.network, queries), dim=1).numpy())


def learn_buckets(
    items: Floats,
    assignment: NDArray[np.int64],
    near: NDArray[np.int64],
    hidden: tuple[int, ...],
    epochs: int,
    seed: int,
) -> Learned:
    """Train a network to predict the buckets of an item's neighbours, as Neural LSH does.

    The soft label of an item is the distribution of its neighbours `near` (N, j) over the buckets.
    The loss is the cross-entropy. Without hidden layers it is a linear router.
    """
    torch.manual_seed(seed)
    count = int(assignment.max()) + 1
    network = make_network(items.shape[1], hidden, count, dropout=_DROPOUT)
    targets = torch.from_numpy(assignment[near])
    points = torch.from_numpy(items)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE if hidden else _LINEAR_RATE)
    steps = epochs * -(-len(items) // _BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(points)).split(_BATCH):
            if len(rows) == 1:  # a batch norm needs two
                continue
            logs = torch.log_softmax(network(points[rows]), dim=1)
            loss = -logs.gather(1, targets[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return Learned(assignment, count, network)


def make_network(
    inputs: int, hidden: tuple[int, ...], outputs: int, dropout: float = 0.0
) -> nn.Sequential:
    """Return layers with batch norm and ReLU, and a linear one. The inputs are standardised."""
    layers: list[nn.Module] = [nn.BatchNorm1d(inputs, affine=False)]
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def apply(network: nn.Module, vectors: Floats) -> torch.Tensor:
    """Return the outputs for vectors (n, d), without dropout."""
    network.eval()
    with torch.no_grad():
        parts = [network(part) for part in torch.from_numpy(vectors).split(8192)]
    return torch.cat(parts)


def count_multiplications(network: nn.Module) -> int:
    """Return the multiplications of a query. Those of batch norm can be merged into the layers.

    Examples
    --------
    >>> count_multiplications(make_network(10, (20,), 30))
    800
    """
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return sum(layer.in_features * layer.out_features for layer in layers)
