"""Do one job in this process: python -m bench.vectors.runs JOB (as JSON).

`jobs.Job` starts it, in the peers' environment or in ours. The outcome goes to the file of the job.
An index is built in one process and measured in others, which load it. So its memory is what
searching needs, without what building left behind.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import read_memory
from bench.vectors.curves import TARGETS, K, recall_at, worth_timing
from bench.vectors.filtered import METHODS as FILTERED
from bench.vectors.filtered import measure_filters
from bench.vectors.jobs import OURS, Job
from bench.vectors.methods import Method, Setting

ROUGH = 500  # queries of the rough pass over all settings
SINGLE = 1000  # queries asked one by one
ENOUGH = 0.997  # recall above which more work is not tried
SLOWEST = 200  # queries per second below which more work is not tried
GAIN = 0.002  # of recall that more exact distances must bring


def make_method(job: Job) -> Method:
    """Return the method that a job names."""
    metric = json.loads((data_folder(job) / "set.json").read_text())["metric"]
    if job.method in OURS:
        from bench.vectors.ours import Irli

        return Irli(metric, **job.build)
    from bench.vectors.peers import METHODS

    return METHODS[job.method](metric, **job.build)


def data_folder(job: Job) -> Path:
    """Return the folder with the arrays of the data set."""
    return Path(job.folder) / "data" / job.data


def read_array(job: Job, name: str) -> Any:
    """Return an array of the data set, or None if it has no such array."""
    path = data_folder(job) / f"{name}.npy"
    mapped = "r" if name == "base" else None  # it may be large
    return np.load(path, mmap_mode=mapped) if path.exists() else None


def read_queries(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Return the queries of a job, and their true answers."""
    return read_array(job, job.queries), read_array(job, f"{job.queries}-truth")


def build(job: Job) -> dict[str, Any]:
    """Build and save an index."""
    method, base, learn = make_method(job), read_array(job, "base"), read_array(job, "learn")
    wall, cpu = time.perf_counter(), time.process_time()
    method.build(base, learn, job.threads)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = read_memory("VmHWM")
    job.index.mkdir(parents=True, exist_ok=True)
    method.save(job.index)
    files = [file for file in job.index.rglob("*") if file.is_file()]
    return {
        "package": f"{method.package} {version(method.package)}",
        "source": job.version,
        "build_threads": job.threads,
        "build_seconds": wall,
        "build_cpu_seconds": cpu,
        "build_peak_bytes": peak,
        "disk_bytes": sum(file.stat().st_size for file in files),
    }


def try_all(job: Job) -> dict[str, Any]:
    """Measure the memory of a built index, and all its settings once."""
    method = make_method(job)
    queries, truth = (array[:ROUGH] for array in read_queries(job))
    method.load(job.index)
    held = measure_memory(job, method, queries)
    return {"memory_bytes": held, "points": run_rough(method, queries, truth, job.threads)}


def time_best(job: Job) -> dict[str, Any]:
    """Time the best settings of the rough pass, and what `tune` chooses."""
    speed = measure_machine()
    method = make_method(job)
    queries, truth = read_queries(job)
    method.load(job.index)
    tried = json.loads(replace(job, stage="rough").file.read_text())["points"]
    chosen = [point["setting"] for point in worth_timing(tried, "qps", job.settings)]
    points = time_settings(method, chosen, queries, truth, job)
    tuned, default = [], []
    if job.method in OURS:
        default = time_settings(method, [{}], queries, truth, job)  # as `fit` left the index
        tuned = [time_tuned(method, target, queries, truth, job) for target in TARGETS]
    return {
        "points": points,
        "tuned": tuned,
        "default": default,
        "machine_speed": [speed, measure_machine()],
        "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def measure_memory(job: Job, loaded: Method, queries: np.ndarray) -> int:
    """Return the memory that a second copy of the index, loaded and searched, adds to this process.

    The first copy has brought in the code and the buffers of the library.
    """
    row = next(loaded.sweep())
    setting = row[len(row) // 2]
    loaded.begin(setting, job.threads)
    loaded.batch(queries, K)
    gc.collect()
    before = read_memory("VmRSS")
    another = make_method(job)
    another.load(job.index)
    another.begin(setting, job.threads)
    another.batch(queries, K)
    return read_memory("VmRSS") - before


def run_rough(method: Method, queries: np.ndarray, truth: np.ndarray, threads: int) -> list[Any]:
    """Time two batches in each setting, and skip settings where more work brings nothing.

    A row ends where recall is high enough or rises no more. A later row has more exact distances.
    It leaves out the places where they did not help in the row before.
    """
    points: list[Any] = []
    before: dict[int, float] = {}
    settled: set[int] = set()
    for settings in method.sweep():
        last = -1.0
        for place, setting in enumerate(settings):
            if place in settled:
                continue
            method.begin(setting, threads)
            method.batch(queries[:8], K)
            rates, found = zip(*(search_batch(method, queries) for _ in range(2)), strict=True)
            qps = threads * max(by_cpu for _, by_cpu in rates)
            recall = recall_at(found[0], truth)
            points.append({"setting": setting, "recall": recall, "qps": qps})
            if recall - before.get(place, -1.0) < GAIN:
                settled.add(place)
            before[place] = recall
            if recall > ENOUGH or qps < SLOWEST or (recall > 0.5 and recall - last < GAIN / 4):
                break
            last = recall
    return points


def time_settings(
    method: Method, settings: list[Setting], queries: np.ndarray, truth: np.ndarray, job: Job
) -> list[dict[str, Any]]:
    """Time the settings in turns, so that a slow minute of the machine hits all of them."""
    points = [{"setting": setting, "batch": [], "single": []} for setting in settings]
    for repeat in range(job.repeats + 1):  # the first is the warm-up
        for point in points:
            method.begin(point["setting"], job.threads)
            batch = search_batch(method, queries)
            single = search_single(method, queries, job.threads)
            if repeat:
                point["batch"].append(batch[0])
                point["single"].append(single[0])
            else:
                point["recall_batch"] = recall_at(batch[1], truth)
                point["recall_single"] = recall_at(single[1], truth[: len(single[1])])
                point["work"] = method.work(queries[:ROUGH], point["setting"])
    return points


def search_batch(method: Method, queries: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Search in one call; return queries per second, by wall and by CPU time, and the answers."""
    return _time_rates(lambda: method.batch(queries, K), len(queries))


def search_single(
    method: Method, queries: np.ndarray, threads: int
) -> tuple[list[float], np.ndarray]:
    """Search one by one, from as many Python threads as the job has."""
    prepared = method.prepare(queries[:SINGLE])
    single = method.single
    if threads == 1:
        rates, found = _time_rates(lambda: [single(query, K) for query in prepared], len(prepared))
        return rates, np.array([_pad(ids) for ids in found])
    parts = [prepared[i::threads] for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(len, parts))  # starts the threads before the clock
        rates, answers = _time_rates(
            lambda: list(pool.map(lambda part: [single(query, K) for query in part], parts)),
            len(prepared),
        )
    found = [None] * len(prepared)
    for i, part in enumerate(answers):
        found[i::threads] = part
    return rates, np.array([_pad(ids) for ids in found])


def _time_rates(work: Callable[[], Any], count: int) -> tuple[list[float], Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return [count / wall, count / cpu], found


def _pad(ids: np.ndarray) -> np.ndarray:
    return np.pad(np.asarray(ids, dtype=np.int64), (0, K - len(ids)), constant_values=-1)


def time_tuned(
    method: Any, target: float, queries: np.ndarray, truth: np.ndarray, job: Job
) -> dict[str, Any]:
    """Time what `tune` chooses, on queries that are not reported."""
    # An index that knows only its items must be told what other queries look like.
    given = read_array(job, "learn") if job.queries == "test_ood" and job.method == "irli" else None
    setting = method.tune(target, given)
    (point,) = time_settings(method, [setting], queries, truth, job)
    return point | {"parameters": str(method.index.defaults)}


def measure_machine() -> float:
    """Return the GFLOP per second of a fixed matrix product: it shows when the machine was slow."""
    a = np.full((256, 256), 0.5, dtype=np.float32)
    best = 0.0
    for _ in range(20):
        started = time.perf_counter()
        a @ a
        best = max(best, 2 * 256**3 / (time.perf_counter() - started) / 1e9)
    return best


def try_filters(job: Job) -> dict[str, Any]:
    """Search with filters: choose a setting for each, and time it."""
    metric = json.loads((data_folder(job) / "set.json").read_text())["metric"]
    if job.method in OURS:
        from bench.vectors.ours import FilteredIrli

        method: Any = FilteredIrli(metric)
    else:
        method = FILTERED[job.method](metric, **job.build)
    method.load(job.index)
    return {"cases": measure_filters(method, data_folder(job), job.repeats)}


STAGES = {"build": build, "rough": try_all, "timed": time_best, "filtered": try_filters}


def main() -> None:
    """Do the job that the command line holds."""
    job = Job(**json.loads(sys.argv[1]))
    found = STAGES[job.stage](job)
    job.keep(found | {"process_cpu_seconds": time.process_time()})


if __name__ == "__main__":
    main()
