"""Tails, threads and size: vectors made up with clusters whose sizes follow a power law.

`latency`, `concurrent` and `scale` of vectors.py. A latency is measured in a fresh process, which
is this file again: python vector_serving.py JOB (as JSON).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from vector_curves import at, recall_at
from vector_jobs import FOLDER, Job, source_version
from vector_methods import Method, doubling
from vector_report import MODES, points_of, rate, table
from vector_runs import K, array, make

MADE = FOLDER / "scale"
EXPONENT = 1.2
BLOCK = 100_000  # vectors made in one go
REPEATS = 5
RECALL = 0.95
CALLERS = 4


def skewed(count: int, dim: int) -> str:
    """Write `count` vectors around power-law clusters, and queries of the same kind; name them.

    A query is never an item. `held` are for choosing, `test` for reporting.
    """
    name = f"skewed-{count}x{dim}"
    folder = MADE / "data" / name
    if (folder / "about.json").exists():
        return name
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    clusters = max(100, round(4 * count**0.5))
    centres = rng.normal(size=(clusters, dim)).astype(np.float32)
    share = np.arange(1, clusters + 1) ** -EXPONENT
    share /= share.sum()

    def draw(rows: int) -> np.ndarray:
        which = rng.choice(clusters, rows, p=share)
        return centres[which] + 0.7 * rng.standard_normal((rows, dim), dtype=np.float32)

    asked = {"held": draw(1000), "test": draw(2000)}
    base = np.lib.format.open_memmap(folder / "base.npy", "w+", np.float32, (count, dim))
    near = {key: _Nearest(len(queries)) for key, queries in asked.items()}
    for start in range(0, count, BLOCK):
        block = draw(min(BLOCK, count - start))
        base[start : start + len(block)] = block
        for key, queries in asked.items():
            near[key].see(queries, block, start)
    base.flush()
    for key, queries in asked.items():
        np.save(folder / f"{key}.npy", queries)
        np.save(folder / f"{key}-truth.npy", near[key].ids)
    said = {"metric": "l2", "count": count, "dim": dim, "queries": ["test"]}
    (folder / "about.json").write_text(json.dumps(said) + "\n")
    return name


class _Nearest:
    """The nearest items among the blocks seen so far."""

    def __init__(self, queries: int) -> None:
        self.distances = np.full((queries, K), np.inf, dtype=np.float32)
        self.ids = np.full((queries, K), -1, dtype=np.int64)

    def see(self, queries: np.ndarray, block: np.ndarray, start: int) -> None:
        import faiss

        distances, ids = faiss.knn(queries, block, K)
        distances = np.concatenate([self.distances, distances], axis=1)
        ids = np.concatenate([self.ids, ids + start], axis=1)
        order = np.argsort(distances, axis=1)[:, :K]
        self.distances = np.take_along_axis(distances, order, axis=1)
        self.ids = np.take_along_axis(ids, order, axis=1)


def _built(data: str, method: str, build: dict[str, Any], rebuild: bool = False) -> Job:
    cores = len(os.sched_getaffinity(0))
    version = source_version() if method == "irli" else ""
    job = Job(data, method, build, threads=cores, version=version, folder=str(MADE))
    job.run(fresh=rebuild or not job.index.exists())
    return job


# --- scale ---------------------------------------------------------------------------------------


def scale(given: argparse.Namespace) -> None:
    """Bar 6: build time and memory of a million items, beside FAISS HNSW; more of ours alone."""
    data = skewed(given.items, 96)
    methods: list[tuple[str, dict[str, Any]]] = [("irli", {})]
    if given.items <= 1_000_000:
        methods.append(("faiss-hnsw", {"factory": "HNSW32,Flat"}))
    rows = []
    for method, build in methods:
        job = _built(data, method, build, given.rebuild)
        built = job.outcome() or {}
        asked = replace(job, stage="rough", threads=1, queries="test")
        tried = asked.run(fresh=given.fresh)
        run = replace(asked, stage="timed", repeats=3, settings=6).run(fresh=given.fresh)
        speeds = [
            " / ".join(rate(at(points_of(run, mode, given.clock), r, "qps")) for r in (0.9, 0.95))
            for mode in MODES
        ]
        rows.append(
            [
                method,
                f"{built['build_seconds']:.0f} ({built['build_threads']} threads)",
                f"{built['build_cpu_seconds']:.0f}",
                f"{built['build_peak_bytes'] / 1e9:.2f}",
                f"{tried['memory_bytes'] / 1e9:.2f}",
                *speeds,
            ]
        )
    head = ["method", "build s", "build CPU s", "peak GB", "memory GB"]
    head += [f"{mode} q/s at .90 / .95" for mode in MODES]
    _keep(f"scale-{given.items}", head, rows)


# --- latency -------------------------------------------------------------------------------------


def latency(given: argparse.Namespace) -> None:
    """Bar 4: the tail on skewed data at a fixed number of probes, beside k-means buckets."""
    data = skewed(200_000, 64)
    rows, tails = [], {}
    for method, build in (("irli", {}), ("faiss-ivf", {"factory": "IVF2048,Flat"})):
        job = _built(data, method, build, given.rebuild)
        for busy in (False, True):
            found = _in_fresh_process(job, busy)
            cells = [method, f"{found['probes']}", f"{found['recall']:.3f}", "yes" if busy else ""]
            for kind in ("all", "typical"):
                p50, p99 = found[kind]
                cells += [f"{1e6 * p50:.0f}", f"{1e6 * p99:.0f}", f"{p99 / p50:.2f}"]
                tails[method, busy, kind] = p99 / p50
            rows.append(cells)
    for busy in (False, True):
        ratio = [tails["irli", busy, k] / tails["faiss-ivf", busy, k] for k in ("all", "typical")]
        shown = ["", "", f"{ratio[0]:.2f}", "", "", f"{ratio[1]:.2f}"]
        rows.append(["irli / IVFFlat", "", "", "yes" if busy else "", *shown])
    head = ["method", "probes", "recall", "another thread busy"]
    head += [
        "p50 us",
        "p99 us",
        "p99/p50",
        "p50 us, typical",
        "p99 us, typical",
        "p99/p50, typical",
    ]
    _keep("latency", head, rows)


def _in_fresh_process(job: Job, busy: bool) -> dict[str, Any]:
    single = {name: "1" for name in ("OMP_NUM_THREADS", "IRLI_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(asdict(job)), str(int(busy))],
        env={**os.environ, **single},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    return dict(json.loads(done.stdout))


def measure_latency(job: Job, busy: bool) -> dict[str, Any]:
    """Time single queries; `typical` takes the median of each query's repeats, without noise."""
    method = make(job)
    method.load(job.index)
    probes = _fewest_probes(job, method)
    queries, truth = array(job, "test"), array(job, "test-truth")
    prepared, stop = method.prepared(queries), threading.Event()
    recall = recall_at(method.batch(queries, K), truth)

    def disturb() -> None:
        while not stop.is_set():
            for query in prepared[:100]:
                method.single(query, K)

    other = threading.Thread(target=disturb)
    if busy:
        other.start()
    times = np.empty((REPEATS + 1, len(prepared)))
    for row in times:
        for i, query in enumerate(prepared):
            started = time.perf_counter()
            method.single(query, K)
            row[i] = time.perf_counter() - started
    stop.set()
    if busy:
        other.join()
    warm = times[1:]
    return {
        "probes": probes,
        "recall": recall,
        "all": np.percentile(warm, [50, 99]).tolist(),
        "typical": np.percentile(np.median(warm, axis=0), [50, 99]).tolist(),
    }


def _fewest_probes(job: Job, method: Method) -> int:
    """Find the least number of probes that reaches the recall, on queries that only choose."""
    queries, truth = array(job, "held"), array(job, "held-truth")
    name = "probes" if job.method == "irli" else "nprobe"
    for probes in doubling(1, 1024, step=2**0.125):
        method.begin({name: probes}, 1)
        if recall_at(method.batch(queries, K), truth) >= RECALL:
            return probes
    raise SystemExit(f"{job.name} does not reach recall {RECALL} with 1024 probes")


# --- concurrent ----------------------------------------------------------------------------------


def concurrent(given: argparse.Namespace) -> None:
    """Bar 3: four threads that ask one query at a time get the answers of one, no slower."""
    job = _built(skewed(200_000, 64), "irli", {}, given.rebuild)
    method, queries = make(job), array(job, "test")
    method.load(job.index)
    method.begin({}, 1)

    def ask(rows: np.ndarray) -> np.ndarray:
        return np.array([method.single(queries[row], K) for row in rows])

    everyone = np.arange(len(queries))
    parts = [everyone[i::CALLERS] for i in range(CALLERS)]
    alone, together = [], []
    expected = ask(everyone)
    mixed = 0
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(ask, parts))
        for _ in range(REPEATS):
            started = time.perf_counter()
            ask(everyone)
            alone.append(len(queries) / (time.perf_counter() - started))
            started = time.perf_counter()
            answers = list(pool.map(ask, parts))
            together.append(len(queries) / (time.perf_counter() - started))
            for part, found in zip(parts, answers, strict=True):
                mixed += int((found != expected[part]).any(axis=1).sum())
    head = ["callers", "queries per second", "other answers than one by one"]
    rows = [
        [callers, f"{np.mean(rates):.0f} ± {np.std(rates):.0f}", wrong]
        for callers, rates, wrong in ((1, alone, ""), (CALLERS, together, mixed))
    ]
    _keep("concurrent", head, rows)


def _keep(name: str, head: list[str], rows: list[list[Any]]) -> None:
    lines = table(head, rows)
    print("\n".join(lines), flush=True)
    (FOLDER / f"{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    print(json.dumps(measure_latency(Job(**json.loads(sys.argv[1])), sys.argv[2] == "1")))
