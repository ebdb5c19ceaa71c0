"""The planner's figures against builds and searches that its costs were not fitted on.

A build runs in a process of its own, where its memory shows: python -m bench.cluster.plan ARGUMENTS
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import irli
from bench.cluster.machines import QUERIES, write_items
from bench.commands import Options, make_recipe
from bench.common import report_table, run_module, run_until, say, time_least
from bench.smoke import CODES
from irli.base.metrics import recall
from irli.cluster import ShardedIndex
from irli.cluster.build.build import build
from irli.cluster.build.vector_job import make_vector_job
from irli.cluster.planning.costs import Costs, make_skewed, measure_costs
from irli.cluster.planning.planner import ClusterPlan, Machines, make_plan
from irli.learning import runs
from irli.vectors.parts.merge import merge

# Items, shards, changes of the recipe, probes.
CASES: tuple[tuple[int, int, dict[str, Any], int], ...] = (
    (100_000, 1, {}, 8),
    (140_000, 2, {"buckets": 512, "epochs": 6}, 16),
    (200_000, 4, {"repetitions": 2, "epochs": 4}, 4),
)
SMOKE_CASES: tuple[tuple[int, int, dict[str, Any], int], ...] = ((600, 2, CODES, 4),)
# The paper's Deep-1B scaled down: its 625 items a bucket, with a learning set.
DEEP = {
    "repetitions": 2,
    "buckets": 400,
    "hidden": 256,
    "epochs": 4,
    "repartition_every": 2,
    "training_points": 20_000,
}
DEEP_CASES = ((1_000_000, 4, DEEP, 20),)
# A hundredth of Deep-1B in the paper's 8 shards and 4 repetitions, again with 625 items a bucket.
DEEP_10M = DEEP | {"repetitions": 4, "buckets": 2000, "training_points": 10_000}
DEEP_10M_CASES = ((10_000_000, 8, DEEP_10M, 20),)
SMOKE_DEEP = ((600, 2, {"training_points": 100}, 4),)
LEARN = 4 * 10**6  # the part of the generated vectors that are learned from
SMOKE_COSTS = Costs(  # made up
    dim=96,
    recipe="default",
    prepare=(1e-9, 1e-6, 1e-6),
    learn=(1e-6,) * 5,
    finish=(1e-3,) * 3,
    search=(1e-6,) * 5,
    merge=(1e-6,) * 2,
    probes=8.0,
    candidates=80.0,
    distinct=0.8,
)
MACHINE = Machines(count=1, cores=1, memory=24e9, round_trip=0.0, bandwidth=1e15, call=0.0)
BATCH = 256
ALL = {"score": "votes", "min_votes": 1, "candidates": 2**31 - 1}  # as in the paper


def plan(options: Options) -> None:
    """Compare plans with what three builds took, on one core in one process."""
    _compare(options, "plan", "default", SMOKE_CASES if options.smoke else CASES)


def deep(options: Options) -> None:
    """Compare a plan with what a build of the paper's recipe for Deep-1B took, scaled down."""
    _compare(options, "deep", "paper-deep", SMOKE_DEEP if options.smoke else DEEP_CASES)


def deep10m(options: Options) -> None:
    """The same with 10 million vectors in 8 shards, where the process that builds is killed once.

    It takes an hour of one core.
    """
    cases = SMOKE_DEEP if options.smoke else DEEP_10M_CASES
    _compare(options, "deep10m", "paper-deep", cases, kill=True)


def _compare(options: Options, part: str, name: str, cases: Any, kill: bool = False) -> None:
    rows = []
    for items, shards, changes, probes in cases:
        items //= 5 if options.quick else 1
        recipe = make_recipe(options, name, **changes)
        costs = dataclasses.replace(SMOKE_COSTS, recipe=name)
        if not options.smoke:
            costs = _load_costs(options, recipe)
        planned = make_plan(costs, recipe, MACHINE, items=items, shards=shards, probes=probes)
        expect = dataclasses.asdict(planned)
        expect["repetitions learned"] = shards * planned.repetitions  # none of them twice
        for figure, value in _measure(options.folder, recipe, planned, kill).items():
            error = 100 * (expect[figure] / max(value, 1e-9) - 1)  # the smallest may be none
            case = f"{items} x {shards} {changes or ''}"
            rows.append([case, figure, f"{expect[figure]:.4g}", f"{value:.4g}", f"{error:+.0f} %"])
            say(str(rows[-1]))
    head = ["configuration", "figure", "planned", "measured", "error"]
    report_table(Path(options.results) / "cluster" / f"{part}.json", head, rows)


def _load_costs(options: Options, recipe: irli.Recipe) -> Costs:
    """Return the costs of this machine, measured once for a recipe and a width."""
    path = options.folder / f"costs-{recipe.name}-{recipe.hidden}-{options.dim}.json"
    if not path.exists():
        measure_costs(options.dim, recipe, seed=1).save(path)
    return Costs.load(path)


def _learn_from(recipe: irli.Recipe, dim: int) -> np.ndarray | None:
    """Return the learning set, if the recipe has one."""
    if recipe.query_share < 1:
        return None
    return make_skewed(recipe.training_points, dim, part=LEARN)


def _measure(
    place: Path, recipe: irli.Recipe, planned: ClusterPlan, kill: bool
) -> dict[str, float]:
    """Build and search; times are processor time, which other programs disturb least."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        items = write_items(place / f"items-{planned.items}.npy", planned.items, planned.dim)
        found = _build(items, Path(folder), recipe, planned, kill)
        # So many vectors are asked shard by shard, since tuning all of them takes longer.
        search = _search_each if kill else _search
        return found | search(items, Path(folder), recipe, planned)


def _build(
    items: Path, folder: Path, recipe: irli.Recipe, planned: ClusterPlan, kill: bool
) -> dict[str, float]:
    """Build in a process of its own; kill a first one when it has learned a repetition."""
    arguments = items, folder, planned.shards, json.dumps(dataclasses.asdict(recipe))
    lost, kept = 0.0, 0
    if kill:
        first = folder / "shard-0000" / "repetition-0000.npz"
        before = os.times()
        run_until(first.exists, "bench.cluster.plan", *arguments)
        after = os.times()
        lost = after.children_user + after.children_system
        lost -= before.children_user + before.children_system
        kept = len(list(folder.glob("shard-*/repetition-*.npz")))
    seconds, peak, learned = json.loads(run_module("bench.cluster.plan", *arguments))
    return {
        "build_seconds": lost + seconds,
        "repetitions learned": kept + learned,
        "build_worker_bytes": peak,
    }


def _search(
    items: Path, folder: Path, recipe: irli.Recipe, planned: ClusterPlan
) -> dict[str, float]:
    """Search all shards in one call."""
    queries = make_skewed(BATCH, planned.dim, part=QUERIES)
    index = ShardedIndex(recipe=recipe, shards=planned.shards)
    learn = _learn_from(recipe, planned.dim)
    # It finds the finished shards there.
    index.fit(str(items), queries=learn, threads=1, checkpoint=folder)
    setting: dict[str, Any] = {"probes": planned.probes, "candidates": planned.candidates}
    setting |= {"score": "codes", "threads": 1}
    if recipe.search == "votes":
        setting |= ALL
    single = time_least(lambda: [index.search(query, 10, **setting) for query in queries], 4)
    batch = time_least(lambda: index.search(queries, 10, **setting), 4)
    return {
        "shard_bytes": index.stats()["bytes"] / planned.shards,
        "latency": single / BATCH,
        "batch_latency": batch,
        "throughput": BATCH / batch,
    }


def _search_each(
    items: Path, folder: Path, recipe: irli.Recipe, planned: ClusterPlan
) -> dict[str, float]:
    """Search one shard after the other; print the recall of all together."""
    queries = make_skewed(BATCH, planned.dim, part=QUERIES)
    setting = {"probes": min(planned.probes, recipe.buckets), "threads": 1, **ALL}
    size, seconds = 0, 0.0
    answers, truth = [], []
    for place in sorted(folder.glob("shard-*")):
        index = irli.VectorIndex.load(place / "finished" / "index")
        size += index.stats()["bytes"]
        index.search(queries, 10, **setting)  # maps the vectors
        started = time.process_time()
        answers.append(index.search(queries, 10, **setting))
        seconds += time.process_time() - started
        truth.append(index.search(queries, 10, exact=True))
    (_, found), (_, near) = merge(answers, 10, "l2"), merge(truth, 10, "l2")
    say(f"recall10@10 {recall(found, near, 10):.3f}, m = {planned.probes}")
    return {"shard_bytes": size / planned.shards, "throughput": BATCH / seconds}


def print_build(items: str, folder: str, shards: str, settings: str) -> None:
    """Build shards in this process; print the seconds, the most memory and what was learned."""
    peak, learned = 0, 0
    learn_repetitions = runs.learn_repetitions

    def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, psutil.Process().memory_info().rss)
            time.sleep(0.5)

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal learned
        found = learn_repetitions(*arguments, **options)
        learned += len(found)
        return found

    recipe = irli.Recipe(**json.loads(settings))
    learn = _learn_from(recipe, np.load(items, mmap_mode="r").shape[1])
    job, _ = make_vector_job(
        Path(folder),
        items,
        None,
        learn,
        None,
        metric="l2",
        recipe=recipe,
        shards=int(shards),
        threads=1,
        device="cpu",
    )
    warm = make_skewed(min(5000, job.source.rows), job.source.dim)
    irli.VectorIndex(recipe=irli.recipe(epochs=2)).fit(warm, threads=1)  # loads what a build needs
    runs.learn_repetitions = count
    threading.Thread(target=watch, daemon=True).start()
    started = time.thread_time()  # that of this thread, without the watch
    build(job, None, progress=False)
    print(json.dumps([time.thread_time() - started, peak, learned]))


if __name__ == "__main__":
    print_build(*sys.argv[1:])
