"""Recall against work, beside FAISS IVFFlat at its best number of buckets, and the load bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    METRIC,
    RECALLS,
    Curve,
    Queries,
    best,
    irli_curve,
    ivf_curves,
    keep,
    load,
    mean,
    prepared,
    say,
    table,
    thresholds,
)

import irli
from irli.engine.exact import exact_neighbors

NO_BOUND = 1e6  # a slack that no bucket ever reaches
# The least work, which counts multiplications: a cascade, and buckets by work instead of by time.
WORK = {"scoring": "cascade", "pieces": 0}
BUCKETS = {"wordnet": 4096, "glove": 4096, "fashion": 2048}
VOTING = {"repetitions": 8, "buckets_per_item": 1, "buckets": 1024}


def compare(data: Path, seeds: int, names: list[str]) -> None:
    """Bars 1 to 3: work against IVFFlat, queries like and unlike the data, and the load bound."""
    for name in names:
        works, bounds = [], []
        base, test = load(data, name)
        asked = {"test": test.sample(2000)}
        if name != "fashion":
            asked["test_ood"] = load(data, name, "test_ood")[1][-1000:]
        yardstick = ivf_curves(name, base, asked)
        near = _neighbors(name, base)
        indexes = [fit(name, base, neighbors=near, seed=seed) for seed in range(seeds)]
        for key, queries in asked.items():
            ours = [irli_curve(index, queries, thresholds()) for index in indexes]
            works += _rows(f"{name} {key}, learned from the base", yardstick[key], ours)
        bounds.append(_bound(name, base, near, indexes[0], asked["test"]))
        if name == "wordnet":  # bar 1: learned from 4,000 such queries, reported on others
            taught = load(data, name, "test_ood")[1][:4000].vectors
            indexes = [
                fit(name, base, neighbors=near, queries=taught, seed=seed) for seed in range(seeds)
            ]
            ours = [irli_curve(index, asked["test_ood"], thresholds()) for index in indexes]
            works += _rows(f"{name} test_ood, learned from queries", yardstick["test_ood"], ours)
        _show(works, bounds)
        keep(f"compare-{name}", {"work": works, "balance": bounds})


def fit(name: str, base: np.ndarray, **arguments: Any) -> irli.VectorIndex:
    """Learn with the default recipe for the least work; what `fit` knows goes there."""
    started = time.perf_counter()
    given = {key: arguments.pop(key, None) for key in ("queries", "neighbors")}
    recipe = irli.recipe("default", **{**WORK, "buckets": BUCKETS[name], **arguments})
    index = irli.VectorIndex(METRIC[name], recipe=recipe).fit(base, **given)
    taken = time.perf_counter() - started
    taught = "base and queries" if given["queries"] is not None else "base"
    say(f"irli on {name} {arguments}, learned from the {taught}: {taken:.0f} s")
    return index


def _neighbors(name: str, base: np.ndarray) -> np.ndarray | None:
    """Compute what all seeds share; GloVe is so large that each draws a sample of its own."""
    if name == "glove":
        return None
    rows = np.arange(len(base))
    return exact_neighbors(prepared(name, base), prepared(name, base), 20, METRIC[name], rows=rows)


def _rows(key: str, yardstick: list[Curve], ours: list[Curve]) -> list[list[Any]]:
    rows = []
    for target in RECALLS:
        theirs = best(yardstick, target)
        work = [curve.at(target) for curve in ours]
        scanned = [curve.at(target, "scanned") for curve in ours]
        ratio = f"{np.mean(work) / theirs:.2f}"
        routing = f"{ours[0].routing:.0f}"
        rows.append([key, target, f"{theirs:.0f}", mean(work), mean(scanned), routing, ratio])
    return rows


def _bound(
    name: str,
    base: np.ndarray,
    near: np.ndarray | None,
    bounded: irli.VectorIndex,
    test: Queries,
) -> list[Any]:
    """Bar 3: what the bound on the load holds, and the recall that it costs at equal work."""
    free = fit(name, base, neighbors=near, slack=NO_BOUND)
    stats, loads = bounded.stats(), bounded.stats()["loads"][0]
    limit = int(np.ceil(bounded.recipe.slack * stats["entries"] / stats["buckets"]))
    ours, theirs = (irli_curve(index, test, thresholds()) for index in (bounded, free))
    lost = [_recall_at_work(theirs, w) - _recall_at_work(ours, w) for w in map(theirs.at, RECALLS)]
    return [
        name,
        f"{loads['max_over_mean']:.2f}",
        f"{loads['max']} <= {limit}",
        f"{free.stats()['loads'][0]['max_over_mean']:.2f}",
        *(f"{value:+.4f}" for value in lost),
    ]


def _recall_at_work(curve: Curve, work: float) -> float:
    order = np.argsort(curve.scanned)
    total = np.log(np.array(curve.scanned)[order] + curve.routing)
    return float(np.interp(np.log(work), total, np.array(curve.recall)[order]))


def _show(works: list[list[Any]], bounds: list[list[Any]]) -> None:
    table(["queries", "recall", "IVFFlat work", "work", "scanned", "routing", "ratio"], works)
    table(["data", "max/mean", "largest", "max/mean unbounded", "lost at .90", "at .95"], bounds)


def votes(data: Path, seeds: int) -> None:
    """Bar 2, the paper's way: R = 8, votes and aggregated scores choose what is compared."""
    base, test = load(data, "glove")
    test = test.sample(2000)
    yardstick = ivf_curves("glove", base, {"test": test})["test"]
    compare_votes(base, test, yardstick, seeds)


def compare_votes(base: np.ndarray, test: Queries, yardstick: list[Curve], seeds: int) -> None:
    """Compare the scores by the exact distances that they need."""
    cheapest = min(yardstick, key=lambda curve: curve.at(0.90))
    theirs = cheapest.at(0.90, "scanned")
    rows = []
    indexes = [fit("glove", base, seed=seed, **VOTING) for seed in range(seeds)]
    for score in ("votes", "probability", "log-probability"):
        settings = [
            {"threshold": 0.002, "candidates": int(c), "score": score}
            for c in np.geomspace(200, 6400, 11)
        ]
        exact = [irli_curve(index, test, settings).at(0.90, "exact") for index in indexes]
        rows.append([score, f"{theirs:.0f}", mean(exact), f"{np.mean(exact) / theirs:.2f}"])
    table(["score", "IVFFlat scanned at .90", "exact at .90", "ratio"], rows)
    keep("votes", {"rows": rows})
