"""Actors of replicated shards that are killed or stopped under load, and a shard that is away."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.cluster.machines import QUERIES, open_cluster, write_items
from bench.commands import Options, make_recipe
from bench.common import say, write_json
from irli.base.folder import read_manifest
from irli.cluster import ShardedIndex
from irli.cluster.planning.costs import make_skewed
from irli.cluster.shards.ray_shards import Replica
from irli.errors import ClusterError

DIM, SHARDS, PROBES, DEADLINE = 32, 4, 4, 1.0
CALLERS = 2  # threads that search without a pause


def replicas(options: Options) -> None:
    """No call may fail while one of two replicas is lost; a shard comes back with its manifest."""
    items, shards, kills, away = 20_000, SHARDS, options.kills, options.away
    if options.smoke:
        items, shards, kills, away = 600, 1, 1, 0.5
    saved = options.folder / f"replicas-{items}"
    if not saved.exists():
        data = write_items(options.folder / f"items-{items}-{DIM}.npy", items, DIM)
        recipe = make_recipe(options, epochs=2, buckets=64)
        ShardedIndex(recipe=recipe, shards=shards).fit(str(data), threads=1).save(saved)
    queries = make_skewed(16, DIM, part=QUERIES)
    right = ShardedIndex.load(saved).search(queries, 10, probes=PROBES).ids
    open_cluster(1, options.cpus)
    index = ShardedIndex.load(saved, ray="auto", replicas=2)
    found = {
        "killed": _disturb(index, queries, right, _kill, kills),
        "stopped": _disturb(index, queries, right, _stop, -(-kills // 4)),
    }
    index.close()
    moved = options.folder / "replicas-moved"
    shutil.rmtree(moved, ignore_errors=True)
    shutil.copytree(saved, moved)
    found["shard"] = _take_away(moved, queries, right, away)
    write_json(Path(options.results) / "cluster" / "replicas.json", found)


# --- one of two replicas is lost ------------------------------------------------------------------


def _disturb(
    index: ShardedIndex,
    queries: np.ndarray,
    right: np.ndarray,
    disturb: Callable[[Replica], None],
    times: int,
) -> dict[str, Any]:
    """Disturb a replica again and again while some threads search, and count what goes wrong."""
    calls: list[tuple[float, str]] = []
    over = threading.Event()

    def search() -> None:
        while not over.is_set():
            begin, error = time.monotonic(), ""
            try:
                found = index.search(queries, 10, probes=PROBES, deadline=DEADLINE)
                error = "" if (found.ids == right).all() else "wrong"
            except Exception as raised:  # whatever it is, the call has failed
                error = type(raised).__name__
            calls.append((time.monotonic() - begin, error))

    callers = [threading.Thread(target=search, daemon=True) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    chosen = random.Random(0)
    for _ in range(times):
        time.sleep(chosen.uniform(0.2, 0.6))
        disturb(chosen.choice(chosen.choice(index._fitted().group._serving.replicas)))
    over.set()
    for caller in callers:
        caller.join()
    seconds = [each for each, _ in calls]
    failed = [error for _, error in calls if error]
    result = {
        "times": times,
        "calls": len(calls),
        "failed": len(failed),
        "errors": sorted(set(failed)),
        "median_ms": 1e3 * float(np.median(seconds)),
        "slowest_ms": 1e3 * max(seconds),
    }
    say(f"{disturb.__name__.strip('_')}: {result}")
    return result


def _kill(replica: Replica) -> None:
    """Kill the process of a replica, and wait until it is back."""
    before = _find_process(replica)
    os.kill(before, signal.SIGKILL)
    while _find_process(replica) == before:
        time.sleep(0.1)


def _stop(replica: Replica) -> None:
    """Stop the process of a replica for three seconds."""
    process = _find_process(replica)
    os.kill(process, signal.SIGSTOP)
    time.sleep(3)
    os.kill(process, signal.SIGCONT)


def _find_process(replica: Replica) -> int:
    """Return the process of a replica, once it serves."""
    end = time.monotonic() + 120
    while True:
        try:
            return replica.ray.get(replica.actor.call.remote("process"), timeout=1.0)
        except (replica.ray.exceptions.RayError, ClusterError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


# --- a shard is away ------------------------------------------------------------------------------


def _take_away(
    path: Path, queries: np.ndarray, right: np.ndarray, seconds: float
) -> dict[str, float]:
    """Move the manifest of a shard away, kill its actor, and move it back after some seconds."""
    index = ShardedIndex.load(path, ray="auto")
    (replica,) = index._fitted().group._serving.replicas[-1]
    shard = path / read_manifest(path)["parts"][-1]
    shard.rename(path / "away")
    os.kill(_find_process(replica), signal.SIGKILL)
    partial = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            missing = index.search(queries, 10, probes=PROBES, partial=True, deadline=5.0).missing
        except ClusterError:  # a smoke run has a single shard
            missing = (0,)
        if missing:
            partial.append(time.monotonic() - begin)
        time.sleep(0.05)
    (path / "away").rename(shard)
    begin = time.monotonic()
    found = index.search(queries, 10, probes=PROBES, deadline=60.0)
    result = {
        "away_seconds": seconds,
        "back_seconds": time.monotonic() - begin,
        "right": bool((found.ids == right).all()),
        "partial_median_ms": 1e3 * float(np.median(partial)),
        "partial_slowest_ms": 1e3 * max(partial),
    }
    say(f"shard: {result}")
    index.close()
    return result
