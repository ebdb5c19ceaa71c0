"""Networks by the kernels and by torch, and small lessons to learn from."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.types import Rows
from irli.learning.network import Lesson, NativeNetwork, Network, Rates
from irli.learning.weights import Weights, draw_weights

LEARNERS = ("cpu", "torch")  # the devices that are tested


def make_network(
    weights: Weights,
    device: str = "cpu",
    *,
    sparse: bool = False,
    loss: str = "softmax",
    rates: Rates | None = None,
) -> Any:
    """Return a network with a copy of the weights."""
    weights, rates = deepcopy(weights), rates or Rates()
    if device == "cpu":
        return NativeNetwork(weights, sparse, loss, rates, seed=0)
    from irli.learning.torch_network import TorchNetwork

    return TorchNetwork(weights, sparse, loss, rates, "cpu", seed=0)


class Taught(NamedTuple):
    """A lesson, the buckets (N, S) of its items for each head, and weights to begin with."""

    lesson: Lesson
    assignments: list[NDArray[np.int32]]
    weights: Weights

    def learn(
        self, network: Network, rows: NDArray[np.int64], steps: int, rate: float = 1e-2
    ) -> float:
        """Take so many steps, and return the mean loss."""
        return network.learn(self.lesson, self.assignments, rows, np.full(steps, rate))


def teach(
    *,
    sparse: bool = False,
    heads: int = 1,
    copies: int = 1,
    buckets: int = 7,
    linear: int = 3,
    soften: bool = False,
    noise: float = 0.0,
    queries: int = 60,
    seed: int = 0,
) -> Taught:
    """Make queries around points that each want the items of one bucket; a few want nothing."""
    rng = np.random.default_rng(seed)
    dim, items = 9, 4 * buckets
    owner = rng.integers(buckets, size=queries)
    middles = rng.normal(size=(buckets, dim))
    dense = (middles[owner] + 0.3 * rng.normal(size=(queries, dim))).astype(np.float32)
    rows: Rows = dense
    if sparse:
        rows = sp.csr_array(dense * (rng.random(dense.shape) < 0.5))
        linear = 0
    wanted = np.zeros((queries, items), dtype=np.float32)
    for query in range(5, queries):  # the first five want nothing
        near = np.flatnonzero(np.arange(items) % buckets == owner[query])
        wanted[query, rng.choice(near, 1 + query % 3, replace=False)] = rng.random() + 0.2
    pairs: Any = sp.csr_array(wanted)
    problem: Any = SimpleNamespace(
        queries=rows,
        indptr=pairs.indptr.astype(np.int64),
        indices=pairs.indices,
        items=np.empty((items, 0)),
    )
    lengths = np.full(queries, noise, dtype=np.float32) if noise else None
    assignments = []
    for head in range(heads):
        columns = [(np.arange(items) + head) % buckets]
        for _ in range(copies - 1):
            columns.append(rng.integers(-1, buckets, size=items))
        assignments.append(np.stack(columns, axis=1).astype(np.int32))
    weights = draw_weights((dim, linear, 6), buckets, heads, sparse, rng)
    weights.standardize(rows)
    weights.out *= np.float32(3)
    if soften:
        weights.near, weights.most, weights.slope = 0.8, 2.0, 0.5
    return Taught(Lesson(problem, pairs.data, lengths), assignments, weights)
