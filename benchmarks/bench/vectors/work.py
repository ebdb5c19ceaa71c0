"""Work at a recall, beside FAISS IVFFlat at its best number of buckets, and the load bound.

*Scanned* is the number of entries read in the probed buckets; an item that is read twice counts
twice. *Exact* is the number of exact distances. *Work* is scanned + router multiplications / d:
dot products per query. The work of IVFFlat is its number of buckets plus what it scans.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np

import irli
from bench.commands import Options, find_file, make_recipe
from bench.common import print_table, say, write_json
from bench.vectors.curves import K, Point, cost_at
from bench.vectors.data import FILES, METRIC, Queries, prepare_for_faiss, read_base, read_queries
from irli.base.metrics import recall
from irli.engine.exact import exact_neighbors

RECALLS = (0.90, 0.95)
NO_BOUND = 1e6  # a slack that no bucket ever reaches
LEAST_WORK = {"pieces": 0}  # codes save time, but work counts dot products
BUCKETS = {"wordnet": 4096, "glove": 4096, "fashion": 2048}
# Tried for IVFFlat. The cheapest at each recall counts.
LISTS = {
    "wordnet": (1024, 2048, 4096),
    "glove": (2048, 4096),
    "fashion": (256, 512, 1024),
}
SMOKE_LISTS = (8, 16)
TUNED = (0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # recalls that `tune` is asked for


@dataclass
class Curve:
    """Measured points of recall against cost."""

    routing: float  # dot products of the router, whatever is scanned
    points: list[Point] = field(default_factory=list)

    def add(self, recall: float, scanned: float, exact: float) -> None:
        """Add the point of one setting."""
        self.points.append({"recall": recall, "scanned": scanned, "exact": exact})

    def at(self, target: float, what: str = "work") -> float:
        """Return a cost at a recall: "work", "scanned" or "exact"."""
        if what == "work":
            return cost_at(self.points, target, "scanned") + self.routing
        return cost_at(self.points, target, what)

    def recall_at(self, work: float) -> float:
        """Return the recall at some work."""
        along = sorted((point["scanned"] + self.routing, point["recall"]) for point in self.points)
        costs, recalls = np.transpose(along)
        return float(np.interp(np.log(work), np.log(costs), recalls))


def work(options: Options) -> None:
    """Work at recall .90 and .95, queries like and unlike the data, and what the bound costs."""
    short = options.only or (["wordnet"] if options.smoke else list(FILES))
    for name in [name for name in FILES if FILES[name].startswith(tuple(short))]:
        _measure_set(options, name)


def _measure_set(options: Options, name: str) -> None:
    path, base = find_file(options.data, FILES[name]), read_base(options.data, name)
    test, _ = read_queries(path, "test")
    asked, learn = {"test": test}, np.empty(0)
    if name != "fashion":
        asked["test_ood"], learn = read_queries(path, "test_ood")
    theirs = measure_ivf(options, name, base, asked)
    near = None if name == "glove" else _find_neighbors(name, base)
    seeds = range(1 if options.smoke else options.seeds)
    indexes = [fit(options, name, base, neighbors=near, seed=seed) for seed in seeds]
    rows = []
    for key, queries in asked.items():
        ours = [measure_irli(index, queries, list_thresholds()) for index in indexes]
        rows += _tabulate(f"{name} {key}, learned from the items", theirs[key], ours)
    if "test_ood" in asked:
        ours = [measure_tuned(index, asked["test_ood"]) for index in indexes]
        rows += _tabulate(f"{name} test_ood, as tuned on items", theirs["test_ood"], ours)
    bound = _measure_bound(options, name, base, near, indexes[0], test)
    if name == "wordnet":  # learned from some queries of test_ood, reported on others
        indexes = [
            fit(options, name, base, neighbors=near, queries=learn, seed=seed) for seed in seeds
        ]
        ours = [measure_irli(index, asked["test_ood"], list_thresholds()) for index in indexes]
        rows += _tabulate(f"{name} test_ood, learned from queries", theirs["test_ood"], ours)
    print_table(["queries", "recall", "IVFFlat work", "work", "scanned", "routing", "ratio"], rows)
    print_table(
        ["data", "max/mean", "largest", "max/mean unbounded", "lost at .90", "at .95"], [bound]
    )
    found = {"work": rows, "balance": [bound]}
    write_json(Path(options.results) / "vectors" / f"work-{name}.json", found)


def fit(
    options: Options,
    name: str,
    base: np.ndarray,
    *,
    queries: np.ndarray | None = None,
    neighbors: np.ndarray | None = None,
    **changes: Any,
) -> irli.VectorIndex:
    """Learn with the default recipe for the least work."""
    started = time.perf_counter()
    recipe = make_recipe(options, **{**LEAST_WORK, "buckets": BUCKETS[name], **changes})
    index = irli.VectorIndex(METRIC[name], recipe=recipe)
    index.fit(base, queries=queries, neighbors=neighbors)
    source = "items" if queries is None else "items and queries"
    taken = time.perf_counter() - started
    say(f"irli on {name} {changes}, learned from the {source}: {taken:.0f} s")
    return index


def _find_neighbors(name: str, base: np.ndarray) -> np.ndarray:
    """Compute the neighbours that all seeds share.

    GloVe is so large that `fit` does it for a sample, which each seed draws anew.
    """
    vectors = prepare_for_faiss(base, METRIC[name])
    return exact_neighbors(vectors, vectors, 20, METRIC[name], rows=np.arange(len(base)))


def measure_ivf(
    options: Options, name: str, base: np.ndarray, queries: dict[str, Queries]
) -> dict[str, list[Curve]]:
    """Measure IVFFlat with each number of buckets; one list of curves for each query set."""
    metric = faiss.METRIC_L2 if METRIC[name] == "l2" else faiss.METRIC_INNER_PRODUCT
    vectors = prepare_for_faiss(base, METRIC[name])
    curves: dict[str, list[Curve]] = {key: [] for key in queries}
    for lists in SMOKE_LISTS if options.smoke else LISTS[name]:
        started = time.perf_counter()
        quantizer = faiss.IndexFlat(vectors.shape[1], metric)
        index = faiss.IndexIVFFlat(quantizer, vectors.shape[1], lists, metric)
        index.cp.niter = 20
        index.train(vectors)
        index.add(vectors)
        say(f"IVFFlat {lists} on {name}: built in {time.perf_counter() - started:.0f} s")
        for key, asked in queries.items():
            prepared = prepare_for_faiss(asked.vectors, METRIC[name])
            curves[key].append(_measure_probes(index, prepared, asked.truth))
    return curves


def _measure_probes(index: Any, vectors: np.ndarray, truth: np.ndarray) -> Curve:
    curve = Curve(routing=index.nlist)
    for nprobe in np.unique(np.geomspace(1, index.nlist / 2, 40).astype(int)):
        index.nprobe = int(nprobe)
        faiss.cvar.indexIVF_stats.reset()
        _, ids = index.search(vectors, K)
        scanned = faiss.cvar.indexIVF_stats.ndis / len(vectors)
        curve.add(recall(ids, truth, K), scanned, scanned)
        if curve.points[-1]["recall"] > 0.97:
            break
    return curve


def measure_irli(
    index: irli.VectorIndex, queries: Queries, settings: list[dict[str, Any]]
) -> Curve:
    """Measure an index of ours in each of the settings."""
    routing = index.stats()["router_multiplications"] / queries.vectors.shape[1]
    curve = Curve(routing)
    for setting in settings:
        found = index.explain(queries.vectors, K, **setting)
        share = recall(found.ids, queries.truth, K)
        curve.add(share, float(found.scanned.mean()), float(found.candidates.mean()))
    return curve


def measure_tuned(index: irli.VectorIndex, queries: Queries) -> Curve:
    """Measure an index as `tune` leaves it, for several recalls that it is asked for.

    Strange queries then probe by centroids, too. For these, one product a bucket is added.
    """
    routing = index.stats()["router_multiplications"] / queries.vectors.shape[1]
    curve, buckets = Curve(routing), index.stats()["buckets"]
    for target in TUNED:
        index.tune(recall=target)
        found = index.explain(queries.vectors, K)
        scanned = found.scanned + found.strange * buckets
        share = recall(found.ids, queries.truth, K)
        curve.add(share, float(scanned.mean()), float(found.candidates.mean()))
    index.tune()
    return curve


def list_thresholds(low: float = 2e-5, high: float = 0.15, count: int = 14) -> list[dict[str, Any]]:
    """Return settings from few to many probed buckets."""
    return [{"threshold": float(t)} for t in np.geomspace(high, low, count)]


def find_least(curves: list[Curve], target: float, what: str = "work") -> float:
    """Return the least cost over several curves, or NaN if none reaches the recall."""
    costs = [curve.at(target, what) for curve in curves]
    return min((cost for cost in costs if cost == cost), default=float("nan"))


def format_mean(values: list[float]) -> str:
    """Return mean and spread as text."""
    return f"{np.mean(values):.0f} ± {np.std(values):.0f}"


def _tabulate(key: str, theirs: list[Curve], ours: list[Curve]) -> list[list[Any]]:
    rows = []
    for target in RECALLS:
        least = find_least(theirs, target)
        spent = [curve.at(target) for curve in ours]
        scanned = [curve.at(target, "scanned") for curve in ours]
        cells = [f"{least:.0f}", format_mean(spent), format_mean(scanned)]
        cells += [f"{ours[0].routing:.0f}", f"{np.mean(spent) / least:.2f}"]
        rows.append([key, target, *cells])
    return rows


def _measure_bound(
    options: Options,
    name: str,
    base: np.ndarray,
    near: np.ndarray | None,
    bounded: irli.VectorIndex,
    test: Queries,
) -> list[Any]:
    """Compare with an index without a bound on the loads, at equal work."""
    free = fit(options, name, base, neighbors=near, slack=NO_BOUND)
    stats, loads = bounded.stats(), bounded.stats()["loads"][0]
    limit = int(np.ceil(bounded.recipe.slack * stats["entries"] / stats["buckets"]))
    ours, theirs = (measure_irli(index, test, list_thresholds()) for index in (bounded, free))
    spent = [theirs.at(target) for target in RECALLS]
    lost = [theirs.recall_at(each) - ours.recall_at(each) for each in spent]
    return [
        name,
        f"{loads['max_over_mean']:.2f}",
        f"{loads['max']} <= {limit}",
        f"{free.stats()['loads'][0]['max_over_mean']:.2f}",
        *(f"{value:+.4f}" for value in lost),
    ]
