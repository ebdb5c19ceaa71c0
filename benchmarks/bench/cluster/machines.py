"""Ray's test cluster, where every machine is a set of processes on this one, and its workers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from irli.cluster.planning.costs import make_skewed

STEPS = ("prepare", "learn", "finish")  # as Ray names the processes that do them
QUERIES = 10**6  # the part of the generated vectors that queries are drawn from

_PIECE = 250_000  # vectors made at a time
_STORE = 150 << 20  # bytes of each machine's object store
_running: tuple[int, int, Any] | None = None  # machines, cpus of each, and the cluster


def write_items(path: Path, items: int, dim: int) -> Path:
    """Write generated vectors piece by piece, unless they are there."""
    if not path.exists():
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(items, dim))
        for part, start in enumerate(range(0, items, _PIECE)):
            stop = min(start + _PIECE, items)
            out[start:stop] = make_skewed(stop - start, dim, part=part)
        out.flush()
    return path


def open_cluster(machines: int, cpus: int) -> Any:
    """Return Ray's test cluster of some machines: the one that is running, if it has as many."""
    global _running
    if _running is not None and _running[:2] == (machines, cpus):
        return _running[2]
    close_cluster()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # a busy machine starves nice workers
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": cpus, "object_store_memory": _STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    _running = (machines, cpus, cluster)
    for _ in range(machines - 1):
        add_machine(cluster, cpus)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    return cluster


def close_cluster() -> None:
    """End the cluster that is running, if any."""
    global _running
    if _running is not None:
        import ray

        ray.shutdown()
        _running[2].shutdown()
        _running = None


def add_machine(cluster: Any, cpus: int) -> Any:
    """Add a machine to a running cluster."""
    return cluster.add_node(num_cpus=cpus, object_store_memory=_STORE)


def find_workers() -> list[tuple[str, psutil.Process]]:
    """Return the processes that do a step of a build just now, with the name of the step."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        found += [(step, process) for step in STEPS if title.startswith(f"ray::{step}")]
    return found


class MemoryWatch(threading.Thread):
    """A thread that notes the largest private memory of a worker in each step."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = dict.fromkeys(STEPS, 0)
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.3):
            for step, process in find_workers():
                try:
                    used = process.memory_full_info().uss
                except psutil.Error:
                    continue
                self.peak[step] = max(self.peak[step], used)
