"""Build time and memory, the first answer of a fresh process, and the gain of a second thread.

A build runs in a process of its own: python -m bench.vectors.startup ITEMS CHANGES
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import irli
from bench.commands import Options, find_file, make_recipe
from bench.common import read_memory, report_table, run_module, say, time_least
from bench.smoke import SHORT
from bench.vectors.data import FILES
from irli.base.vector_files import read_vectors

BATCH = 10_000
ITEMS = 20_000  # of the index that answers first


def _read(options: Options, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the items and all queries of a data set."""
    path = find_file(options.data, FILES[name])
    return np.array(read_vectors(path, key="train")), np.array(read_vectors(path, key="test"))


def build(options: Options) -> None:
    """Build time and peak memory of GloVe with the default recipe, neighbours included."""
    changes = SHORT["default"] if options.smoke else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.npy"
        np.save(path, _read(options, "glove")[0])
        printed = run_module("bench.vectors.startup", path, json.dumps(changes))
    seconds, peak = json.loads(printed)
    path = Path(options.results) / "vectors" / "build.json"
    report_table(
        path, ["build seconds", "peak memory GB"], [[f"{seconds:.0f}", f"{peak / 1e9:.2f}"]]
    )


def print_fit(path: str, changes: str) -> None:
    """Build an index in this process; print the seconds and the most memory that it took."""
    items = np.load(path)
    started = time.perf_counter()
    irli.VectorIndex("cosine", recipe=irli.recipe(**json.loads(changes))).fit(items)
    print(json.dumps([time.perf_counter() - started, read_memory("VmHWM")]))


def first_answer(options: Options) -> None:
    """Seconds from the start of a process to its first answer, with nothing heavy imported."""
    base, queries = _read(options, "wordnet")
    recipe = make_recipe(options, epochs=1, epoch_size=4096, training_points=4096)
    with tempfile.TemporaryDirectory() as folder:
        index, query = Path(folder) / "index", Path(folder) / "query.npy"
        irli.VectorIndex("cosine", recipe=recipe).fit(base[:ITEMS]).save(index)
        np.save(query, queries[0])
        times = []
        for _ in range(2 if options.smoke else 4):
            started = time.perf_counter()
            imported = run_module("bench.vectors.first_search", index, query).strip()
            times.append(time.perf_counter() - started)
    say(f"heavy modules imported: {imported}")
    warm = times[1:]  # the first one may compile kernels
    head, rows = ["first answer after, s"], [[f"{min(warm):.2f} to {max(warm):.2f}"]]
    path = Path(options.results) / "vectors" / "first-answer.json"
    report_table(path, head, rows, seconds=warm, imported=imported)


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


if __name__ == "__main__":
    print_fit(*sys.argv[1:])
