"""What Ray costs a query and a batch, against the same shards in one process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.cluster.machines import QUERIES, open_cluster, write_items
from bench.commands import Options, make_recipe
from bench.common import report_table, time_least
from irli.cluster import ShardedIndex
from irli.cluster.planning.costs import make_skewed

BATCH = 256


def overhead(options: Options) -> None:
    """Search the same folder in this process and on Ray, in turns with calls that do nothing.

    The actors have all cores between them, so this process also searches with as many threads. An
    empty call asks every actor for a fault. The last column is what Ray adds to the search
    in one thread, in such calls.
    """
    repeats, shards = options.repeats, options.shards
    if options.smoke:
        options.items, repeats, shards = 600, 2, 1
    items = write_items(
        options.folder / f"items-{options.items}-{options.dim}.npy", options.items, options.dim
    )
    saved = options.folder / f"overhead-{options.items}-{options.dim}-{shards}"
    if not saved.exists():
        recipe = make_recipe(options, epochs=2, buckets=128)
        ShardedIndex(recipe=recipe, shards=shards).fit(str(items), threads=1).save(saved)
    queries = make_skewed(BATCH, options.dim, part=QUERIES)
    open_cluster(1, options.cpus)
    here, there = ShardedIndex.load(saved), ShardedIndex.load(saved, ray="auto")
    rows = []
    for size in (1, BATCH):
        for probes in (1, 8):
            given = queries[0] if size == 1 else queries
            ways = {
                "one": _make_search(here, given, probes, 1),
                "all": _make_search(here, given, probes, os.cpu_count()),
                "ray": _make_search(there, given, probes, 1),
                "empty": _make_empty_call(there),
            }
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(repeats):
                for name, way in ways.items():
                    times[name].append(1e3 * time_least(way, 1, time.perf_counter))
            middle = {name: float(np.median(each)) for name, each in times.items()}
            calls = (middle["ray"] - middle["one"]) / middle["empty"]
            numbers = (*middle.values(), calls)
            rows.append([size, probes, *(f"{number:.2f}" for number in numbers)])
    there.close()
    head = ["queries", "probes", "one process, one thread, ms", "all threads, ms", "Ray, ms"]
    head += ["empty calls of all shards, ms", "what Ray adds, in empty calls"]
    path = Path(options.results) / "cluster" / "overhead.json"
    report_table(path, head, rows, cores=os.cpu_count(), shards=shards)


def _make_search(
    index: ShardedIndex, queries: np.ndarray, probes: int, threads: int | None
) -> Callable[[], None]:
    def search() -> None:
        index.search(queries, 10, probes=probes, threads=threads)

    return search


def _make_empty_call(index: ShardedIndex) -> Callable[[], None]:
    import ray

    actors = [replicas[0].actor for replicas in index._fitted().group._serving.replicas]

    def call() -> None:
        ray.get([actor.find_fault.remote() for actor in actors])

    return call
