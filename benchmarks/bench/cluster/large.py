"""An index built out of core in shards, beside FAISS IVF-PQ without refinement."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from bench.cluster.machines import QUERIES, MemoryWatch, open_cluster, write_items
from bench.commands import Options, make_recipe
from bench.common import report_table, say
from bench.smoke import CODES
from irli.base.metrics import recall
from irli.base.vector_files import read_vectors
from irli.cluster import ShardedIndex
from irli.cluster.planning.costs import make_skewed

PROBES = (1, 2, 3, 5, 8, 12, 16, 20)
LIST_PROBES = (1, 2, 4, 8, 16, 32, 64, 128)  # of FAISS
BLOCK = 250_000  # vectors that FAISS is given at a time


def large(options: Options) -> None:
    """Memory of the largest worker; recall and time from m = 1 to 20 probes."""
    if options.smoke:
        options.items, options.queries = 600, 50
        options.shards = options.repetitions = options.nodes = 1
    folder = options.folder
    items = write_items(
        folder / f"items-{options.items}-{options.dim}.npy", options.items, options.dim
    )
    recipe = make_recipe(
        options,
        repetitions=options.repetitions,
        buckets=options.buckets,
        training_points=options.points,
        epochs=options.epochs,
        boost=False,
        **(CODES if options.smoke else {}),
    )
    open_cluster(options.nodes, options.cpus)
    watch = MemoryWatch()
    watch.start()
    index = ShardedIndex(recipe=recipe, shards=options.shards, ray="auto")
    started = time.perf_counter()
    index.fit(str(items), progress=_tell_progress(started), checkpoint=folder / "build")
    seconds = time.perf_counter() - started
    watch.over.set()
    allowed = 2 * 4 * options.dim * options.items / options.shards + 500e6
    say(
        f"built {options.shards} shards of {recipe.repetitions} repetitions over "
        f"{options.items} items in {seconds:.0f} s. The largest worker had "
        f"{max(watch.peak.values()) / 1e6:.0f} MB (twice its slice and 500 MB are "
        f"{allowed / 1e6:.0f} MB), by step: { {k: v // 10**6 for k, v in watch.peak.items()} }"
    )
    queries = make_skewed(options.queries, options.dim, part=QUERIES)
    truth = index.search(queries, 10, exact=True).ids
    rows = _measure_irli(index, queries, truth)
    index.close()
    rows += measure_faiss(items, queries, truth, rounds=1 if options.smoke else 25)
    head = ["index", "m / nprobe", "recall10@10", "ms a query", "codes read", "exact distances"]
    path = Path(options.results) / "cluster" / f"large-{options.items}.json"
    report_table(path, head, rows, build_seconds=seconds, worker_bytes=watch.peak)


def _measure_irli(index: ShardedIndex, queries: np.ndarray, truth: np.ndarray) -> list[list[Any]]:
    """Compare everything in the probed buckets, as in the paper, or only what codes choose."""
    rows: list[list[Any]] = []
    everything = {"score": "log-probability", "candidates": 2**31 - 1}
    by_codes = {"score": "codes", "candidates": 80}
    for name, chosen in (("irli, all", everything), ("irli, codes", by_codes)):
        for probes in PROBES:
            setting: dict[str, Any] = {"probes": min(probes, index.recipe.buckets), **chosen}
            told = index.explain(queries, 10, **setting)
            started = time.perf_counter()
            found = index.search(queries, 10, **setting)
            each = (time.perf_counter() - started) / len(queries)
            share = recall(found.ids, truth, 10)
            counts = [f"{number.mean():.0f}" for number in (told.scanned, told.candidates)]
            rows.append([name, probes, f"{share:.4f}", f"{1e3 * each:.3f}", *counts])
            say(str(rows[-1]))
    return rows


def measure_faiss(
    path: Path,
    queries: np.ndarray,
    truth: np.ndarray,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[Any]]:
    """Measure FAISS IVF-PQ without refinement, its codes learned in so many rounds of k-means."""
    items = read_vectors(path)
    dim, rows = items.shape[1], []
    lists = 1 << int(np.log2(4 * np.sqrt(len(items))))
    sample = items[np.sort(np.random.default_rng(0).permutation(len(items))[: 64 * lists])]
    coarse = faiss.IndexFlatL2(dim)  # the same lists for both, trained once
    for codes in (32, 48):
        index = faiss.IndexIVFPQ(coarse, dim, lists, codes, 8)
        index.pq.cp.niter = rounds
        index.train(np.ascontiguousarray(sample))
        for start in range(0, len(items), BLOCK):
            index.add(np.ascontiguousarray(items[start : start + BLOCK]))
        index.search(queries, 10)  # the first search is slower
        for probes in LIST_PROBES:
            index.nprobe = probes
            started = clock()
            found = index.search(queries, 10)[1]
            each = (clock() - started) / len(queries)
            share = recall(found, truth, 10)
            read = f"{len(items) * min(probes, lists) / lists:.0f}"
            rows.append([f"FAISS PQ{codes}", probes, f"{share:.4f}", f"{1e3 * each:.3f}", read, 0])
            say(str(rows[-1]))
    return rows


def _tell_progress(started: float) -> Callable[[int, int, str], None]:
    def tell(done: int, total: int, what: str) -> None:
        if done % 8 == 0 or done == total:
            say(f"{done} of {total} steps, {time.perf_counter() - started:.0f} s")

    return tell
