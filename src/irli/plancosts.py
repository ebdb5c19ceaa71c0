"""What building and searching cost on this machine, measured on small indexes of generated vectors.

The work of each step is known from the sizes: so many pairs to compare, so many buckets to score.
What a unit of work costs is fitted to a few real builds and searches on one thread, in seconds of
processor time, which other programs on the machine disturb least.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from irli import clusterbuild, storage
from irli.clusterbuild import Assembly, Job
from irli.clusterfiles import Source
from irli.clustermerge import merged
from irli.clusterserve import Here
from irli.config import Recipe
from irli.errors import ClusterError, FormatError
from irli.partition import Partition, kept_buckets
from irli.problem import Held
from irli.progress import Progress, track
from irli.searching import SearchParameters
from irli.vectors import SearchResult, VectorIndex

log = logging.getLogger(__name__)

_HELD = 500  # queries that are held out and answered exactly
_SMALL = 32_768  # so many training queries are all drawn in an epoch, of more only half
_CODED = 32_768  # items that codewords are learned from, at most
_SAMPLE = 64  # k-means looks at so many vectors for each bucket
_KMEANS = 10  # times
_ENLARGED = (
    12  # copies of each item in the indexes that searches are measured on: out of all caches
)
_APART = 0.3  # how far these lie from each other: within a bucket, but no equals
_BATCH = 128  # queries
_REPEATS = 2
# (items, buckets, epochs, epochs between re-partitions): small, but enough for codes, and chosen so
# that no two kinds of work grow together.
_BUILDS = (
    (5_000, 64, 2, 2),
    (8_000, 512, 6, 6),
    (16_000, 128, 4, 2),
    (16_000, 512, 2, 2),
    (64_000, 256, 4, 4),
    (12_000, 1024, 2, 1),
    (24_000, 1024, 4, 2),
)
_SEARCHED = (2, 6)  # of these builds: with few buckets and with many
_PROBES = (1, 8, 32)
_FEW = 20  # exact distances
_MERGES = 50
_WATCHED = ((5_000, 64), (16_000, 512), (32_000, 1024))  # items and buckets of builds for memory
_GLANCE = 0.1  # seconds between two looks at it
_UNITS = {"prepare": 2, "learn": 5, "finish": 3, "search": 5, "merge": 2}  # kinds of work


@dataclass(frozen=True)
class Costs:
    """Seconds for a unit of each kind of work, for vectors of one dimension and one recipe.

    Attributes
    ----------
    prepare, learn, finish, search : seconds per unit, in the order of the functions `*_work`
    merge : seconds to merge the answers of shards: for a call, and for each answer
    base_bytes : what a worker holds besides what `build_bytes` counts
    probes : buckets of each repetition that recall 0.95 at k = 10 took on generated vectors
    candidates : items whose vectors it looked at
    distinct : share of the read entries that are distinct items
    """

    dim: int
    recipe: str
    prepare: tuple[float, ...]
    learn: tuple[float, ...]
    finish: tuple[float, ...]
    search: tuple[float, ...]
    merge: tuple[float, ...]
    base_bytes: int
    probes: float
    candidates: float
    distinct: float

    def save(self, path: Path) -> None:
        """Write the costs as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read what `save` wrote."""
        try:
            said = json.loads(path.read_text())
            costs = cls(**(said | {name: tuple(said[name]) for name in _UNITS}))
            if any(len(getattr(costs, name)) != count for name, count in _UNITS.items()):
                raise ValueError("the kinds of work are those of another version")
            return costs
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(
                f"{path} must hold costs that 'irli plan --costs' wrote. It cannot be read: "
                f"{error}. Remove it to have them measured again."
            ) from error


# --- how much work there is ----------------------------------------------------------------------


def prepare_work(items: int, recipe: Recipe) -> list[float]:
    """Pairs of queries and items to compare for exact neighbours, and items to write."""
    return [min(items, recipe.training_points) * items, items]


def learn_work(items: int, recipe: Recipe) -> list[float]:
    """For one repetition: queries drawn in training and buckets scored for them, items assigned and
    buckets scored for them, and what k-means compares."""
    queries = min(items, recipe.training_points)
    drawn = queries
    if recipe.epoch_size:
        drawn = min(queries, recipe.epoch_size, max(_SMALL, queries // 2))
    rounds = recipe.buckets_per_item - 1 + max(0, math.ceil(recipe.epochs / recipe.every) - 1)
    start = min(items, _SAMPLE * recipe.buckets) * _KMEANS if recipe.start == "kmeans" else 0
    return [
        recipe.epochs * drawn,
        recipe.epochs * drawn * recipe.buckets,
        rounds * items,
        rounds * items * recipe.buckets,
        (start + items) * recipe.buckets,
    ]


def finish_work(items: int) -> list[float]:
    """Shards, items that codewords are learned from, and items to write with their codes.

    What more repetitions add to it is small beside what learning them takes.
    """
    return [1, min(items, _CODED), items]


def search_work(recipe: Recipe, scanned: float, candidates: float, queries: int = 1) -> list[float]:
    """For one query: calls, the query itself, buckets to score, entries to read, distances."""
    return [1 / queries, 1, recipe.repetitions * recipe.buckets, scanned, candidates]


def build_bytes(items: int, dim: int, recipe: Recipe) -> float:
    """What the largest step of a shard's build holds besides its base: vectors, training queries
    and their neighbours, the best buckets of each item, weights."""
    queries = min(items, recipe.training_points)
    place = (2 if recipe.buckets <= 1 << 16 else 4) + 4  # a bucket with its chance
    kept = kept_buckets(items, recipe.choices) * place
    return (
        4 * items * dim
        + 4 * queries * dim
        + 24 * queries * recipe.neighbors
        + items * (kept + 8 * recipe.choices)
        + 16 * recipe.buckets * (recipe.linear + recipe.hidden)
    )


# --- what it costs -------------------------------------------------------------------------------


def measured(dim: int, recipe: Recipe, *, progress: Progress = False, seed: int = 0) -> Costs:
    """Measure the costs for vectors of `dim` dimensions: a minute or two on an idle machine."""
    rows: dict[str, list[tuple[list[float], float]]] = {"prepare": [], "learn": [], "finish": []}
    indexes: list[VectorIndex] = []
    with tempfile.TemporaryDirectory() as folder:
        for items, buckets, epochs, every in track(_BUILDS, progress, "measuring"):
            changes: dict[str, Any] = {
                "buckets": buckets,
                "epochs": epochs,
                "every": every,
                "seed": seed,
            }
            chosen = dataclasses.replace(recipe, repetitions=1, **changes)
            job = _job(Path(folder), skewed(items, dim, seed), chosen)
            work = {
                "prepare": prepare_work(items, job.recipe),
                "learn": learn_work(items, job.recipe),
                "finish": finish_work(items),
            }
            for name, seconds in _build(job).items():
                rows[name].append((work[name], seconds))
            indexes.append(VectorIndex.from_folder(storage.read_folder(job.index(0))))
    index = indexes[-1]
    index.tune(0.95, 10)
    for place in _SEARCHED:
        indexes[place].defaults = index.defaults  # the same kind of search
    queries = skewed(200, dim, seed, part=1)
    told = index.explain(queries)
    candidates = float(index.defaults.candidates or told.candidates.mean())
    seen = index.explain(queries, probes=8, candidates=10**9)
    distinct = float(seen.candidates.sum() / max(1, seen.scanned.sum()))
    return Costs(
        dim=dim,
        recipe=recipe.name,
        **{name: _fitted(*zip(*pairs, strict=True)) for name, pairs in rows.items()},
        search=_search_costs([indexes[place] for place in _SEARCHED], candidates, distinct, seed),
        merge=_merge_cost(),
        base_bytes=_base_bytes(dim, recipe),
        probes=float(told.probed.mean()),
        candidates=candidates,
        distinct=distinct,
    )


def _build(job: Job) -> dict[str, float]:
    """Build the one shard of a job; return the processor seconds of each step."""
    seconds = {}
    steps: tuple[tuple[Callable[..., None], list[Any]], ...] = (
        (clusterbuild.prepare, []),
        (clusterbuild.learn, [[0]]),
        (clusterbuild.finish, []),
    )
    for step, more in steps:
        start = process_time()
        step(job, 0, *more)
        seconds[step.__name__] = process_time() - start
    return seconds


def skewed(items: int, dim: int, seed: int = 0, *, part: int = 0) -> NDArray[np.float32]:
    """Make clustered vectors whose clusters differ in size; other parts follow the same law."""
    clusters = 1000
    shape = np.random.default_rng(seed)
    centres = shape.normal(size=(clusters, dim)).astype(np.float32)
    share = 1 / np.arange(1, clusters + 1) ** 0.7
    rng = np.random.default_rng([seed, part, items])
    owner = rng.choice(clusters, size=items, p=share / share.sum())
    noise = rng.standard_normal(size=(items, dim), dtype=np.float32)
    made: NDArray[np.float32] = centres[owner] + np.float32(0.6) * noise
    return made


def _job(folder: Path, vectors: NDArray[np.float32], recipe: Recipe) -> Job:
    place = Path(tempfile.mkdtemp(dir=folder))
    np.save(place / "items.npy", vectors)
    source = Source.of(place / "items.npy")
    resolved = recipe.resolved(*vectors.shape)
    return Job(source, (0, len(vectors)), str(place), "l2", resolved, threads=1)


def _fitted(work: Sequence[list[float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return what a unit of each kind of work costs: never less than nothing, and so that errors
    are small beside what is measured, not beside the largest."""
    matrix, times = np.array(work, dtype=float), np.array(seconds)
    size = matrix.max(axis=0)  # NNLS wants columns of one size
    solution, _ = nnls(matrix / size / times[:, None], np.ones(len(times)))
    return tuple(float(value) for value in solution / size)


def _search_costs(
    indexes: list[VectorIndex], usual: float, distinct: float, seed: int
) -> tuple[float, ...]:
    """Measure searches of shards whose vectors are in no cache."""
    queries = skewed(_BATCH, indexes[0].stats()["dim"], seed, part=2)
    few = max(_FEW, round(usual))
    work, seconds = [], []
    for large in map(_enlarged, indexes):
        with _served(large) as shards:
            for probes in _PROBES:
                for candidates in (_FEW, 2 * few, 8 * few):
                    chosen = large.defaults.changed(probes=probes, candidates=candidates)
                    seen = large.explain(queries, probes=probes, candidates=candidates)
                    read = float(seen.scanned.mean())
                    exact = min(candidates, distinct * read)
                    for count in (1, _BATCH):
                        work.append(search_work(large.recipe, read, exact, count))
                        seconds.append(_best_time(shards, queries, count, chosen))
    return _fitted(work, seconds)


@contextmanager
def _served(index: VectorIndex) -> Iterator[Here]:
    """Serve an index as the only shard of another: calls to a shard cost something, too."""
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        yield Here([Path(folder)], mmap=True, verify=False)


def _best_time(shards: Here, queries: Any, count: int, chosen: SearchParameters) -> float:
    """Return the processor seconds of a query, in batches of `count`."""
    times = []
    for _ in range(_REPEATS):
        start = process_time()
        for low in range(0, len(queries), count):
            shards.call("search", [(queries[low : low + count], 10, chosen, None, 1)], None, False)
        times.append(process_time() - start)
    return min(times) / len(queries)


def _enlarged(index: VectorIndex) -> VectorIndex:
    """Return the index with every item many times over, a little apart."""
    from irli.router import unpack
    from irli.training import Repetition

    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        saved = storage.read_folder(folder, mmap=False)
    vectors, meta = saved.arrays["vectors"], saved.meta
    rng = np.random.default_rng(0)
    many = np.concatenate(
        [
            vectors + _APART * rng.standard_normal(size=vectors.shape, dtype=np.float32)
            for _ in range(_ENLARGED)
        ]
    )
    large = Assembly(meta["metric"], recipe=index.recipe)
    routers = unpack(saved.tensors, meta["linear"], meta["stages"])
    offsets, items = saved.arrays["offsets"], saved.arrays["items"]
    repetitions = []
    for starts, router in zip(offsets, routers, strict=True):
        owner = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        own = items[starts[0] : starts[-1]]
        order = np.argsort(own, kind="stable")
        per_item = len(own) // len(vectors)
        assignment = np.tile(owner[order].reshape(len(vectors), per_item), (_ENLARGED, 1))
        repetitions.append(Repetition(router, Partition(router.buckets, assignment), []))
    held = Held(saved.arrays["held_queries"], saved.arrays["held_rows"])
    large.assemble(many, np.arange(len(many)), held, repetitions)
    large.defaults = index.defaults
    return large


def _merge_cost() -> tuple[float, ...]:
    """Return the seconds to merge the answers of shards: for a call, and for each answer."""
    shards, k = 8, 10
    rng = np.random.default_rng(0)
    work, seconds = [], []
    for queries in (1, 8, _BATCH):
        parts = [
            SearchResult(
                np.sort(rng.random((queries, k), dtype=np.float32)),
                rng.integers(10**6, size=(queries, k)),
            )
            for _ in range(shards)
        ]
        start = process_time()
        for _ in range(_MERGES):
            merged(parts, k, "l2")
        seconds.append((process_time() - start) / _MERGES)
        work.append([1.0, float(queries * shards * k)])
    return _fitted(work, seconds)


def _base_bytes(dim: int, recipe: Recipe) -> int:
    """Return what a worker holds besides what `build_bytes` counts: torch, compiled kernels.

    It is what the largest of three small builds in a process of their own had to hold.
    """
    asked = json.dumps([dim, dataclasses.asdict(recipe), _WATCHED])
    code = f"from irli.plancosts import print_peak; print_peak({asked!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if run.returncode:
        said = run.stderr.strip().splitlines() or [f"it ended with {run.returncode}"]
        raise ClusterError(
            f"The memory of a worker cannot be measured: {said[-1]}. There must be room for a "
            "process with torch, and for some small builds in the temporary folder."
        )
    return int(run.stdout.splitlines()[-1])


def print_peak(asked: str) -> None:
    """Build in this process; print the most private memory that it held, less what is counted."""
    dim, settings, builds = json.loads(asked)
    recipe = dataclasses.replace(Recipe(**settings), repetitions=1, epochs=2, every=1)
    most = float(_private())
    with tempfile.TemporaryDirectory() as folder:
        for items, buckets in builds:
            chosen = dataclasses.replace(recipe, buckets=buckets)
            job = _job(Path(folder), skewed(items, dim), chosen)
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(_build, job)
                while not running.done():
                    most = max(most, _private() - build_bytes(items, dim, job.recipe))
                    sleep(_GLANCE)
                running.result()
    print(int(most))  # for `_base_bytes`, which reads it in another process


def _private() -> int:
    """Return the bytes of memory that only this process has."""
    with open(f"/proc/{os.getpid()}/smaps_rollup") as file:
        private = [int(line.split()[1]) for line in file if line.startswith("Private_")]
    return 1024 * sum(private)
