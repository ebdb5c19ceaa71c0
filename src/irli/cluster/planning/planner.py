"""make_plan: from measured costs, predict shards, build time, memory and speed of a cluster."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from irli.base.checks import check_float, check_int
from irli.base.recipe import Recipe
from irli.cluster.build.memory import count_build_bytes, count_mapped_bytes, count_step_base
from irli.cluster.planning.costs import (
    Costs,
    count_finish_work,
    count_learn_work,
    count_prepare_work,
    count_search_work,
)
from irli.engine.pq import most_pieces
from irli.engine.prefilter import LONG
from irli.errors import InvalidParameter
from irli.learning.sizes import count_linear

_USABLE = 0.8  # share of a machine's memory that may be used
_ID, _ENTRY, _DISTANCE = 8, 4, 4  # bytes of each


@dataclass(frozen=True)
class Machines:
    """The machines of a cluster.

    Attributes
    ----------
    count, cores : int
        Machines, and cores of each.
    memory : float
        Bytes of each machine.
    round_trip : float
        Seconds from the caller to a machine and back.
    bandwidth : float
        Bytes per second at the caller.
    call : float
        Seconds that Ray adds to a call to a shard.
    """

    count: int = 1
    cores: int = 8
    memory: float = 64e9
    round_trip: float = 0.5e-3
    bandwidth: float = 10e9 / 8
    call: float = 0.5e-3

    def __post_init__(self) -> None:
        check_int("count", self.count, at_least=1, owner="Machines")
        check_int("cores", self.cores, at_least=1, owner="Machines")
        for name in ("memory", "round_trip", "bandwidth", "call"):
            check_float(name, getattr(self, name), at_least=0.0, owner="Machines")


@dataclass(frozen=True)
class ClusterPlan:
    """An index on a cluster, and its predicted time, memory and speed. Times are in seconds."""

    items: int
    dim: int
    shards: int
    repetitions: int
    buckets: int
    probes: int
    candidates: int  # exact distances per query in each shard
    replicas: int
    batch: int
    build_seconds: float
    prepare_seconds: float  # of the build: finding neighbours, writing files
    learn_seconds: float
    finish_seconds: float
    build_worker_bytes: float
    build_side_by_side: int  # steps that run in parallel
    disk_bytes: float
    shard_bytes: float
    machine_bytes: float
    fits: bool
    scanned: float  # entries per query, in all shards
    latency: float  # of a single query
    batch_latency: float
    throughput: float  # queries per second, in batches

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        return dataclasses.asdict(self)


def make_plan(
    costs: Costs,
    recipe: Recipe,
    machines: Machines,
    *,
    items: int,
    shards: int | None = None,
    probes: int | None = None,
    replicas: int = 1,
    batch: int = 256,
    k: int = 10,
    threads: int = 1,
) -> ClusterPlan:
    """Predict time, memory and speed of an index of `items` vectors, and recommend its settings.

    Parameters
    ----------
    costs : Costs
        Measured with this recipe, for vectors of this dimension.
    recipe : Recipe
        The recipe of each shard: its repetitions (R) and, unless 0, its buckets (B).
    shards : int, optional
        P. By default one for each machine, or a multiple if memory requires it.
    probes : int, optional
        m. By default as many as recall 0.95 needed on generated vectors. Your data may need more
        or fewer.
    threads : int
        Threads of each build step.
    """
    check_int("items", items, at_least=1, owner="plan")
    if recipe.name != costs.recipe:
        raise InvalidParameter(
            f"The costs must be those of the recipe '{recipe.name}'. Got costs of "
            f"'{costs.recipe}' instead. Measure them again, into another file."
        )
    if shards is None:
        shards = _choose_shards(costs, recipe, machines, items)
    check_int("shards", shards, at_least=1, at_most=items, owner="plan")
    shard_items = -(-items // shards)
    chosen = recipe.resolve(shard_items, costs.dim)
    m = min(probes or max(1, round(costs.probes)), chosen.buckets)
    worker = count_worker_bytes(costs, chosen, shard_items)
    shard_bytes = count_shard_bytes(costs, chosen, shard_items)
    problem = count_mapped_bytes(shard_items, costs.dim, chosen)  # files that learning reads
    each = -(-shards * replicas // machines.count)  # shards and replicas on a machine
    usable = _USABLE * machines.memory
    workers = machines.count * max(1, min(machines.cores // threads, int(usable / worker)))
    entries = chosen.repetitions * m * shard_items * chosen.buckets_per_item / chosen.buckets
    exact = costs.distinct * entries
    if chosen.pieces != 0:  # codes choose the candidates
        exact = min(exact, costs.candidates)
    waves = math.ceil(each / machines.cores)  # rounds in which the shards of a machine run

    def compute_search(queries: int) -> float:
        """Return the seconds of one core for a batch in one shard."""
        work = count_search_work(chosen, entries, exact, queries)
        return queries * _sum_costs(costs.search, work)

    def compute_merge(queries: int) -> float:
        return _sum_costs(costs.merge, [1.0, queries * shards * k]) if shards > 1 else 0.0

    def compute_latency(queries: int) -> float:
        sent = shards * queries * (costs.dim * _DISTANCE + k * (_ID + _DISTANCE))
        network = machines.round_trip + sent / machines.bandwidth if machines.bandwidth else 0.0
        return compute_search(queries) * waves + compute_merge(queries) + network + machines.call

    steps = _predict_steps(costs, chosen, machines, shard_items, shards, workers, threads)
    cores_for_each = machines.cores * machines.count / (shards * replicas)
    shard_seconds = compute_search(batch) / (cores_for_each * replicas)
    return ClusterPlan(
        items=items,
        dim=costs.dim,
        shards=shards,
        repetitions=chosen.repetitions,
        buckets=chosen.buckets,
        probes=m,
        candidates=max(1, round(exact)),
        replicas=replicas,
        batch=batch,
        build_seconds=sum(steps),
        prepare_seconds=steps[0],
        learn_seconds=steps[1],
        finish_seconds=steps[2],
        build_worker_bytes=worker,
        build_side_by_side=min(workers, shards * chosen.repetitions),
        disk_bytes=shards * (shard_bytes + problem + 4 * shard_items * costs.dim),
        shard_bytes=shard_bytes,
        machine_bytes=each * shard_bytes,
        fits=each * shard_bytes <= usable and worker <= usable,
        scanned=shards * entries,
        latency=compute_latency(1),
        batch_latency=compute_latency(batch),
        throughput=batch / max(shard_seconds, compute_merge(batch), 1e-12),
    )


def count_shard_bytes(costs: Costs, recipe: Recipe, items: int) -> float:
    """Return the bytes of a shard's index: vectors, ids, entries, codes, routers."""
    features = count_linear(costs.dim, recipe) + recipe.hidden
    routers = features * (costs.dim + features + recipe.buckets)
    entries = recipe.repetitions * recipe.buckets_per_item * items
    pieces = most_pieces(costs.dim) if recipe.pieces is None else recipe.pieces
    codes = entries * pieces / 2  # 4 bits each
    if pieces and costs.dim >= LONG:
        codes += items * costs.dim  # 8-bit copies of the vectors
    numbers = entries + recipe.repetitions * routers
    return 4 * items * costs.dim + _ID * items + _ENTRY * numbers + codes


def count_worker_bytes(costs: Costs, recipe: Recipe, items: int) -> float:
    """Return the memory that the largest step of a shard's build needs."""
    return count_step_base("cpu") + count_build_bytes(items, costs.dim, recipe)


def _predict_steps(
    costs: Costs,
    recipe: Recipe,
    machines: Machines,
    shard_items: int,
    shards: int,
    workers: int,
    threads: int,
) -> tuple[float, float, float]:
    """Return the seconds of the steps prepare, learn and finish of all shards.

    `prepare` takes all cores of a machine, so there is one on each at a time. The other steps take
    `threads` each, and run on so many workers side by side.
    """
    prepare = _sum_costs(costs.prepare, count_prepare_work(shard_items, recipe))
    learn = _sum_costs(costs.learn, count_learn_work(shard_items, recipe))
    finish = _sum_costs(costs.finish, count_finish_work(shard_items, recipe))
    rounds = math.ceil(shards / workers)
    learned = math.ceil(shards * recipe.repetitions / workers)
    if recipe.boost or recipe.trunk == "shared" or recipe.repetitions == 1:
        learned = rounds * recipe.repetitions
    return (
        math.ceil(shards / machines.count) * prepare / max(machines.cores, threads),
        learned * learn / threads,
        rounds * finish / threads,
    )


def _choose_shards(costs: Costs, recipe: Recipe, machines: Machines, items: int) -> int:
    """Return the smallest multiple of the machines whose shards can be built in memory."""
    shards = machines.count
    while shards < items:
        shard_items = -(-items // shards)
        resolved = recipe.resolve(shard_items, costs.dim)
        if count_worker_bytes(costs, resolved, shard_items) <= _USABLE * machines.memory:
            return shards
        shards += machines.count
    return items


def _sum_costs(costs: tuple[float, ...], work: list[float]) -> float:
    return sum(cost * amount for cost, amount in zip(costs, work, strict=True))
