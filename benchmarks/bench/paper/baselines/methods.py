"""The baselines by name, with what is tuned of each, and how each is built.

A tag 1-256 means one level of 256 buckets; 2-47 means two levels of 47, so 2,209 leaves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from bench.paper.baselines.catalyzer import OnFeatures, learn_features, make_features
from bench.paper.baselines.cross_polytope import CrossPolytope
from bench.paper.baselines.graph_cut import cut_graph
from bench.paper.baselines.kmeans import balanced_kmeans, kmeans
from bench.paper.baselines.levels import TwoLevels
from bench.paper.baselines.network import learn_buckets
from bench.paper.baselines.partition import PROBINGS, Asked, Floats, Partition, draw_curve
from bench.paper.baselines.trees import HyperplaneTree, principal_direction, random_direction
from bench.vectors.curves import Point, cost_at

Setting = dict[str, Any]
NEURAL = "Neural LSH"  # of its curves, the paper's claim speaks

_TUNED_AT = 0.90  # recall
_GRAPH = 10  # neighbours in the graph that is cut
_SOFT = 50  # neighbours that make a soft label
_LEAF = 18  # items of a leaf of two levels, as in the paper: 1.18 million / 256^2
_FEATURES = 40


@dataclass
class Planned:
    """Items (N, d), queries to tune on, and what several baselines share."""

    items: Floats
    held: Asked
    metric: str
    bins: int  # of one level
    epochs: int
    hidden: tuple[int, ...]  # widths to try
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def branches(self) -> int:
        """The buckets of each of two levels."""
        return max(2, round(math.sqrt(len(self.items) / _LEAF)))

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made under this key, or make it now."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def near(self, count: int) -> NDArray[np.int64]:
        """Return the neighbours of each item (N, count), without itself."""
        wanted = min(_SOFT, len(self.items) - 1)
        found = self.keep("near", lambda: faiss.knn(self.items, self.items, wanted + 1)[1][:, 1:])
        return np.asarray(found[:, :count])

    def cut(self, count: int, seed: int) -> NDArray[np.int64]:
        """Return a balanced cut of the neighbour graph."""
        made = self.keep(("cut", count, seed), lambda: cut_graph(self.near(_GRAPH), count, seed))
        return np.asarray(made)

    def features(self, spread: float, seed: int) -> tuple[Any, Floats]:
        """Return a network that makes features, and those of the items."""

        def learn() -> tuple[Any, Floats]:
            near, hidden = self.near(_GRAPH), self.hidden[-1]
            made = min(_FEATURES, self.items.shape[1])
            epochs = max(1, self.epochs // 2)
            network = learn_features(self.items, near, made, hidden, spread, epochs, seed)
            return network, make_features(network, self.items)

        network, features = self.keep(("features", spread, seed), learn)
        return network, features


Build = Callable[[Planned, Setting, int, int], Partition]  # levels and seed come last


def _build_kmeans(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    return _divide(kmeans, data.items, data, levels, seed)


def _build_balanced(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    return _divide(balanced_kmeans, data.items, data, levels, seed)


def _divide(
    cluster: Callable[[Floats, int, int], Partition],
    items: Floats,
    data: Planned,
    levels: int,
    seed: int,
) -> Partition:
    if levels == 1:
        return cluster(items, data.bins, seed)
    top = cluster(items, data.branches, seed)
    return TwoLevels(top, items, lambda part: cluster(part, data.branches, seed))


def _build_neural(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    count = data.bins if levels == 1 else data.branches
    cut, near = data.cut(count, seed), data.near(setting["neighbors"])
    hidden = tuple(setting["hidden"])
    top = learn_buckets(data.items, cut, near, hidden, data.epochs, seed)
    if levels == 1:
        return top
    # As in the paper, the second level is k-means: its buckets are too small for a network.
    return TwoLevels(top, data.items, lambda part: kmeans(part, data.branches, seed))


def _build_features(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    network, features = data.features(setting["spread"], seed)
    return OnFeatures(network, _divide(kmeans, features, data, levels, seed))


def _build_hash(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    shape = (data.bins,) if levels == 1 else (2 * -(-data.branches // 2),) * 2
    return CrossPolytope(data.items, shape, seed)


def _build_pca_tree(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    return HyperplaneTree(data.items, _depth(data, levels), principal_direction, seed)


def _build_random_tree(data: Planned, setting: Setting, levels: int, seed: int) -> Partition:
    return HyperplaneTree(data.items, _depth(data, levels), random_direction, seed)


def _depth(data: Planned, levels: int) -> int:
    """Return the depth of a tree with about as many leaves."""
    return round(math.log2(data.bins if levels == 1 else data.branches**2))


BUILDS: dict[str, Build] = {
    NEURAL: _build_neural,
    "linear router": _build_neural,
    "k-means": _build_kmeans,
    "balanced k-means": _build_balanced,
    "k-means on learned features": _build_features,
    "cross-polytope LSH": _build_hash,
    "PCA tree": _build_pca_tree,
    "random-projection tree": _build_random_tree,
}


def list_settings(data: Planned, name: str) -> list[Setting]:
    """Return the settings to try of a baseline."""
    if name == NEURAL:
        return [{"hidden": [width, width], "neighbors": _SOFT} for width in data.hidden]
    if name == "linear router":
        return [{"hidden": [], "neighbors": near} for near in (_GRAPH, _SOFT)]
    if name == "k-means on learned features":
        return [{"spread": spread} for spread in (0.005, 0.05)]
    return [{}]


def name_tag(data: Planned, name: str, levels: int) -> str:
    """Return the paper's tag, or the number of leaves of a tree."""
    if name.endswith("tree"):
        return f"{2 ** _depth(data, levels):,} leaves"
    return f"1-{data.bins}" if levels == 1 else f"2-{data.branches}"


def tune_baseline(data: Planned, name: str, levels: int) -> Setting:
    """Return the settings and the probing with the fewest candidates at recall .90, held-out."""
    best: tuple[float, Setting] = (math.inf, {})
    for setting in list_settings(data, name):
        partition = _build(data, name, levels, setting, seed=0)
        for probing in PROBINGS:
            for temperature in partition.temperatures:
                curve = draw_curve(partition, data.held, probing, temperature)
                candidates = cost_at(curve, _TUNED_AT, "candidates")
                if candidates < best[0]:
                    chosen = {"probing": probing, "temperature": temperature}
                    best = candidates, {"build": setting, **chosen}
    return best[1]


def measure_baseline(
    data: Planned, asked: Asked, name: str, levels: int, tuned: Setting, seed: int
) -> list[Point]:
    """Return the curve of a tuned baseline for the reported queries."""
    partition = _build(data, name, levels, tuned["build"], seed)
    return draw_curve(partition, asked, tuned["probing"], tuned["temperature"])


def _build(data: Planned, name: str, levels: int, setting: Setting, seed: int) -> Partition:
    """Build a partition, or return the one that was built for tuning."""
    key = name, levels, seed, json.dumps(setting)
    partition: Partition = data.keep(key, lambda: BUILDS[name](data, setting, levels, seed))
    return partition
