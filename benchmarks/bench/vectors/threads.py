"""The gain of a second thread."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import irli
from bench.commands import Options, find_file, make_recipe
from bench.common import report_table, time_least
from bench.vectors.data import FILES
from irli.base.vector_files import read_vectors

BATCH = 10_000


def _read(options: Options, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the items and all queries of a data set."""
    path = find_file(options.data, FILES[name])
    return np.array(read_vectors(path, key="train")), np.array(read_vectors(path, key="test"))


def threads(options: Options) -> None:
    """A batch of 10,000 queries on one thread and on two."""
    rows = []
    for name in ("glove", "wordnet"):
        base, queries = _read(options, name)
        batch = np.resize(queries, (1000 if options.smoke else BATCH, base.shape[1]))
        recipe = make_recipe(options, epochs=1, epoch_size=8192, training_points=2048)
        index = irli.VectorIndex("cosine", recipe=recipe).fit(base)
        index.search(batch[:100])
        seconds = {1: [], 2: []}
        for _ in range(5):  # in turns, so that a slow minute of the machine hits both
            for count, times in seconds.items():
                times.append(_time_batch(index, batch, count))
        one, two = (len(batch) / min(times) for times in seconds.values())
        rows.append([name, f"{one:.0f}", f"{two:.0f}", f"{two / one:.2f}"])
    head = ["data", "queries/s, 1 thread", "2 threads", "ratio"]
    report_table(Path(options.results) / "vectors" / "threads.json", head, rows)


def _time_batch(index: irli.VectorIndex, batch: np.ndarray, count: int) -> float:
    return time_least(lambda: index.search(batch, threads=count), 1, time.perf_counter)
