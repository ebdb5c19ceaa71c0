"""The indexes that go through a runbook: ours, and the peers with the settings they stand at.

It imports only NumPy, since the peers' environment imports it too.
"""

from __future__ import annotations

import resource
import time
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

K = 10
TARGET = 0.95
FACTORS = tuple(2.0 ** (step / 2) for step in range(-10, 11))  # of thresholds, for a curve


def count_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has started and ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


class Method(ABC):
    """An index of unit vectors that changes. Near is the angle, or the inner product."""

    package: ClassVar[str] = ""  # on PyPI, that it needs

    def __init__(self, dim: int, most: int) -> None:
        self.dim, self.most = dim, most
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make the index, for at most `self.most` items."""

    @abstractmethod
    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """Add items."""

    @abstractmethod
    def delete(self, ids: np.ndarray) -> None:
        """Remove items."""

    @abstractmethod
    def search(self, queries: np.ndarray) -> np.ndarray:
        """Return the ids (n, K) of the nearest items, padded with -1."""

    def learn(self, live: np.ndarray, ids: np.ndarray) -> None:
        """Learn from the live items, before they are inserted. Most need not."""
        return

    def widen(self) -> None:
        """Search a little wider: until the recall is `TARGET` on other queries, once."""
        raise StopIteration

    def maintain(self) -> None:
        """Do what is due to keep the index good. For most, nothing is."""
        return

    def describe(self) -> dict[str, Any]:
        """Return what else is known of the index as it stands."""
        return {}

    def compare(self, queries: np.ndarray, near: np.ndarray) -> dict[str, Any]:
        """Return what is known beside a fresh build; `near` (n,) is how near the tenth item is."""
        return {}


class Irli(Method):
    """Our index, which maintains itself: here at once, so that its CPU time can be told."""

    package = "irli"

    def prepare(self) -> None:
        """Make the index."""
        import irli

        self.index: Any = irli.VectorIndex("cosine", dim=self.dim, recipe=make_recipe())
        self.index.maintain = "manual"

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """Add items."""
        self.index.add(vectors, ids=ids)

    def delete(self, ids: np.ndarray) -> None:
        """Remove items."""
        self.index.remove(ids)

    def search(self, queries: np.ndarray) -> np.ndarray:
        """Return the nearest ids."""
        found: np.ndarray = self.index.search(queries, K, threads=1).ids
        return found

    def maintain(self) -> None:
        """Do what would begin in the background after a change."""
        maintenance = self.index._maintained()
        maintenance._next = 0.0  # no pause after learning: no time passes in a runbook
        maintenance.look()
        maintenance.wait()
        if maintenance.failure:
            raise RuntimeError(maintenance.failure)

    def describe(self) -> dict[str, Any]:
        """Return the balance, and how often the routers have learned."""
        part = self.index._fitted()
        loads = part.loads()
        return {
            "balance": max(float(load.max() / max(load.mean(), 1e-9)) for load in loads),
            "buckets": len(loads[0]),
            "refreshes": part.contents.learned.refreshes,
        }

    def compare(self, queries: np.ndarray, near: np.ndarray) -> dict[str, Any]:
        """Return recall and counted work as the index stands, and along its thresholds."""
        return measure_curve(self.index, queries, near)


class IrliManual(Irli):
    """Our index, which learns once, from the first items, and is then left alone."""

    def maintain(self) -> None:
        """Learn when there are as many items as the peers learn from."""
        if self.index.recipe.name == "exact" and len(self.index) >= self.most // 4:
            self.index.refresh()


def make_recipe() -> Any:
    """Return the recipe: that of `fit`, also where comparing all items would do."""
    import os

    import irli
    from bench.smoke import SHORT

    return irli.recipe("default", **(SHORT["default"] if os.environ.get("BENCH_SMOKE") else {}))


def measure_curve(index: Any, queries: np.ndarray, near: np.ndarray) -> dict[str, Any]:
    """Return recall and counted nanoseconds as the index stands, and along its thresholds.

    Along the thresholds no query counts as strange: what these do depends on other settings.
    """
    from dataclasses import replace

    part, defaults = index._fitted(), index.defaults
    plain = replace(defaults, strange=None)
    return {
        "stands": _measure(part, defaults, 1.0, queries, near),
        "at": _measure(part, plain, 1.0, queries, near),
        "curve": sorted(
            (_measure(part, plain, factor, queries, near) for factor in FACTORS),
            key=lambda point: point[1],
        ),
    }


def _measure(
    part: Any, defaults: Any, factor: float, queries: np.ndarray, near: np.ndarray
) -> list[float]:
    from dataclasses import replace

    from irli.vectors.cost import count_query_work

    points = tuple(each._replace(threshold=each.threshold * factor) for each in defaults.points)
    plan = part.make_plan(K, replace(defaults, points=points))
    _, rows, work = part.searcher.measure(queries, plan)
    found = np.full(rows.shape, -2.0)
    for i, query in enumerate(queries):
        there = rows[i] >= 0
        found[i, there] = part.take(rows[i, there].astype(np.int64)) @ query
    recall = float((found >= near[:, None] - 1e-5).mean())
    return [recall, float(count_query_work(part.searcher.sizes, work).mean())]


class FaissIvf(Method):
    """FAISS IVFFlat: items go to the nearest centroid, learned once from the first items."""

    package = "faiss-cpu"

    def prepare(self) -> None:
        """Make the index."""
        self.faiss: Any = import_module("faiss")
        self.faiss.omp_set_num_threads(1)
        lists = 1 << int(np.log2(4 * np.sqrt(self.most)))
        flat = self.faiss.IndexFlatIP(self.dim)
        self.index = self.faiss.IndexIVFFlat(flat, self.dim, lists, self.faiss.METRIC_INNER_PRODUCT)
        self.keep = flat

    def learn(self, live: np.ndarray, ids: np.ndarray) -> None:
        """Learn the centroids."""
        self.index.train(live)

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """Add items."""
        self.index.add_with_ids(vectors, ids)

    def delete(self, ids: np.ndarray) -> None:
        """Remove items."""
        self.index.remove_ids(self.faiss.IDSelectorBatch(ids))

    def search(self, queries: np.ndarray) -> np.ndarray:
        """Return the nearest ids."""
        found: np.ndarray = self.index.search(queries, K)[1]
        return found

    def widen(self) -> None:
        """Probe more lists."""
        if self.index.nprobe >= self.index.nlist:
            raise StopIteration
        self.index.nprobe = int(1.25 * self.index.nprobe) + 1

    def describe(self) -> dict[str, Any]:
        """Return the balance."""
        sizes = np.array([self.index.get_list_size(i) for i in range(self.index.nlist)])
        return {"balance": float(sizes.max() / max(sizes.mean(), 1e-9)), "buckets": len(sizes)}


class Hnsw(Method):
    """A graph of hnswlib, in which added items take the places of removed ones."""

    package = "hnswlib"

    def __init__(self, dim: int, most: int, built: int = 200) -> None:
        self.built = built  # how wide it looks for neighbours of an item that is added
        super().__init__(dim, most)

    def prepare(self) -> None:
        """Make the index."""
        self.index: Any = import_module("hnswlib").Index(space="ip", dim=self.dim)
        self.index.init_index(
            max_elements=self.most, ef_construction=self.built, M=16, allow_replace_deleted=True
        )
        self.index.set_num_threads(1)
        self.ef = K
        self.index.set_ef(self.ef)

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """Add items."""
        self.index.add_items(vectors, ids, num_threads=1, replace_deleted=True)

    def delete(self, ids: np.ndarray) -> None:
        """Mark items as removed."""
        for id in ids.tolist():
            self.index.mark_deleted(id)

    def search(self, queries: np.ndarray) -> np.ndarray:
        """Return the nearest ids."""
        try:
            found: np.ndarray = self.index.knn_query(queries, K, num_threads=1)[0]
        except RuntimeError:  # a query found fewer than ten
            return np.full((len(queries), K), -1)
        return found.astype(np.int64)

    def widen(self) -> None:
        """Look at more items."""
        if self.ef > 4000:
            raise StopIteration
        self.ef = int(1.25 * self.ef) + 1
        self.index.set_ef(self.ef)


class Svs(Method):
    """A Vamana graph of SVS: removed items are dropped from it when a fifth of it is removed."""

    package = "scalable-vs"

    def prepare(self) -> None:
        """Wait for the first items: the graph cannot be without any."""
        self.index: Any = None

    def learn(self, live: np.ndarray, ids: np.ndarray) -> None:
        """Build the graph from the first items."""
        svs = import_module("svs")
        parameters = svs.VamanaBuildParameters(
            alpha=0.95, graph_max_degree=32, window_size=100, prune_to=28
        )
        self.index = svs.DynamicVamana.build(
            parameters, live, ids.astype(np.uint64), svs.DistanceType.MIP, num_threads=1
        )
        self.window, self.gone, self.built = K, 0, True
        self.index.search_window_size = self.window

    def insert(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """Add items."""
        if self.built:  # these are what the graph was built from
            self.built = False
            return
        self.index.add(vectors, ids.astype(np.uint64))

    def delete(self, ids: np.ndarray) -> None:
        """Remove items."""
        self.index.delete(ids.astype(np.uint64))
        self.gone += len(ids)

    def maintain(self) -> None:
        """Take removed items out of the graph."""
        if self.index is not None and self.gone > 0.2 * self.index.size:
            self.index.consolidate()
            self.index.compact(1000)
            self.gone = 0

    def search(self, queries: np.ndarray) -> np.ndarray:
        """Return the nearest ids."""
        found: np.ndarray = self.index.search(queries, K)[0]
        return found.astype(np.int64)

    def widen(self) -> None:
        """Look at more items."""
        if self.window > 4000:
            raise StopIteration
        self.window = int(1.25 * self.window) + 1
        self.index.search_window_size = self.window


METHODS: dict[str, type[Method]] = {
    "irli": Irli,
    "irli-manual": IrliManual,
    "faiss-ivf": FaissIvf,
    "hnswlib": Hnsw,
    "svs": Svs,
}
