"""Workers, actors and a machine that are killed during a build and under load."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.cluster.machines import QUERIES, add_machine, find_workers, open_cluster, write_items
from bench.commands import Options, make_recipe
from bench.common import say, write_json
from irli.cluster import ShardedIndex
from irli.cluster.index import ShardedResult
from irli.cluster.planning.costs import make_skewed
from irli.errors import DeadlineExceeded, ShardUnavailable

DIM, PROBES, DEADLINE = 32, 4, 2.0


def failures(options: Options) -> None:
    """The build must have the same bytes, answers must be right, and calls must end in time.

    A smoke run kills one worker and no machine, since Ray takes half a minute to notice that.
    """
    items, shards, seconds = 20_000, 4, options.seconds
    if options.smoke:
        items, shards, seconds = 600, 1, 2.0
    data = write_items(options.folder / f"items-{items}-{DIM}.npy", items, DIM)
    recipe = make_recipe(options, repetitions=2, boost=False, epochs=2, buckets=64)
    queries = make_skewed(256, DIM, part=QUERIES)
    undisturbed, disturbed = options.folder / "undisturbed", options.folder / "disturbed"
    for folder in (undisturbed, disturbed):
        shutil.rmtree(folder, ignore_errors=True)
    local = ShardedIndex(recipe=recipe, shards=shards)
    local.fit(str(data), threads=1, checkpoint=undisturbed)
    right = local.search(queries, 10, probes=PROBES)
    local.save(options.folder / "failures")
    cluster = open_cluster(1, 1)
    index = ShardedIndex(recipe=recipe, shards=shards, ray="auto")
    killed = _disturb_build(options, index, data, disturbed, cluster)
    same = _sum_files(disturbed) == _sum_files(undisturbed)
    say(f"build: killed {killed}; the same bytes: {same}")
    kill_machine = _add_victim(options, cluster)
    index = ShardedIndex.load(options.folder / "failures", ray="auto")
    calls = _disturb_searches(index, queries, right, kill_machine, seconds)
    again = index.search(queries, 10, probes=PROBES, deadline=120)
    recovered = bool((again.ids == right.ids).all())
    say(f"after recovery: right answers: {recovered}")
    index.close()
    found = {
        "killed": killed,
        "same_bytes": same,
        "calls": len(calls),
        "partial": sum(bool(call["missing"]) for call in calls),
        "errors": sum(call["error"] for call in calls),
        "wrong": sum(call["wrong"] for call in calls),
        "late_seconds": max(call["late"] for call in calls),
        "recovered": recovered,
    }
    say(
        f"load: {found['calls']} calls, {found['partial']} partial and marked, {found['errors']} "
        f"errors, {found['wrong']} wrong answers, the latest {found['late_seconds']:.2f} s after "
        "its deadline"
    )
    write_json(Path(options.results) / "cluster" / "failures.json", found)


def _add_victim(options: Options, cluster: Any) -> Callable[[], bool]:
    """Add a machine to the cluster; return a function that kills it, and says whether it did."""
    if options.smoke:
        return lambda: False
    machine = add_machine(cluster, 2)

    def kill() -> bool:
        cluster.remove_node(machine, allow_graceful=False)
        return True

    return kill


def _disturb_build(
    options: Options, index: ShardedIndex, data: Path, folder: Path, cluster: Any
) -> list[str]:
    """Build while two workers and a machine are killed; return what was."""
    kill_machine = _add_victim(options, cluster)
    killed: list[str] = []
    kills = (1,) if options.smoke else (1, 4)

    def kill(done: int, total: int, what: str) -> None:
        if done in kills:
            for _, process in find_workers()[:1]:
                process.kill()
                killed.append("a worker")
        if done == 6 and kill_machine():
            killed.append("a machine")

    index.fit(str(data), progress=kill, checkpoint=folder)
    index.close()
    return killed


def _disturb_searches(
    index: ShardedIndex,
    queries: np.ndarray,
    right: ShardedResult,
    kill_machine: Callable[[], bool],
    seconds: float,
) -> list[dict[str, Any]]:
    """Search without a pause while things are killed; every other call takes partial answers."""
    calls: list[dict[str, Any]] = []
    begin = time.monotonic()
    acts = [
        (
            0.15 * seconds,
            lambda: os.kill(index._fitted().group.ask("process").values[0], signal.SIGKILL),
        ),
        (0.45 * seconds, kill_machine),
    ]
    while time.monotonic() - begin < seconds:
        if acts and time.monotonic() - begin > acts[0][0]:
            acts.pop(0)[1]()
        call: dict[str, Any] = {"missing": (), "error": False, "wrong": False}
        started = time.monotonic()
        try:
            found = index.search(
                queries, 10, probes=PROBES, deadline=DEADLINE, partial=len(calls) % 2 == 0
            )
            call["missing"] = found.missing
            call["wrong"] = not found.missing and bool((found.ids != right.ids).any())
        except (ShardUnavailable, DeadlineExceeded):
            call["error"] = True
        call["late"] = time.monotonic() - started - DEADLINE
        calls.append(call)
    return calls


def _sum_files(folder: Path) -> dict[str, str]:
    """Return the checksums of the finished shards of a build."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("shard-*/finished/index/*"))
        if path.is_file()
    }
