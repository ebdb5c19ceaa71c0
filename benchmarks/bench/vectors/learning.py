"""The time to learn, beside the other libraries, torch, and a start from an earlier index.

Everything is built anew: ours in this process, the peers in processes of their own, with the first
of the settings that their authors advise. Work is scanned + router multiplications / d, of an index
without codes: see `work`.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import irli
from bench.commands import Options, make_recipe
from bench.common import ProcessFailed, report_table, say
from bench.vectors.builds import PEERS, builds
from bench.vectors.compare import end, find_sets, find_versions
from bench.vectors.data import Queries, write_arrays
from bench.vectors.jobs import OURS, Job
from bench.vectors.work import LEAST_WORK, RECALLS, list_thresholds, measure_irli

NEW = 11  # one in so many items is new where an earlier index is the start


def learning_time(options: Options) -> None:
    """Seconds to learn, CPU and wall, and the work of the index at recall .90 and .95."""
    rows: list[list[Any]] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for path in find_sets(options):
            about = write_arrays(path, folder)
            for threads in options.threads or ([1] if options.smoke else [1, 2]):
                rows += _time_ours(options, about, folder, threads)
                rows += _time_peers(options, about, folder, threads, failed)
    head = ["data", "threads", "method", "CPU s", "wall s"]
    head += [f"work at {recall:.2f}" for recall in RECALLS]
    report_table(Path(options.results) / "vectors" / "learning-time.json", head, rows)
    end(failed)


def _time_ours(
    options: Options, about: dict[str, Any], folder: Path, threads: int
) -> list[list[Any]]:
    place = folder / "data" / about["name"]
    base, test, truth = (np.load(place / f"{n}.npy") for n in ("base", "test", "test-truth"))

    def learn(rows: np.ndarray, changes: dict[str, Any], **more: Any) -> irli.VectorIndex:
        index = irli.VectorIndex(about["metric"], recipe=make_recipe(options, **changes))
        return index.fit(rows, threads=threads, **more)

    def learn_again(changes: dict[str, Any]) -> irli.VectorIndex:
        return learn(base, changes)

    def learn_by_torch(changes: dict[str, Any]) -> irli.VectorIndex:
        return learn(base, changes, device="torch")

    def learn_on(changes: dict[str, Any]) -> irli.VectorIndex:
        return learn(base, changes | shape, start=earlier[bool(changes)])

    # With as many buckets as all items have: fewer items may choose half.
    shape = {"buckets": count_buckets(options, base)}
    some = base[: len(base) - len(base) // NEW]
    earlier = {bool(changes): learn(some, changes | shape) for changes in ({}, LEAST_WORK)}
    ways = {"irli": learn_again, "irli from an earlier index": learn_on}
    if importlib.util.find_spec("torch") is not None:
        ways["irli with torch"] = learn_by_torch
    rows = []
    for name, way in ways.items():
        wall, cpu = time.perf_counter(), time.process_time()
        way({})
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        works = ["" for _ in RECALLS]
        if threads == 1:  # their number changes nothing
            curve = measure_irli(way(LEAST_WORK), Queries(test, truth), list_thresholds())
            works = [f"{curve.at(recall):.0f}" for recall in RECALLS]
        rows.append([about["name"], threads, name, f"{cpu:.1f}", f"{wall:.1f}", *works])
        say(" ".join(map(str, rows[-1])))
    return rows


def count_buckets(options: Options, base: np.ndarray) -> int:
    """Return how many buckets the recipe chooses for all items."""
    return int(make_recipe(options).resolve(*base.shape).buckets)


def _time_peers(
    options: Options, about: dict[str, Any], folder: Path, threads: int, failed: list[str]
) -> list[list[Any]]:
    rows = []
    for method, version in find_versions(options.methods or PEERS).items():
        if method in OURS:
            continue
        setting = builds(method, about["count"], about["dim"], about["metric"], learn=False)[0]
        job = Job(str(folder), about["name"], method, setting, threads=threads, version=version)
        try:
            found = job.run(fresh=True)
        except ProcessFailed as error:
            failed.append(str(error))
            continue
        seconds = [f"{found[name]:.1f}" for name in ("build_cpu_seconds", "build_seconds")]
        rows.append([about["name"], threads, job.name, *seconds, "", ""])
        say(" ".join(map(str, rows[-1])))
    return rows
