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
    say,
    table,
    thresholds,
)

import irli

NO_BOUND = 1e6  # a slack that no bucket ever reaches


def fit(
    name: str, base: np.ndarray, queries: np.ndarray | None = None, **changes: Any
) -> irli.VectorIndex:
    """Learn an index with the default recipe."""
    started = time.perf_counter()
    recipe = irli.recipe("default", **changes)
    index = irli.VectorIndex(METRIC[name], recipe=recipe).fit(base, queries=queries)
    say(f"irli on {name}, {changes}: built in {time.perf_counter() - started:.0f} s")
    return index


def out_of_distribution(data: Path, seeds: int) -> None:
    """Bar 1: queries unlike the data, learned from 4,000 of them, reported on 1,000 others."""
    base, ood = load(data, "wordnet", "test_ood")
    taught, asked = ood[:4000], ood[4000:]
    yardstick = ivf_curves("wordnet", base, {"ood": asked})["ood"]
    indexes = [fit("wordnet", base, taught.vectors, seed=seed) for seed in range(seeds)]
    ours = [irli_curve(index, asked, thresholds()) for index in indexes]
    _compare("ood", {"wordnet test_ood": (yardstick, ours)})


def in_distribution(data: Path, seeds: int, names: list[str]) -> None:
    """Bar 2: queries like the data; GloVe's out-of-distribution queries are shown beside."""
    results = {}
    for name in names:
        base, test = load(data, name)
        asked = {"test": test[:5000]}
        if name == "glove":
            asked["test_ood"] = load(data, name, "test_ood")[1]
        yardstick = ivf_curves(name, base, asked)
        indexes = [fit(name, base, seed=seed) for seed in range(seeds)]
        for key, queries in asked.items():
            ours = [irli_curve(index, queries, thresholds()) for index in indexes]
            results[f"{name} {key}"] = (yardstick[key], ours)
    _compare("in-distribution", results)


def _compare(bar: str, results: dict[str, tuple[list[Curve], list[Curve]]]) -> None:
    rows = []
    for key, (yardstick, ours) in results.items():
        for target in RECALLS:
            theirs = best(yardstick, target)
            work = [curve.at(target) for curve in ours]
            rows.append(
                [
                    key,
                    target,
                    f"{theirs:.0f}",
                    mean(work),
                    mean([curve.at(target, "scanned") for curve in ours]),
                    f"{ours[0].routing:.0f}",
                    f"{np.mean(work) / theirs:.2f}",
                ]
            )
    table(["queries", "recall", "IVFFlat work", "work", "scanned", "routing", "ratio"], rows)
    keep(bar, {k: [[c.__dict__ for c in side] for side in v] for k, v in results.items()})


def votes(data: Path, seeds: int) -> None:
    """Bar 2, the paper's way: R = 8, votes and aggregated scores choose what is compared."""
    base, test = load(data, "glove")
    test = test[:5000]
    yardstick = ivf_curves("glove", base, {"test": test})["test"]
    cheapest = min(yardstick, key=lambda curve: curve.at(0.90))
    theirs = cheapest.at(0.90, "scanned")
    rows = []
    changes = {"repetitions": 8, "buckets_per_item": 1, "buckets": 1024, "epochs": 4}
    indexes = [fit("glove", base, seed=seed, **changes) for seed in range(seeds)]
    for score in ("votes", "probability", "log-probability"):
        settings = [
            {"threshold": 0.002, "candidates": int(c), "score": score}
            for c in np.geomspace(200, 6400, 11)
        ]
        exact = [irli_curve(index, test, settings).at(0.90, "exact") for index in indexes]
        rows.append([score, f"{theirs:.0f}", mean(exact), f"{np.mean(exact) / theirs:.2f}"])
    table(["score", "IVFFlat scanned at .90", "exact at .90", "ratio"], rows)
    keep("votes", {"rows": rows})


def balance(data: Path) -> None:
    """Bar 3: what the bound on the load holds, and what it costs."""
    rows = []
    for name in METRIC:
        base, test = load(data, name)
        test = test[:3000]
        bounded, free = fit(name, base), fit(name, base, slack=NO_BOUND)
        summary = bounded.stats()["loads"][0]
        limit = np.ceil(
            bounded.recipe.slack * bounded.stats()["entries"] / summary_buckets(bounded)
        )
        curves = [irli_curve(index, test, thresholds()) for index in (bounded, free)]
        lost = {
            t: _recall_at_work(curves[1], curves[1].at(t))
            - _recall_at_work(curves[0], curves[1].at(t))
            for t in RECALLS
        }
        rows.append(
            [
                name,
                f"{summary['max_over_mean']:.2f}",
                f"{summary['max']} <= {limit:.0f}",
                f"{free.stats()['loads'][0]['max_over_mean']:.2f}",
                *(f"{lost[t]:+.4f}" for t in RECALLS),
            ]
        )
    table(["data", "max/mean", "largest", "max/mean without bound", "lost at .90", "at .95"], rows)
    keep("balance", {"rows": rows})


def summary_buckets(index: irli.VectorIndex) -> int:
    """Return B."""
    return int(index.stats()["buckets"])


def _recall_at_work(curve: Curve, work: float) -> float:
    order = np.argsort(curve.scanned)
    total = np.log(np.array(curve.scanned)[order] + curve.routing)
    return float(np.interp(np.log(work), total, np.array(curve.recall)[order]))


__all__ = ["balance", "in_distribution", "out_of_distribution", "votes", "Queries"]
