"""Build one index, or ask one, in this process: python vector_runs.py JOB (as JSON).

`vector_jobs.Job` starts it, in the peers' environment or in ours. The outcome goes to the job's
file. An index is built in one process and measured in others, which load it: so memory is what
searching needs, without the leftovers of building.
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
from vector_curves import TARGETS, recall_at, worth_timing
from vector_jobs import OWN, Job
from vector_methods import Method, Setting

K = 10
ROUGH = 500  # queries of the first, rough pass over all settings
SINGLE = 1000  # queries asked one by one
ENOUGH = 0.997  # recall from which on more work is not tried
SLOWEST = 200  # queries per second below which more work is not tried
GAIN = 0.002  # of recall that more exact distances must bring


def make(job: Job) -> Method:
    """Return the method that a job names."""
    metric = json.loads((data_folder(job) / "about.json").read_text())["metric"]
    if job.method in OWN:
        from vector_own import Own

        return Own(metric, **job.build)
    from vector_peers import METHODS

    return METHODS[job.method](metric, **job.build)


def data_folder(job: Job) -> Path:
    """Return where the arrays of a data set are."""
    return Path(job.folder) / "data" / job.data


def array(job: Job, name: str) -> Any:
    """Read an array of the data set, None if there is none."""
    path = data_folder(job) / f"{name}.npy"
    mapped = "r" if name == "base" else None  # it may be large
    return np.load(path, mmap_mode=mapped) if path.exists() else None


def build(job: Job) -> dict[str, Any]:
    """Build and save an index."""
    method, base, learn = make(job), array(job, "base"), array(job, "learn")
    wall, cpu = time.perf_counter(), time.process_time()
    method.build(base, learn, job.threads)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = memory("VmHWM")
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
    """Go through all settings of a built index once."""
    method = make(job)
    queries, truth = array(job, job.queries)[:ROUGH], array(job, f"{job.queries}-truth")[:ROUGH]
    method.load(job.index)
    held = memory_of_another(job, method, queries)
    return {"memory_bytes": held, "points": rough(method, queries, truth, job.threads)}


def time_best(job: Job) -> dict[str, Any]:
    """Time the best settings of the rough pass, and what `tune` chooses."""
    speed = machine_speed()
    method = make(job)
    queries, truth = array(job, job.queries), array(job, f"{job.queries}-truth")
    method.load(job.index)
    tried = json.loads(replace(job, stage="rough").file.read_text())["points"]
    chosen = [point["setting"] for point in worth_timing(tried, "qps", job.settings)]
    points = timed(method, chosen, queries, truth, job)
    tuned = []
    if job.method in OWN:
        tuned = [tuned_point(method, target, queries, truth, job) for target in TARGETS]
    return {
        "points": points,
        "tuned": tuned,
        "machine_speed": [speed, machine_speed()],
        "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def memory_of_another(job: Job, loaded: Method, queries: np.ndarray) -> int:
    """Return what a second copy of the index, loaded and asked, adds to this process.

    The first one has paid for the library's own code and buffers.
    """
    row = next(loaded.sweep())
    setting = row[len(row) // 2]
    loaded.begin(setting, job.threads)
    loaded.batch(queries, K)
    gc.collect()
    before = memory("VmRSS")
    another = make(job)
    another.load(job.index)
    another.begin(setting, job.threads)
    another.batch(queries, K)
    return memory("VmRSS") - before


def rough(method: Method, queries: np.ndarray, truth: np.ndarray, threads: int) -> list[Any]:
    """Go through all settings, two timed batches each, but not where more work is in vain.

    A row ends where recall is high enough, or rises no more. A later row, of more exact distances,
    leaves out what they did not help in the row before.
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
            rates, found = zip(*(ask_batch(method, queries) for _ in range(2)), strict=True)
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


def timed(
    method: Method, settings: list[Setting], queries: np.ndarray, truth: np.ndarray, job: Job
) -> list[dict[str, Any]]:
    """Time the settings, all of them in each repeat, so that a slow minute hits all."""
    points = [{"setting": setting, "batch": [], "single": []} for setting in settings]
    for repeat in range(job.repeats + 1):  # the first is the warm-up
        for point in points:
            method.begin(point["setting"], job.threads)
            batch, single = ask_batch(method, queries), ask_single(method, queries, job.threads)
            if repeat:
                point["batch"].append(batch[0])
                point["single"].append(single[0])
            else:
                point["recall_batch"] = recall_at(batch[1], truth)
                point["recall_single"] = recall_at(single[1], truth[: len(single[1])])
                point["work"] = method.work(queries[:ROUGH], point["setting"])
    return points


def ask_batch(method: Method, queries: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Return queries per second, by wall and by CPU time, and the answers."""
    return _clocked(lambda: method.batch(queries, K), len(queries))


def ask_single(method: Method, queries: np.ndarray, threads: int) -> tuple[list[float], np.ndarray]:
    """Ask one by one, from as many Python threads as the job has."""
    prepared = method.prepared(queries[:SINGLE])
    single = method.single
    if threads == 1:
        rates, found = _clocked(lambda: [single(query, K) for query in prepared], len(prepared))
        return rates, np.array([_padded(ids) for ids in found])
    parts = [prepared[i::threads] for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(len, parts))  # the threads exist before the clock starts
        rates, answers = _clocked(
            lambda: list(pool.map(lambda part: [single(query, K) for query in part], parts)),
            len(prepared),
        )
    found = [None] * len(prepared)
    for i, part in enumerate(answers):
        found[i::threads] = part
    return rates, np.array([_padded(ids) for ids in found])


def _clocked(work: Callable[[], Any], count: int) -> tuple[list[float], Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return [count / wall, count / cpu], found


def _padded(ids: np.ndarray) -> np.ndarray:
    return np.pad(np.asarray(ids, dtype=np.int64), (0, K - len(ids)), constant_values=-1)


def tuned_point(
    method: Any, target: float, queries: np.ndarray, truth: np.ndarray, job: Job
) -> dict[str, Any]:
    """Measure what `tune` chooses, by queries that are not reported."""
    # An index that knows only its items is tuned by given queries, where they are of another kind.
    given = array(job, "learn") if job.queries == "test_ood" and job.method == "irli" else None
    setting = method.tuned(target, given)
    (point,) = timed(method, [setting], queries, truth, job)
    return point | {"parameters": str(method.index.defaults)}


def memory(field: str) -> int:
    """Return a field of this process in bytes: VmRSS now, VmHWM at most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def machine_speed() -> float:
    """Return a fixed product's GFLOP per second, so that a slow minute can be told."""
    a = np.full((256, 256), 0.5, dtype=np.float32)
    best = 0.0
    for _ in range(20):
        started = time.perf_counter()
        a @ a
        best = max(best, 2 * 256**3 / (time.perf_counter() - started) / 1e9)
    return best


STAGES = {"build": build, "rough": try_all, "timed": time_best}


def main() -> None:
    """Do the job that the command line holds."""
    job = Job(**json.loads(sys.argv[1]))
    found = STAGES[job.stage](job)
    job.keep(found | {"process_cpu_seconds": time.process_time()})


if __name__ == "__main__":
    main()
