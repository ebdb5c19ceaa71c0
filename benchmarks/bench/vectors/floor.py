"""What it costs ordinary queries that strange ones are looked out for."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np

import irli
from bench.commands import Options, find_file, make_recipe
from bench.common import report_table, time_least
from bench.vectors.curves import K
from bench.vectors.data import FILES
from irli.base.vector_files import read_vectors
from irli.vectors.parameters import SearchParameters

BATCH, SINGLE, ROUNDS = 5000, 1000, 7
HEAD = ["data", "recall10@10", "without", "time of a batch, x", "of single queries, x"]


def floor(options: Options) -> None:
    """CPU time and recall of queries like the items, as tuned and without strange queries."""
    folder, rows = Path(options.results) / "vectors", []
    for name in ("wordnet",) if options.smoke else ("glove", "wordnet"):
        path = find_file(options.data, FILES[name])
        read = (np.array(read_vectors(path, key=key)) for key in ("train", "test", "neighbors"))
        base, queries, truth = read
        queries, truth = queries[:BATCH], truth[:BATCH, :K]
        built = folder / "indexes" / Path(FILES[name]).stem / "irli"  # by `compare` or `filters`
        if built.exists():
            index = irli.load(built, mmap=False)
        else:
            index = irli.VectorIndex("cosine", recipe=make_recipe(options)).fit(base)
        ways = (index.defaults, _forget_strange(index.defaults))
        # In turns, so that a slow minute of the machine hits both.
        times = [_time(index, way, queries) for _ in range(ROUNDS) for way in ways]
        batch, single = np.array(times).reshape(ROUNDS, 2, 2).min(axis=0).T
        recalls = [f"{_measure(index, way, queries, truth):.4f}" for way in ways]
        ratios = [f"{one[0] / one[1]:.3f}" for one in (batch, single)]
        rows.append([name, *recalls, *ratios])
    report_table(folder / "floor.json", HEAD, rows)


def _forget_strange(tuned: SearchParameters) -> SearchParameters:
    return dataclasses.replace(tuned, strange=None)


def _time(index: irli.VectorIndex, way: SearchParameters, queries: np.ndarray) -> list[float]:
    """Return the CPU seconds of a batch, and of single queries."""
    vars(index)["defaults"] = way

    def ask_each() -> None:
        for query in queries[:SINGLE]:
            index.search(query, K, threads=1)

    def ask_all() -> None:
        index.search(queries, K, threads=1)

    return [time_least(ask, 1, time.process_time) for ask in (ask_all, ask_each)]


def _measure(
    index: irli.VectorIndex, way: SearchParameters, queries: np.ndarray, truth: np.ndarray
) -> float:
    vars(index)["defaults"] = way
    found = index.search(queries, K, threads=1).ids
    hits = (found[:, :, None] == truth[:, None, :]).any(axis=2)
    return float(hits.mean())
