"""Planning an index over many machines: from measured costs to time, memory and speed."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from irli.base.checks import check_float, check_int
from irli.base.recipe import Recipe
from irli.cluster.costs import (
    Costs,
    build_bytes,
    finish_work,
    learn_work,
    prepare_work,
    search_work,
)
from irli.engine.pq import most_pieces
from irli.engine.prefilter import LONG
from irli.errors import InvalidParameter

_ROOM = 0.8  # of the memory of a machine that may be used
_ID, _ENTRY, _DISTANCE = 8, 4, 4  # bytes


@dataclass(frozen=True)
class Machines:
    """What the index shall run on.

    Attributes
    ----------
    count, cores : machines, and cores of each
    memory : bytes of each
    round_trip : seconds from the caller to a machine and back
    bandwidth : bytes a second at the caller
    call : seconds that Ray needs for a call to a shard, besides
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
    """An index over machines, and what is to be expected of it. Times are in seconds."""

    items: int
    dim: int
    shards: int
    repetitions: int
    buckets: int
    probes: int
    candidates: int  # items of each shard whose vectors are looked at for a query
    replicas: int
    batch: int
    build_seconds: float
    build_worker_bytes: float
    build_side_by_side: int  # steps that run at the same time
    disk_bytes: float
    shard_bytes: float
    machine_bytes: float
    fits: bool
    scanned: float  # entries read for a query in all shards
    latency: float  # of a single query
    batch_latency: float
    throughput: float  # queries a second, in batches

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
    """Say what to expect of an index of `items` vectors; what is not given is recommended.

    Parameters
    ----------
    costs : Costs
        Measured for the dimension of the vectors and the recipe.
    recipe : Recipe
        Its repetitions (R) and, unless 0, buckets (B) are those of each shard.
    shards : int, optional
        P; by default one for each machine, or as many more as its memory asks for.
    probes : int, optional
        m; by default what recall 0.95 took on generated vectors. Your data may need other ones.
    threads : int
        Of each step of the build.
    """
    check_int("items", items, at_least=1, owner="plan")
    if recipe.name != costs.recipe:
        raise InvalidParameter(
            f"The costs must be those of the recipe '{recipe.name}'. Got costs of "
            f"'{costs.recipe}' instead. Have them measured again, in another file."
        )
    if shards is None:
        shards = _choose_shards(costs, recipe, machines, items)
    check_int("shards", shards, at_least=1, at_most=items, owner="plan")
    own = -(-items // shards)
    chosen = recipe.resolve(own, costs.dim)
    m = min(probes or max(1, round(costs.probes)), chosen.buckets)
    worker, whole = count_worker_bytes(costs, chosen, own), count_shard_bytes(costs, chosen, own)
    each = -(-shards * replicas // machines.count)
    side = max(1, min(machines.cores // threads, int(_ROOM * machines.memory / worker)))
    entries = chosen.repetitions * m * own * chosen.buckets_per_item / chosen.buckets
    exact = costs.distinct * entries
    if chosen.pieces != 0:  # codes choose them
        exact = min(exact, costs.candidates)
    waves = math.ceil(each / machines.cores)  # shards of one machine that must take turns

    def compute(queries: int) -> float:
        """Return the seconds of one core for a batch in one shard."""
        work = search_work(chosen, entries, exact, queries)
        return queries * _price(costs.search, work)

    def merging(queries: int) -> float:
        return _price(costs.merge, [1.0, queries * shards * k]) if shards > 1 else 0.0

    def latency(queries: int) -> float:
        sent = shards * queries * (costs.dim * _DISTANCE + k * (_ID + _DISTANCE))
        network = machines.round_trip + sent / machines.bandwidth if machines.bandwidth else 0.0
        return compute(queries) * waves + merging(queries) + network + machines.call

    cores_for_each = machines.cores * machines.count / (shards * replicas)
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
        build_seconds=_predict_build(costs, chosen, own, shards, machines.count * side) / threads,
        build_worker_bytes=worker,
        build_side_by_side=min(machines.count * side, shards * chosen.repetitions),
        disk_bytes=shards * (whole + 2 * 4 * own * costs.dim),
        shard_bytes=whole,
        machine_bytes=each * whole,
        fits=each * whole <= _ROOM * machines.memory and worker <= _ROOM * machines.memory,
        scanned=shards * entries,
        latency=latency(1),
        batch_latency=latency(batch),
        throughput=batch / max(compute(batch) / (cores_for_each * replicas), merging(batch), 1e-12),
    )


def count_shard_bytes(costs: Costs, recipe: Recipe, items: int) -> float:
    """Return what the index of a shard holds: vectors, ids, entries, codes, routers."""
    features = recipe.linear + recipe.hidden
    routers = features * (costs.dim + features + recipe.buckets)
    entries = recipe.repetitions * recipe.buckets_per_item * items
    pieces = most_pieces(costs.dim) if recipe.pieces is None else recipe.pieces
    codes = entries * pieces / 2  # 4 bits each
    if pieces and costs.dim >= LONG:
        codes += items * costs.dim  # the vectors in 8 bits
    numbers = entries + recipe.repetitions * routers
    return 4 * items * costs.dim + _ID * items + _ENTRY * numbers + codes


def count_worker_bytes(costs: Costs, recipe: Recipe, items: int) -> float:
    """Return the private memory of the largest step of a shard's build."""
    return costs.base_bytes + build_bytes(items, costs.dim, recipe)


def _predict_build(costs: Costs, recipe: Recipe, own: int, shards: int, places: int) -> float:
    """Return the time of all steps: shards take turns, and so do repetitions, where they must."""
    prepare = _price(costs.prepare, prepare_work(own, recipe))
    learn = _price(costs.learn, learn_work(own, recipe))
    finish = _price(costs.finish, finish_work(own))
    turns = math.ceil(shards / places)
    if recipe.boost or recipe.trunk == "shared" or recipe.repetitions == 1:
        return turns * (prepare + recipe.repetitions * learn + finish)
    return turns * (prepare + finish) + math.ceil(shards * recipe.repetitions / places) * learn


def _choose_shards(costs: Costs, recipe: Recipe, machines: Machines, items: int) -> int:
    """Return the least multiple of the machines whose shards fit into memory."""
    shards = machines.count
    while shards < items:
        own = -(-items // shards)
        resolved = recipe.resolve(own, costs.dim)
        if count_worker_bytes(costs, resolved, own) <= _ROOM * machines.memory:
            return shards
        shards += machines.count
    return items


def _price(costs: tuple[float, ...], work: list[float]) -> float:
    return sum(cost * amount for cost, amount in zip(costs, work, strict=True))
