"""Learn an index of each shape of data, and measure what it promises."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import numpy as np

from bench.commands import Options
from bench.common import RESULTS, say, write_json
from bench.guarantees.page import replace_figures, write_report
from bench.guarantees.promises import (
    FILTERS,
    SHARES,
    make_filter,
    measure_recall,
    measure_self_hits,
    measure_work,
)
from bench.guarantees.shapes import SHAPES, Shape, make_shape, make_strange_queries
from irli import VectorIndex, recipe

KS = (1, 10, 30, 100, 300, 500, 1000)
STRANGE = ("between", "noise", "far")
_QUERIES, _MANY = 500, 100  # for a k up to 10, and for more
_SELF = 10_000  # items that search for themselves


def measure(options: Options) -> None:
    """Measure every shape that has no figures yet, and write them after each one."""
    path = options.results / "guarantees" / "shapes.json"
    found = json.loads(path.read_text()) if path.exists() and not options.again else {}
    names, items, learning = options.shapes or SHAPES, options.items, recipe("default")
    if options.smoke:
        names, items, learning = ["tight clusters"], 600, recipe("default", epochs=1)
    for name in names:
        if name in found:
            continue
        shape = make_shape(name, items, _QUERIES)
        start = perf_counter()
        learned = VectorIndex(shape.metric, recipe=learning).fit(shape.base)
        seconds = perf_counter() - start
        found[name] = {"items": len(shape.base), "dim": shape.base.shape[1], "metric": shape.metric}
        found[name] |= {"fit_seconds": round(seconds, 1), "learned": measure_shape(learned, shape)}
        auto = VectorIndex(shape.metric)
        if auto.recipe.resolve(*shape.base.shape).name == "exact":
            found[name]["default"] = measure_shape(auto.fit(shape.base), shape)
        else:  # the default is to learn
            found[name]["default"] = found[name]["learned"]
        write_json(path, found)
        worst = found[name]["learned"]
        say(f"{name}: recall {worst['recall']}, self-hits {worst['self_hits']}")


def measure_shape(index: VectorIndex, shape: Shape) -> dict[str, Any]:
    """Return all figures of one index."""
    rows = np.random.default_rng(0).permutation(len(shape.base))[:_SELF]
    usual = shape.queries[:_MANY]
    work = measure_work(index, shape.queries)
    figures: dict[str, Any] = {
        "recall": {
            k: round(measure_recall(index, shape.queries if k <= 10 else usual, k), 4)
            for k in KS
            if k <= len(index)
        },
        "self_hits": 1.0 if shape.metric == "ip" else round(measure_self_hits(index, rows), 4),
        "work": round(work),
        "strange": {},
        "filters": {},
    }
    for kind in STRANGE:
        queries = make_strange_queries(shape, kind)
        recall = measure_recall(index, queries, 10)
        figures["strange"][kind] = [
            round(recall, 4),
            round(measure_work(index, queries) / work, 2),
        ]
    for kind in FILTERS:
        for share in SHARES:
            allowed = make_filter(shape, kind, share)
            recall = measure_recall(index, usual, 10, allowed)
            figures["filters"][f"{kind} {share:g}"] = round(recall, 4)
    return figures


def report(options: Options) -> None:
    """Write the table beside the figures, and into docs/guarantees.md if they are in the repo."""
    folder = options.results / "guarantees"
    text = write_report(json.loads((folder / "shapes.json").read_text()))
    (folder / "report.md").write_text(text)
    if options.results == RESULTS:
        replace_figures(text)
