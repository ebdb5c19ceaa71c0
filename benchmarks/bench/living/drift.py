"""Drift of queries: an index that was taught nothing records queries, and learns from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options, find_file
from bench.common import say
from bench.living.methods import TARGET, count_seconds, measure_curve
from bench.living.runbook import find_recall, find_work
from bench.living.runbooks import ROWS
from bench.living.speed import fit_index
from bench.living.tables import keep_table
from bench.living.worker import find_tenth
from bench.vectors.data import FILES, normalize, read_base, read_queries

HEAD = [
    "index",
    "recall10@10 as it stands",
    "counted us",
    "work at .95 / taught",
    "recall at the work of taught",
    "CPU s",
]


def drift(options: Options) -> None:
    """Work at .95 on queries unlike the items: taught nothing, after 4,000 recorded, taught."""
    found: dict[str, Any] = {}
    rows = 600 if options.smoke else options.rows.get("wordnet", ROWS["wordnet"])
    base = read_base(options.data, "wordnet")
    vectors = normalize(base[np.random.default_rng(0).permutation(len(base))[:rows]])
    reported, learn = read_queries(find_file(options.data, FILES["wordnet"]), "test_ood")
    queries, learn = normalize(reported.vectors), normalize(learn)
    near = find_tenth(vectors, queries)
    seconds = {}

    def keep(name: str, index: Any, began: float) -> None:
        seconds[name] = count_seconds() - began
        found[name] = measure_curve(index, queries, near)
        say(f"{name}: recall and counted ns {found[name]['at']}, {seconds[name]:.0f} CPU s")

    began = count_seconds()
    index = fit_index(options, vectors)
    index.maintain = "manual"
    keep("taught nothing", index, began)
    began = count_seconds()
    for start in range(0, len(learn), 100):
        index.record(learn[start : start + 100])
    taken = index.refresh()
    keep("after recorded queries" if taken else "after recorded queries (not taken)", index, began)
    began = count_seconds()
    keep("taught", fit_index(options, vectors, queries=learn), began)
    taught = find_work(found["taught"]["curve"], TARGET)
    table = []
    for name, each in found.items():
        recall, work = each["at"]
        ratio = find_work(each["curve"], TARGET) / taught
        equal = find_recall(each["curve"], taught)
        cells = [f"{recall:.3f}", f"{work / 1000:.1f}", f"{ratio:.2f}", f"{equal:.3f}"]
        table.append([name, *cells, f"{seconds[name]:.0f}"])
    path = Path(options.results) / "living" / "drift"
    keep_table(path, HEAD, table, items=rows, recorded=len(learn), measured=found)
