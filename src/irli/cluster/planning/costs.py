"""Costs: count the work of builds and searches, and measure the seconds per unit on this machine.

The sizes of an index give the work of each step: pairs to compare, buckets to score, and so on. The
cost of a unit is fitted to a few real builds and searches of generated vectors. They run on one
thread and are timed in processor seconds, which other programs disturb the least.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from irli.base.files import open_output
from irli.base.folder import read_folder
from irli.base.parts.local import LocalParts
from irli.base.progress import Progress, track
from irli.base.recipe import Recipe
from irli.cluster.build.build import finish, learn, prepare
from irli.cluster.build.memory import count_training_queries
from irli.cluster.build.vector_job import VectorJob, make_vector_job
from irli.engine.pq import SAMPLE as CODED_SAMPLE
from irli.engine.router import unpack
from irli.errors import FormatError
from irli.learning.neighbors import count_compared
from irli.learning.partition import Partition
from irli.learning.repetition import Repetition
from irli.learning.sizes import (
    KMEANS_ITERATIONS,
    KMEANS_ROUNDS,
    KMEANS_SAMPLE,
    count_drawn,
    count_repartitions,
)
from irli.vectors.build.assemble import assemble
from irli.vectors.build.ground_truth import NEIGHBORS, find_truth
from irli.vectors.build.held_out import hold_out
from irli.vectors.contents import pack_vectors
from irli.vectors.index import VectorIndex
from irli.vectors.parameters import SearchParameters
from irli.vectors.parts.merge import merge
from irli.vectors.parts.part import open_part
from irli.vectors.results import SearchResult

_ENLARGED = 12  # copies of each item in measured searches, so that vectors exceed the caches
_NOISE = 0.3  # standard deviation between the copies of an item: distinct, but in one bucket
_BATCH = 64  # queries
_REPEATS = 2  # timings, of which the shortest counts
# Builds that are measured: (items, training queries, buckets, epochs, epochs between
# re-partitions). They are small, but large enough for codes, and one is large enough for neighbours
# of clusters. No two kinds of work grow together, so their costs can be separated.
_BUILDS = (
    (5_000, 5_000, 64, 2, 2),
    (6_000, 2_000, 512, 8, 8),
    (12_000, 6_000, 128, 4, 1),
    (8_000, 8_000, 512, 1, 1),
    (40_000, 6_000, 256, 2, 2),
    (8_000, 2_000, 1024, 3, 1),
    (12_000, 1_000, 1024, 2, 2),
)
_SEARCHED = (2, 5)  # positions of the builds that are searched: few buckets, and many
_PROBES = (1, 8, 32)
_FEW, _ALL = 20, 10**9  # candidates, at least, and all that is read
_PAPER_PROBES = 20  # the most that the paper probes of Deep-1B
_MERGES = 50  # merges that are timed together
_UNITS = {"prepare": 3, "learn": 5, "finish": 3, "search": 5, "merge": 2}  # kinds of work in each


@dataclass(frozen=True)
class Costs:
    """Seconds per unit of each kind of work, for one recipe and vectors of one dimension.

    Attributes
    ----------
    prepare, learn, finish, search : tuple of float
        Seconds per unit, in the order of `count_prepare_work` and its siblings.
    merge : tuple of float
        Seconds to merge the results of shards: per call, and per result.
    probes : float
        Buckets probed for recall 0.95 at k = 10 on generated vectors; 20, as in the paper, by
        votes, where several repetitions decide.
    candidates : float
        Exact distances computed in that search.
    distinct : float
        Share of the scanned entries that are distinct items.
    """

    dim: int
    recipe: str
    prepare: tuple[float, ...]
    learn: tuple[float, ...]
    finish: tuple[float, ...]
    search: tuple[float, ...]
    merge: tuple[float, ...]
    probes: float
    candidates: float
    distinct: float

    def save(self, path: Path) -> None:
        """Write the costs as JSON."""
        with open_output(path) as file:
            file.write((json.dumps(dataclasses.asdict(self), indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read what `save` wrote."""
        try:
            fields = json.loads(path.read_text())
            costs = cls(**(fields | {name: tuple(fields[name]) for name in _UNITS}))
            reason = "the kinds of work are those of another version"
            if all(len(getattr(costs, name)) == count for name, count in _UNITS.items()):
                return costs
        except (ValueError, TypeError, KeyError) as error:
            reason = str(error)
        raise FormatError(
            f"{path} must hold costs that 'irli plan --costs' wrote. It cannot be read: {reason}. "
            "Remove it, and the costs are measured again."
        )


# --- counting work -------------------------------------------------------------------------------


def count_prepare_work(items: int, recipe: Recipe) -> list[float]:
    """Return the work of `prepare`: pairs compared to find neighbours, queries, items written."""
    queries = count_training_queries(items, recipe)
    return [count_compared(queries, items, recipe.neighbor_recall), queries, items]


def count_learn_work(items: int, recipe: Recipe) -> list[float]:
    """Return the work of `learn` for one repetition.

    That is: queries drawn in training, buckets scored for them, items assigned to buckets, buckets
    scored for them, and pairs compared by k-means, at most.
    """
    drawn = count_drawn(count_training_queries(items, recipe), recipe)
    rounds = recipe.buckets_per_item - 1 + count_repartitions(recipe)
    clustered = 0
    if recipe.start == "kmeans":
        passes = KMEANS_ITERATIONS + (KMEANS_ROUNDS if recipe.router == "warm" else 0)
        clustered = min(items, KMEANS_SAMPLE * recipe.buckets) * passes + items
    return [
        recipe.epochs * drawn,
        recipe.epochs * drawn * recipe.buckets,
        rounds * items,
        rounds * items * recipe.buckets,
        clustered * recipe.buckets,
    ]


def count_finish_work(items: int, recipe: Recipe) -> list[float]:
    """Return the work of `finish`: shards, items that train the codes, and items written.

    Further repetitions add little, compared with the work of learning them.
    """
    return [1, min(items, CODED_SAMPLE) if recipe.pieces != 0 else 0, items]


def count_search_work(
    recipe: Recipe, scanned: float, candidates: float, queries: int = 1
) -> list[float]:
    """Return the work per query: calls, queries, buckets scored, entries scanned, distances."""
    return [1 / queries, 1, recipe.repetitions * recipe.buckets, scanned, candidates]


# --- measuring costs -----------------------------------------------------------------------------


def measure_costs(dim: int, recipe: Recipe, *, progress: Progress = False, seed: int = 0) -> Costs:
    """Measure the costs for vectors of `dim` dimensions, in seconds."""
    rows: dict[str, list[tuple[list[float], float]]] = {"prepare": [], "learn": [], "finish": []}
    indexes: list[VectorIndex] = []
    with tempfile.TemporaryDirectory() as folder:
        for items, queries, buckets, epochs, every in track(_BUILDS, progress, "measuring"):
            changes: dict[str, Any] = {
                "training_points": queries,
                "buckets": buckets,
                "epochs": epochs,
                "repartition_every": every,
                "seed": seed,
            }
            chosen = dataclasses.replace(recipe, repetitions=1, **changes)
            job = _make_job(Path(folder), make_skewed(items, dim, seed), chosen)
            work = {
                "prepare": count_prepare_work(items, job.recipe),
                "learn": count_learn_work(items, job.recipe),
                "finish": count_finish_work(items, job.recipe),
            }
            for name, seconds in _build(job).items():
                rows[name].append((work[name], seconds))
            indexes.append(VectorIndex.load(job.index(0)))
    index = indexes[-1]
    if recipe.search == "votes":
        probes = min(_PAPER_PROBES, index.recipe.buckets)
        index.defaults = index.defaults.replace(probes=probes, score="votes", min_votes=1)
    else:
        index.tune(0.95, 10)
    for place in _SEARCHED:
        indexes[place].defaults = index.defaults  # so that all search in the same way
    asked = make_skewed(200, dim, seed, part=1)
    tuned = index.explain(asked)
    candidates = float(index.defaults.candidates or tuned.candidates.mean())
    explained = index.explain(asked, probes=8, candidates=_ALL)
    distinct = float(explained.candidates.sum() / max(1, explained.scanned.sum()))
    return Costs(
        dim=dim,
        recipe=recipe.name,
        **{name: _fit_costs(*zip(*pairs, strict=True)) for name, pairs in rows.items()},
        search=_measure_search([indexes[place] for place in _SEARCHED], candidates, distinct, seed),
        merge=_measure_merge(),
        probes=float(tuned.probed.mean()),
        candidates=candidates,
        distinct=distinct,
    )


def _build(job: VectorJob) -> dict[str, float]:
    """Build the only shard of a job, and return the processor seconds of each step."""
    seconds = {}
    steps: tuple[tuple[Callable[..., None], list[Any]], ...] = (
        (prepare, []),
        (learn, [[0]]),
        (finish, []),
    )
    for step, more in steps:
        start = process_time()
        step(job, 0, *more)
        seconds[step.__name__] = process_time() - start
    return seconds


def make_skewed(items: int, dim: int, seed: int = 0, *, part: int = 0) -> NDArray[np.float32]:
    """Make clustered vectors (items, dim) with clusters of unequal size.

    Another `part` has other vectors of the same distribution.
    """
    clusters = 1000
    shape = np.random.default_rng(seed)
    centres = shape.normal(size=(clusters, dim)).astype(np.float32)
    share = 1 / np.arange(1, clusters + 1) ** 0.7
    rng = np.random.default_rng([seed, part, items])
    owner = rng.choice(clusters, size=items, p=share / share.sum())
    noise = rng.standard_normal(size=(items, dim), dtype=np.float32)
    made: NDArray[np.float32] = centres[owner] + np.float32(0.6) * noise
    return made


def _make_job(folder: Path, vectors: NDArray[np.float32], recipe: Recipe) -> VectorJob:
    """Return a build in one shard, with a learning set if the recipe learns from nothing else."""
    place, given = Path(tempfile.mkdtemp(dir=folder)), None
    if recipe.query_share == 1.0:
        given = make_skewed(recipe.training_points, vectors.shape[1], part=3)
    settings: dict[str, Any] = {"metric": "l2", "shards": 1, "threads": 1, "device": "cpu"}
    job, _ = make_vector_job(place, vectors, None, given, None, recipe=recipe, **settings)
    return job


def _fit_costs(work: Sequence[list[float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return the seconds per unit of each kind of work, by non-negative least squares.

    Relative errors are minimised, so that small measurements count as much as large ones.
    """
    matrix, times = np.array(work, dtype=float), np.array(seconds)
    size = np.maximum(matrix.max(axis=0), 1.0)  # NNLS needs columns of similar size
    solution, _ = nnls(matrix / size / times[:, None], np.ones(len(times)))
    return tuple(float(value) for value in solution / size)


def _measure_search(
    indexes: list[VectorIndex], usual: float, distinct: float, seed: int
) -> tuple[float, ...]:
    """Measure searches of shards whose vectors do not fit into the caches."""
    queries = make_skewed(_BATCH, indexes[0].stats()["dim"], seed, part=2)
    base = max(_FEW, round(usual))
    work, seconds = [], []
    for large in map(_enlarge, indexes):
        with _serve(large) as shards:
            for probes in _PROBES:
                for candidates in (_FEW, 8 * base, _ALL):
                    chosen = large.defaults.replace(probes=probes, candidates=candidates)
                    explained = large.explain(queries, probes=probes, candidates=candidates)
                    read = float(explained.scanned.mean())
                    exact = min(candidates, distinct * read)
                    for count in (1, _BATCH):
                        work.append(count_search_work(large.recipe, read, exact, count))
                        seconds.append(_time_search(shards, queries, count, chosen))
    return _fit_costs(work, seconds)


@contextmanager
def _serve(index: VectorIndex) -> Iterator[LocalParts]:
    """Serve an index as a single shard, since calls to a shard cost time too."""
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        yield LocalParts([Path(folder)], open_part, mmap=True, verify=False)


def _time_search(shards: LocalParts, queries: Any, count: int, chosen: SearchParameters) -> float:
    """Return the processor seconds per query, in batches of `count`."""
    times = []
    for _ in range(_REPEATS):
        start = process_time()
        for low in range(0, len(queries), count):
            part = queries[low : low + count]
            shards.call("answer", [("search", 10, part, chosen, None, 1)], None, False)
        times.append(process_time() - start)
    return min(times) / len(queries)


def _enlarge(index: VectorIndex) -> VectorIndex:
    """Return the index with several noisy copies of each item, in the buckets of the original."""
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        saved = read_folder(folder, mmap=False)
    vectors, meta = saved.arrays["vectors"], saved.meta
    rng = np.random.default_rng(0)
    many = np.concatenate(
        [
            vectors + _NOISE * rng.standard_normal(size=vectors.shape, dtype=np.float32)
            for _ in range(_ENLARGED)
        ]
    )
    routers = unpack(saved.tensors, meta["linear"])
    offsets, items = saved.arrays["offsets"], saved.arrays["items"]
    repetitions = []
    for starts, router in zip(offsets, routers, strict=True):
        bucket = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        entries = items[starts[0] : starts[-1]]
        order = np.argsort(entries, kind="stable")
        counts = np.bincount(entries, minlength=len(vectors))
        # Items that missed themselves have one more bucket, which is left out here.
        places = (np.cumsum(counts) - counts)[:, None] + np.arange(counts.min())
        assignment = np.tile(bucket[order][places], (_ENLARGED, 1))
        repetitions.append(Repetition(router, Partition(router.buckets, assignment), []))
    held = hold_out(saved.arrays["tuning_queries"])
    contents = assemble(
        many,
        index.metric,
        index.recipe,
        repetitions,
        ids=np.arange(len(many)),
        held=held,
        truth=find_truth(many, index.metric, *held[:2], NEIGHBORS),
    )
    large = VectorIndex.from_folder(pack_vectors(contents))
    large.defaults = index.defaults
    return large


def _measure_merge() -> tuple[float, ...]:
    """Return the seconds to merge the results of shards: per call, and per result."""
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
            merge(parts, k, "l2")
        seconds.append((process_time() - start) / _MERGES)
        work.append([1.0, float(queries * shards * k)])
    return _fit_costs(work, seconds)
