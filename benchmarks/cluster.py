"""An index in shards on Ray: python benchmarks/cluster.py NAME

    large      build out of core and search with m = 1 .. 20 probes, beside FAISS IVF-PQ
    overhead   what Ray costs a batch of 256, against the same shards in one process
    failures   kill workers, actors and a machine during a build and under load
    plan       the planner's figures against measurements that it was not fitted on

Machines are Ray's own test cluster on this one. Vectors are generated: clustered, and skewed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# A busy machine starves workers that are nice.
os.environ.setdefault("RAY_worker_niceness", "0")

import faiss
import numpy as np
import psutil
from common import keep, say, table

import irli
from irli.base.metrics import recall
from irli.cluster import ShardedIndex
from irli.cluster.costs import Costs, measured, skewed
from irli.cluster.planner import Machines, plan
from irli.errors import DeadlineExceeded, ShardUnavailable

PROBES = (1, 2, 3, 5, 8, 12, 16, 20)
PIECE = 250_000  # vectors made at a time
STEPS = ("prepare", "learn", "finish")


def made(path: Path, items: int, dim: int) -> Path:
    """Write generated vectors, piece by piece."""
    if not path.exists():
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(items, dim))
        for part, start in enumerate(range(0, items, PIECE)):
            stop = min(start + PIECE, items)
            out[start:stop] = skewed(stop - start, dim, part=part)
        out.flush()
    return path


@contextmanager
def cluster(nodes: int, cpus: int) -> Iterator[Any]:
    """Ray's test cluster: every node is a set of processes on this machine."""
    import ray
    from ray.cluster_utils import Cluster

    each = {"num_cpus": cpus, "object_store_memory": 150 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=each)
    for _ in range(nodes - 1):
        made.add_node(**{k: v for k, v in each.items() if k != "include_dashboard"})
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def steps_running() -> list[psutil.Process]:
    """The processes that do a step of a build just now."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if any(title.startswith(f"ray::{step}") for step in STEPS):
            found.append(process)
    return found


class Sampler(threading.Thread):
    """The largest private memory of a worker, by step."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = dict.fromkeys(STEPS, 0)
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.3):
            for process in steps_running():
                try:
                    name = process.cmdline()[0].removeprefix("ray::").split("(")[0].split(" ")[0]
                    self.peak[name] = max(self.peak[name], process.memory_full_info().uss)
                except (psutil.Error, IndexError, KeyError):
                    continue


# --- large ---------------------------------------------------------------------------------------


def large(options: argparse.Namespace) -> None:
    """Bar 2."""
    folder = options.folder
    data = made(folder / f"items-{options.items}-{options.dim}.npy", options.items, options.dim)
    recipe = irli.recipe(
        repetitions=options.repetitions,
        buckets=options.buckets,
        training_points=options.points,
        epochs=options.epochs,
        boost=False,
    )
    with cluster(options.nodes, options.cpus):
        sampler = Sampler()
        sampler.start()
        index = ShardedIndex(recipe=recipe, shards=options.shards, ray="auto")
        start = time.perf_counter()
        index.fit(str(data), progress=_told(start), checkpoint=folder / "build")
        seconds = time.perf_counter() - start
        sampler.over.set()
        limit = 2 * 4 * options.dim * options.items / options.shards + 500e6
        peak = max(sampler.peak.values())
        say(
            f"built {options.shards} x {options.repetitions} over {options.items} items in "
            f"{seconds:.0f} s; largest worker {peak / 1e6:.0f} MB (allowed: {limit / 1e6:.0f} MB), "
            f"by step: { {k: round(v / 1e6) for k, v in sampler.peak.items()} }"
        )
        queries = skewed(options.queries, options.dim, part=10**6)
        truth = index.nearest(queries, 10).ids
        rows = _own_rows(index, queries, truth)
        index.close()
    rows += _faiss_rows(data, queries, truth)
    head = ["index", "m / nprobe", "recall10@10", "ms a query", "codes read", "exact distances"]
    table(head, rows)
    values = {"head": head, "rows": rows, "build_seconds": seconds, "worker_bytes": sampler.peak}
    keep(f"cluster-large-{options.items}", values)


def _own_rows(index: ShardedIndex, queries: np.ndarray, truth: np.ndarray) -> list[list[Any]]:
    """All that is in the probed buckets compared exactly, as in the paper, or chosen by codes."""
    rows: list[list[Any]] = []
    everything = {"score": "log-probability", "candidates": 2**31 - 1}
    by_codes = {"score": "codes", "candidates": 80}
    for name, chosen in (("irli, all", everything), ("irli, codes", by_codes)):
        for probes in PROBES:
            asked: dict[str, Any] = {"probes": probes, **chosen}
            told = index.explain(queries, 10, **asked)
            start = time.perf_counter()
            found = index.search(queries, 10, **asked)
            each = (time.perf_counter() - start) / len(queries)
            share, work = recall(found.ids, truth, 10), (told.scanned, told.candidates)
            counts = [f"{number.mean():.0f}" for number in work]
            rows.append([name, probes, f"{share:.4f}", f"{1e3 * each:.3f}", *counts])
            say(str(rows[-1]))
    return rows


def _told(start: float) -> Any:
    def tell(done: int, total: int, what: str) -> None:
        if done % 8 == 0 or done == total:
            say(f"{done} of {total} steps, {time.perf_counter() - start:.0f} s")

    return tell


def _faiss_rows(data: Path, queries: np.ndarray, truth: np.ndarray) -> list[list[Any]]:
    """FAISS IVF-PQ without refinement, with as many threads as one of our shards has."""
    items = np.load(data, mmap_mode="r")
    dim, rows = items.shape[1], []
    lists = 1 << int(np.log2(4 * np.sqrt(len(items))))
    sample = items[np.sort(np.random.default_rng(0).permutation(len(items))[: 64 * lists])]
    coarse = faiss.IndexFlatL2(dim)  # the same lists for both, trained once
    for codes in (32, 48):
        index = faiss.IndexIVFPQ(coarse, dim, lists, codes, 8)
        index.train(np.ascontiguousarray(sample))
        for start in range(0, len(items), PIECE):
            index.add(np.ascontiguousarray(items[start : start + PIECE]))
        for probes in (1, 2, 4, 8, 16, 32, 64, 128):
            index.nprobe = probes
            start = time.perf_counter()
            found = index.search(queries, 10)[1]
            each = (time.perf_counter() - start) / len(queries)
            share = recall(found, truth, 10)
            read = f"{len(items) * probes / lists:.0f}"
            rows.append([f"FAISS PQ{codes}", probes, f"{share:.4f}", f"{1e3 * each:.3f}", read, 0])
            say(str(rows[-1]))
    return rows


# --- overhead ------------------------------------------------------------------------------------


def overhead(options: argparse.Namespace) -> None:
    """Bar 4: the same folder, in this process and on Ray, asked in turns.

    Actors have all cores between them, so one process is asked with as many threads, too.
    """
    data = made(
        options.folder / f"items-{options.items}-{options.dim}.npy", options.items, options.dim
    )
    recipe = irli.recipe(epochs=2, buckets=128)
    saved = options.folder / "overhead"
    if not saved.exists():
        ShardedIndex(recipe=recipe, shards=8).fit(str(data), threads=1).save(saved)
    queries = skewed(256, options.dim, part=10**6)
    with cluster(1, options.cpus):
        here, there = ShardedIndex.load(saved), ShardedIndex.load(saved, ray="auto")
        rows = []
        for probes in (1, 8):
            ways = {"one": (here, 1), "all": (here, os.cpu_count()), "ray": (there, 1)}
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(options.repeats):
                for name, (index, threads) in ways.items():
                    start = time.perf_counter()
                    index.search(queries, 10, probes=probes, threads=threads)
                    times[name].append(time.perf_counter() - start)
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
    table(head, rows)
    keep("cluster-overhead", {"head": head, "rows": rows, "cores": os.cpu_count()})


# --- failures ------------------------------------------------------------------------------------


def failures(options: argparse.Namespace) -> None:
    """Bar 3."""
    items, dim = 20_000, 32
    data = made(options.folder / f"items-{items}-{dim}.npy", items, dim)
    recipe = irli.recipe(repetitions=2, boost=False, epochs=2, buckets=64)
    queries = skewed(256, dim, part=10**6)
    undisturbed, disturbed = options.folder / "undisturbed", options.folder / "disturbed"
    for folder in (undisturbed, disturbed):
        shutil.rmtree(folder, ignore_errors=True)
    local = ShardedIndex(recipe=recipe, shards=4).fit(str(data), threads=1, checkpoint=undisturbed)
    right = local.search(queries, 10, probes=4)
    local.save(options.folder / "failures")
    with cluster(1, 1) as machines:
        lost = machines.add_node(num_cpus=2, object_store_memory=150 << 20)
        killed = _disturb_build(data, recipe, disturbed, machines, lost)
        same = digest(disturbed) == digest(undisturbed)
        say(f"build: killed {killed}; the same bytes: {same}")
        lost = machines.add_node(num_cpus=2, object_store_memory=150 << 20)
        index = ShardedIndex.load(options.folder / "failures", ray="auto")
        calls = _disturb_load(index, queries, right, machines, lost, options.seconds)
        again = index.search(queries, 10, probes=4, deadline=120)
        say(f"after recovery: right answers: {bool((again.ids == right.ids).all())}")
        index.close()
    late = max(call["late"] for call in calls)
    partial = [call for call in calls if call["missing"]]
    wrong = sum(call["wrong"] for call in calls)
    errors = sum(call["error"] for call in calls)
    say(
        f"load: {len(calls)} calls, {len(partial)} partial and marked, {errors} errors, {wrong} "
        f"wrong answers, the latest {late:.2f} s after its deadline"
    )
    keep(
        "cluster-failures",
        {"killed": killed, "same_bytes": same, "calls": len(calls), "partial": len(partial)}
        | {"errors": errors, "wrong": wrong, "late_seconds": late},
    )


def _disturb_build(data: Path, recipe: Any, folder: Path, machines: Any, node: Any) -> list[str]:
    killed: list[str] = []

    def kill(done: int, total: int, what: str) -> None:
        if done in (1, 4):
            for process in steps_running()[:1]:
                process.kill()
                killed.append("a worker")
        if done == 6:
            machines.remove_node(node, allow_graceful=False)
            killed.append("a machine")

    index = ShardedIndex(recipe=recipe, shards=4, ray="auto")
    index.fit(str(data), progress=kill, checkpoint=folder)
    index.close()
    return killed


def _disturb_load(
    index: Any, queries: Any, right: Any, machines: Any, node: Any, seconds: float
) -> list[dict[str, Any]]:
    """Ask without a pause, every other call for partial answers, while things are killed."""
    calls: list[dict[str, Any]] = []
    begin, deadline = time.monotonic(), 2.0
    acts = [
        (0.15 * seconds, lambda: os.kill(index._ask("process").values[0], signal.SIGKILL)),
        (0.45 * seconds, lambda: machines.remove_node(node, allow_graceful=False)),
    ]
    while time.monotonic() - begin < seconds:
        if acts and time.monotonic() - begin > acts[0][0]:
            acts.pop(0)[1]()
        call: dict[str, Any] = {"missing": (), "error": False, "wrong": False}
        start = time.monotonic()
        try:
            found = index.search(
                queries, 10, probes=4, deadline=deadline, partial=len(calls) % 2 == 0
            )
            call["missing"] = found.missing
            call["wrong"] = not found.missing and bool((found.ids != right.ids).any())
        except (ShardUnavailable, DeadlineExceeded):
            call["error"] = True
        call["late"] = time.monotonic() - start - deadline
        calls.append(call)
    return calls


def digest(folder: Path) -> dict[str, str]:
    """The checksums of the finished shards of a build."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("shard-*/finished/index/*"))
        if path.is_file()
    }


# --- plan ----------------------------------------------------------------------------------------


def planned(options: argparse.Namespace) -> None:
    """Bar 5: three builds that the costs were not fitted on, on one core in one process."""
    path = options.folder / f"costs-{options.dim}.json"
    recipe = irli.recipe()
    costs = Costs.load(path) if path.exists() else measured(options.dim, recipe, seed=1)
    costs.save(path)
    machine = Machines(1, 1, 24e9, round_trip=0.0, bandwidth=1e15, call=0.0)
    rows = []
    for items, shards, changes, probes in (
        (100_000, 1, {}, 8),
        (140_000, 2, {"buckets": 512, "epochs": 6}, 16),
        (200_000, 4, {"repetitions": 2, "epochs": 4}, 4),
    ):
        items //= 5 if options.quick else 1
        chosen = dataclasses.replace(recipe, **changes)
        told = plan(costs, chosen, machine, items=items, shards=shards, probes=probes)
        found = _measured_plan(items, options.dim, shards, chosen, probes, told.candidates)
        for name, value in found.items():
            expected = getattr(told, name)
            error = 100 * (expected / value - 1)
            what = f"{items} x {shards} {changes or ''}"
            rows.append([what, name, f"{expected:.4g}", f"{value:.4g}", f"{error:+.0f} %"])
            say(str(rows[-1]))
    head = ["configuration", "figure", "planned", "measured", "error"]
    table(head, rows)
    keep("cluster-plan", {"head": head, "rows": rows})


def _measured_plan(
    items: int, dim: int, shards: int, recipe: Any, probes: int, candidates: int
) -> dict[str, float]:
    """Build and search for real; in seconds of processor time, since the machine is shared."""
    queries = skewed(256, dim, part=10**6)
    with tempfile.TemporaryDirectory() as folder:
        data = made(Path(folder) / "items.npy", items, dim)
        index, seconds, peak = _built_apart(data, Path(folder), shards, recipe)
        saved = index.stats()["bytes"] / shards
        chosen = {"probes": probes, "candidates": candidates, "score": "codes", "threads": 1}
        singles = _least(lambda: [index.search(query, 10, **chosen) for query in queries])
        batch = _least(lambda: index.search(queries, 10, **chosen))
        return {
            "build_seconds": seconds,
            "build_worker_bytes": peak,
            "shard_bytes": saved,
            "latency": singles / len(queries),
            "batch_latency": batch,
            "throughput": len(queries) / batch,
        }


def _built_apart(data: Path, folder: Path, shards: int, recipe: Any) -> tuple[Any, float, float]:
    """Build in a process of its own, to see its memory."""
    import json
    import subprocess
    import sys

    settings = json.dumps(dataclasses.asdict(recipe))
    code = f"""
import json, time, sys, psutil, threading
import irli
from irli.cluster import ShardedIndex
from irli.cluster.build import STEPS, Job, divided
from irli.cluster.sources import Source
peak = [0]
def watch():
    while True:
        peak[0] = max(peak[0], psutil.Process().memory_full_info().uss)
        time.sleep(0.5)
recipe = irli.Recipe(**json.loads({settings!r}))
source = Source.of({str(data)!r})
bounds = split_rows(source.rows, {shards})
job = Job(source, bounds, {str(folder)!r}, "l2",
          recipe.resolve(bounds[1] - bounds[0], source.dim), threads=1)
from irli.learning.runs import group_repetitions
from irli.cluster.costs import skewed
irli.VectorIndex(recipe=irli.recipe(epochs=2)).fit(skewed(5000, source.dim), threads=1)  # warm
threading.Thread(target=watch, daemon=True).start()
start = time.thread_time()  # not that of the watch
for shard in range({shards}):
    STEPS.prepare(job, shard)
    for numbers in group_repetitions(recipe):
        STEPS.learn(job, shard, numbers)
    STEPS.finish(job, shard)
print(json.dumps([time.thread_time() - start, peak[0]]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, peak = json.loads(run.stdout)
    index = ShardedIndex(recipe=recipe, shards=shards)
    index.fit(str(data), threads=1, checkpoint=folder)  # finds all of it there
    return index, seconds, peak


def _least(job: Any) -> float:
    times = []
    for _ in range(4):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=["large", "overhead", "failures", "plan"])
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--buckets", type=int, default=0, help="of each shard; 0: by its size")
    parser.add_argument("--points", type=int, default=0, help="to train on; 0: by its size")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=2, help="machines of the test cluster")
    parser.add_argument("--cpus", type=int, default=1, help="of each")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="plan: a fifth of the items")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load under failures")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "irli-cluster")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    functions = {"large": large, "overhead": overhead, "failures": failures, "plan": planned}
    functions[options.name](options)


if __name__ == "__main__":
    main()
