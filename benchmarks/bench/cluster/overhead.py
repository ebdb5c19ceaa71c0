"""What Ray costs a batch, against the same shards in one process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from bench.cluster.machines import QUERIES, start_cluster, write_items
from bench.commands import Options, make_recipe
from bench.common import report_table, time_least
from irli.cluster import ShardedIndex
from irli.cluster.costs import make_skewed

BATCH = 256


def overhead(options: Options) -> None:
    """Search the same folder in this process and on Ray, in turns.

    The actors have all cores between them, so this process also searches with as many threads.
    """
    repeats, shards = options.repeats, 8
    if options.smoke:
        options.items, repeats, shards = 600, 2, 2
    items = write_items(
        options.folder / f"items-{options.items}-{options.dim}.npy", options.items, options.dim
    )
    saved = options.folder / "overhead"
    if not saved.exists():
        recipe = make_recipe(options, epochs=2, buckets=128)
        ShardedIndex(recipe=recipe, shards=shards).fit(str(items), threads=1).save(saved)
    queries = make_skewed(BATCH, options.dim, part=QUERIES)
    rows = []
    with start_cluster(1, options.cpus):
        here, there = ShardedIndex.load(saved), ShardedIndex.load(saved, ray="auto")
        ways = {"one": (here, 1), "all": (here, os.cpu_count()), "ray": (there, 1)}
        for probes in (1, 8):
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(repeats):
                for name, (index, threads) in ways.items():
                    times[name].append(_time_search(index, queries, probes, threads))
            middle = {name: 1e3 * float(np.median(each)) for name, each in times.items()}
            least = {name: 1e3 * min(each) for name, each in times.items()}
            numbers = (
                *middle.values(),
                middle["ray"] - middle["one"],
                middle["ray"] - middle["all"],
                least["ray"] - least["all"],
            )
            rows.append([probes, *(f"{number:.2f}" for number in numbers)])
        there.close()
    head = ["probes", "one process, one thread, ms", "all threads", "Ray, ms"]
    head += ["overhead to one thread", "to all threads (medians)", "to all threads (least)"]
    path = Path(options.results) / "cluster" / "overhead.json"
    report_table(path, head, rows, cores=os.cpu_count())


def _time_search(
    index: ShardedIndex, queries: np.ndarray, probes: int, threads: int | None
) -> float:
    def search() -> None:
        index.search(queries, 10, probes=probes, threads=threads)

    return time_least(search, 1, time.perf_counter)
