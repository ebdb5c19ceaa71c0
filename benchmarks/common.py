"""What the benchmarks share: data, curves of recall against work, and the FAISS yardstick.

*Scanned* is the number of entries read in the probed buckets (an item read twice counts twice),
*exact* the number of exact distances, and *work* = scanned + router multiplications / d: dot
products per query. The work of IVFFlat is its number of buckets plus what it scans.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np

import irli
from irli.base.metrics import recall
from irli.base.vector_files import read_vectors

ROOT = Path(__file__).resolve().parent
FILES = {
    "wordnet": "wordnet-minilm-384-angular.hdf5",
    "glove": "glove-6b-50-angular.hdf5",
    "fashion": "fashion-mnist-784-euclidean.hdf5",
}
METRIC = {"wordnet": "cosine", "glove": "cosine", "fashion": "l2"}
# Tried for IVFFlat; the cheapest at each recall is the yardstick.
NLISTS = {
    "wordnet": (1024, 2048, 4096),
    "glove": (2048, 4096),
    "fashion": (256, 512, 1024),
}
RECALLS = (0.90, 0.95)


@dataclass
class Queries:
    """Queries with their exact answers."""

    vectors: np.ndarray
    truth: np.ndarray

    def __getitem__(self, rows: slice | np.ndarray) -> Queries:
        return Queries(self.vectors[rows], self.truth[rows])

    def sample(self, count: int) -> Queries:
        """Draw some at random: in some files the first ones are the easiest."""
        return self[np.random.default_rng(0).permutation(len(self.vectors))[:count]]


@dataclass
class Curve:
    """Measured points of recall against cost."""

    recall: list[float]
    scanned: list[float]
    exact: list[float]
    routing: float  # dot products

    def at(self, target: float, what: str = "work") -> float:
        """Interpolate a cost at a recall."""
        cost = np.array(self.exact if what == "exact" else self.scanned)
        order = np.argsort(self.recall)
        found = np.array(self.recall)[order]
        if not found[0] <= target <= found[-1]:
            return float("nan")
        value = float(np.exp(np.interp(target, found, np.log(cost[order]))))
        return value + self.routing if what == "work" else value


def load(data: Path, name: str, queries: str = "test") -> tuple[np.ndarray, Queries]:
    """Return the base vectors and one of the query sets."""
    path = data / FILES[name]
    truth = read_vectors(path, key=queries.replace("test", "neighbors"))[:, :10]
    base, asked = read_vectors(path, key="train"), read_vectors(path, key=queries)
    return np.array(base), Queries(np.array(asked), np.array(truth, dtype=np.int64))


def ivf_curves(name: str, base: np.ndarray, queries: dict[str, Queries]) -> dict[str, list[Curve]]:
    """Measure IVFFlat with each number of buckets; one list of curves for each query set."""
    metric = faiss.METRIC_L2 if METRIC[name] == "l2" else faiss.METRIC_INNER_PRODUCT
    vectors = prepared(name, base)
    curves: dict[str, list[Curve]] = {key: [] for key in queries}
    for nlist in NLISTS[name]:
        started = time.perf_counter()
        quantizer = faiss.IndexFlat(vectors.shape[1], metric)
        index = faiss.IndexIVFFlat(quantizer, vectors.shape[1], nlist, metric)
        index.cp.niter = 20
        index.train(vectors)
        index.add(vectors)
        say(f"IVFFlat {nlist} on {name}: built in {time.perf_counter() - started:.0f} s")
        for key, asked in queries.items():
            curves[key].append(_ivf_curve(index, prepared(name, asked.vectors), asked.truth))
    return curves


def _ivf_curve(index: Any, vectors: np.ndarray, truth: np.ndarray) -> Curve:
    curve = Curve([], [], [], routing=index.nlist)
    for nprobe in np.unique(np.geomspace(1, index.nlist / 2, 40).astype(int)):
        index.nprobe = int(nprobe)
        faiss.cvar.indexIVF_stats.reset()
        _, ids = index.search(vectors, 10)
        scanned = faiss.cvar.indexIVF_stats.ndis / len(vectors)
        curve.recall.append(recall(ids, truth, 10))
        curve.scanned.append(scanned)
        curve.exact.append(scanned)
        if curve.recall[-1] > 0.97:
            break
    return curve


def irli_curve(index: irli.VectorIndex, queries: Queries, settings: list[dict[str, Any]]) -> Curve:
    """Measure an index of ours for each of the search settings."""
    routing = index.stats()["router_multiplications"] / queries.vectors.shape[1]
    curve = Curve([], [], [], routing=routing)
    for setting in settings:
        found = index.explain(queries.vectors, 10, **setting)
        curve.recall.append(recall(found.ids, queries.truth, 10))
        curve.scanned.append(float(found.scanned.mean()))
        curve.exact.append(float(found.candidates.mean()))
    return curve


def thresholds(low: float = 2e-5, high: float = 0.15, count: int = 14) -> list[dict[str, Any]]:
    """Return search settings from few to many probed buckets."""
    return [{"threshold": float(t)} for t in np.geomspace(high, low, count)]


def prepared(name: str, vectors: np.ndarray) -> np.ndarray:
    """Normalise where the metric is the angle, as FAISS needs it."""
    if METRIC[name] == "l2":
        return np.ascontiguousarray(vectors, dtype=np.float32)
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def best(curves: list[Curve], target: float, what: str = "work") -> float:
    """Return the least cost over several curves."""
    return float(np.nanmin([curve.at(target, what) for curve in curves]))


def mean(values: list[float]) -> str:
    """Format mean and spread."""
    return f"{np.mean(values):.0f} ± {np.std(values):.0f}"


def say(text: str) -> None:
    """Print at once: a benchmark takes minutes."""
    print(text, flush=True)


def table(head: list[str], rows: list[list[Any]]) -> None:
    """Print a Markdown table."""
    say("")
    for row in [head, ["---"] * len(head), *rows]:
        say("| " + " | ".join(str(cell) for cell in row) + " |")
    say("")


def keep(bar: str, findings: dict[str, Any]) -> None:
    """Write what was measured beside the scripts."""
    folder = ROOT / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{bar}.json").write_text(json.dumps(findings, indent=1, default=float) + "\n")
