"""The way from Python to the kernel and back, for a single query."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import irli
from bench.commands import Options
from bench.common import report_table
from irli.engine.metric import ANSWER_FORM

ITEMS, DIM, K = 16, 384, 10
CALLS = 2000  # of each kind in a turn


def call(options: Options) -> None:
    """Microseconds of `search(q)` on an index of 16 items, and of the native call within it."""
    rng = np.random.default_rng(0)
    index = irli.VectorIndex().fit(rng.normal(size=(ITEMS, DIM)))
    query = rng.normal(size=DIM).astype(np.float32)
    part = index._fitted()
    native, plan, ids = part.searcher._native, part.make_plan(K, index.defaults), part.ids.values
    distances, items = np.empty(K, np.float32), np.empty(K, np.int64)
    form = ANSWER_FORM[index.metric]
    kinds: dict[str, Callable[[], object]] = {
        "search(q)": lambda: index.search(query, K),
        "native call": lambda: native.search_one(query, plan, ids, form, distances, items),
    }
    turns = 2 if options.smoke else 200
    times = {name: min(_time(work) for _ in range(turns)) for name, work in kinds.items()}
    way = times["search(q)"] - times["native call"]
    rows = [[name, f"{value:.2f}"] for name, value in [*times.items(), ("the way", way)]]
    path = Path(options.results) / "start" / "call.json"
    report_table(path, ["", "µs"], rows, microseconds=times)


def _time(work: Callable[[], object]) -> float:
    """Return the microseconds of one call, the mean of many."""
    started = time.perf_counter()
    for _ in range(CALLS):
        work()
    return 1e6 * (time.perf_counter() - started) / CALLS
