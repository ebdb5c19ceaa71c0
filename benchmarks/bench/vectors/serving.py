"""Large indexes, tail latency and concurrent callers, all on skewed generated vectors."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.commands import Options
from bench.common import count_cores, report_table, run_module
from bench.smoke import CODES, SHORT
from bench.vectors.curves import K, at
from bench.vectors.data import write_skewed
from bench.vectors.jobs import Job, source_version
from bench.vectors.report import MODES, format_rate, list_points
from bench.vectors.runs import make_method, read_array

REPEATS = 5
CALLERS = 4
BESIDE_HNSW = 1_000_000  # items up to which FAISS HNSW is built too
SMOKE = (1000, 16)  # items and dimensions of the smallest size


def _build(options: Options, method: str, build: dict[str, Any], count: int, dim: int) -> Job:
    """Return the job of an index over skewed vectors, built if it is not there."""
    folder = Path(options.results) / "vectors" / "scale"
    if options.smoke:
        count, dim = SMOKE
    ours = method == "irli"
    job = Job(
        folder=str(folder),
        data=write_skewed(folder, count, dim),
        method=method,
        build=SHORT["default"] | CODES if ours and options.smoke else build,
        threads=count_cores(),
        version=source_version() if ours else "",
    )
    job.run(fresh=options.rebuild or not job.index.exists())
    return job


def _report(options: Options, name: str, head: list[str], rows: list[list[Any]]) -> None:
    report_table(Path(options.results) / "vectors" / f"{name}.json", head, rows)


# --- scale ---------------------------------------------------------------------------------------


def scale(options: Options) -> None:
    """Build time and memory of many items: ours, and up to a million FAISS HNSW."""
    methods: list[tuple[str, dict[str, Any]]] = [("irli", {})]
    if options.items <= BESIDE_HNSW:
        methods.append(("faiss-hnsw", {"factory": "HNSW32,Flat"}))
    effort = {"repeats": 1, "settings": 2} if options.smoke else {"repeats": 3, "settings": 6}
    rows = []
    for method, build in methods:
        job = _build(options, method, build, options.items, 96)
        built = job.outcome() or {}
        rough = replace(job, stage="rough", threads=1, queries="test")
        tried = rough.run(fresh=options.fresh)
        run = replace(rough, stage="timed", **effort).run(fresh=options.fresh)
        speeds = [
            " / ".join(
                format_rate(at(list_points(run, mode, options.clock), recall, "qps"))
                for recall in (0.9, 0.95)
            )
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
    _report(options, f"scale-{options.items}", head, rows)


# --- latency -------------------------------------------------------------------------------------


def latency(options: Options) -> None:
    """The tail at a fixed number of probes, beside the k-means buckets of FAISS IVFFlat."""
    rows, tails = [], {}
    lists = 32 if options.smoke else 2048
    for method, build in (("irli", {}), ("faiss-ivf", {"factory": f"IVF{lists},Flat"})):
        job = _build(options, method, build, 200_000, 64)
        found = json.loads(run_module("bench.vectors.latency", json.dumps(asdict(job)), threads=1))
        for busy, times in found["times"].items():
            cells = [method, found["probes"], f"{found['recall']:.3f}", busy]
            for kind in ("all", "typical"):
                p50, p99 = times[kind]
                cells += [f"{1e6 * p50:.0f}", f"{1e6 * p99:.0f}", f"{p99 / p50:.2f}"]
                tails[method, busy, kind] = p99 / p50
            rows.append(cells)
    for busy in ("no", "yes"):
        ratio = [tails["irli", busy, k] / tails["faiss-ivf", busy, k] for k in ("all", "typical")]
        shown = ["", "", f"{ratio[0]:.2f}", "", "", f"{ratio[1]:.2f}"]
        rows.append(["irli / IVFFlat", "", "", busy, *shown])
    head = ["method", "probes", "recall", "another thread busy", "p50 us", "p99 us", "p99/p50"]
    head += [f"{name}, typical" for name in head[-3:]]
    _report(options, "latency", head, rows)


# --- concurrent ----------------------------------------------------------------------------------


def concurrent(options: Options) -> None:
    """Four threads that search one query at a time: the same answers, and how many a second."""
    job = _build(options, "irli", {}, 200_000, 64)
    method, queries = make_method(job), read_array(job, "test")
    method.load(job.index)
    method.begin({}, 1)

    def search(rows: np.ndarray) -> np.ndarray:
        return np.array([method.single(queries[row], K) for row in rows])

    everyone = np.arange(len(queries))
    parts = [everyone[i::CALLERS] for i in range(CALLERS)]
    alone, together = [], []
    expected = search(everyone)
    different = 0
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(search, parts))
        for _ in range(REPEATS):
            started = time.perf_counter()
            search(everyone)
            alone.append(len(queries) / (time.perf_counter() - started))
            started = time.perf_counter()
            answers = list(pool.map(search, parts))
            together.append(len(queries) / (time.perf_counter() - started))
            for part, found in zip(parts, answers, strict=True):
                different += int((found != expected[part]).any(axis=1).sum())
    head = ["callers", "queries per second", "answers that differ from one by one"]
    rows = [
        [callers, f"{np.mean(rates):.0f} ± {np.std(rates):.0f}", wrong]
        for callers, rates, wrong in ((1, alone, ""), (CALLERS, together, different))
    ]
    _report(options, "concurrent", head, rows)
