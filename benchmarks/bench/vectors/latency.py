"""Time single queries of one index in this process.

python -m bench.vectors.latency JOB (as JSON)
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import numpy as np

from bench.vectors.curves import K, recall_at
from bench.vectors.jobs import Job
from bench.vectors.methods import Method, doubling
from bench.vectors.runs import make_method, read_array

REPEATS = 5
RECALL = 0.95


def measure_latency(job: Job) -> dict[str, Any]:
    """Time single queries, alone and beside a thread that searches all the time.

    `typical` takes the median over the repeats of each query, which leaves out noise.
    """
    method = make_method(job)
    method.load(job.index)
    probes = _find_fewest_probes(job, method)
    queries, truth = read_array(job, "test"), read_array(job, "test-truth")
    prepared, stop = method.prepare(queries), threading.Event()
    recall = recall_at(method.batch(queries, K), truth)

    def disturb() -> None:
        while not stop.is_set():
            for query in prepared[:100]:
                method.single(query, K)

    times = {"no": _time_queries(method, prepared)}
    other = threading.Thread(target=disturb)
    other.start()
    times["yes"] = _time_queries(method, prepared)
    stop.set()
    other.join()
    return {"probes": probes, "recall": recall, "times": times}


def _time_queries(method: Method, prepared: list[np.ndarray]) -> dict[str, list[float]]:
    """Return the 50th and 99th percentile of all times, and of the typical ones."""
    times = np.empty((REPEATS + 1, len(prepared)))
    for row in times:
        for i, query in enumerate(prepared):
            started = time.perf_counter()
            method.single(query, K)
            row[i] = time.perf_counter() - started
    warm = times[1:]
    return {
        "all": np.percentile(warm, [50, 99]).tolist(),
        "typical": np.percentile(np.median(warm, axis=0), [50, 99]).tolist(),
    }


def _find_fewest_probes(job: Job, method: Method) -> int:
    """Return the least number of probes that reaches the recall, on queries kept for choosing."""
    queries, truth = read_array(job, "held"), read_array(job, "held-truth")
    name = "probes" if job.method == "irli" else "nprobe"
    for probes in doubling(1, 1024, step=2**0.125):
        method.begin({name: probes}, 1)
        if recall_at(method.batch(queries, K), truth) >= RECALL:
            return probes
    raise SystemExit(f"{job.name} does not reach recall {RECALL} with 1024 probes")


if __name__ == "__main__":
    print(json.dumps(measure_latency(Job(**json.loads(sys.argv[1])))))
