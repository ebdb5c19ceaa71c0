"""Building shards of vectors: small steps that leave files.

Each shard goes through the same steps. `prepare` reads its slice of the vectors and finds out what
there is to learn; `learn` trains one repetition, or all heads of a shared trunk; `finish` puts the
index of the shard together. A step whose result is there and intact is not done again, so a lost
worker's steps are simply run once more, and a new driver goes on where the last one stopped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli import storage
from irli.clusterfiles import Source, seal, sealed, unseal
from irli.clusterrun import Steps
from irli.config import Recipe
from irli.errors import ClusterError
from irli.filters import Ids
from irli.learner import learner
from irli.problem import Held, Problem, pose
from irli.vectors import VectorIndex

_BLOCK = 65_536


@dataclass(frozen=True)
class Job:
    """All that a worker must know: small, since it travels to every step.

    Attributes
    ----------
    source : where the vectors are
    bounds : (P + 1,), where the slice of each shard begins
    folder : for working files and finished shards; every machine must see it
    ids, queries, relevance : files, or None
    recipe : resolved, so that all shards have as many buckets
    """

    source: Source
    bounds: tuple[int, ...]
    folder: str
    metric: str
    recipe: Recipe
    threads: int
    device: str = "cpu"
    ids: str | None = None
    queries: str | None = None
    relevance: str | None = None

    @property
    def shards(self) -> int:
        """P."""
        return len(self.bounds) - 1

    @property
    def slice_bytes(self) -> int:
        """What the vectors of the largest shard take."""
        return 4 * self.source.dim * int(max(np.diff(self.bounds)))

    def key(self, shard: int) -> str:
        """Identify what is learned for a shard: results under another key are not used."""
        files = [
            # Our own files are named by their contents.
            (Path(file.path).name if Path(file.path).parent == Path(self.folder) else list(file))
            for file in self.source.files
        ]
        given = [path and Path(path).name for path in (self.ids, self.queries, self.relevance)]
        recipe = dataclasses.asdict(self.recipe)
        said = [storage.VERSION, files, given, self.bounds, self.metric, recipe, shard]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def place(self, shard: int) -> Path:
        """Where the files of a shard are."""
        return Path(self.folder) / f"shard-{shard:04d}"

    def index(self, shard: int) -> Path:
        """Where the finished index of a shard is."""
        return self.place(shard) / "finished" / "index"


def divided(rows: int, shards: int) -> tuple[int, ...]:
    """Return where each of P slices begins, and the end; sizes differ by one at most.

    Examples
    --------
    >>> divided(10, 3)
    (0, 3, 6, 10)
    """
    return tuple(rows * shard // shards for shard in range(shards + 1))


# --- the steps ---------------------------------------------------------------------------------


def prepare(job: Job, shard: int) -> None:
    """Write down what there is to learn: the slice, training queries and what they want."""
    _visible(job)
    folder = job.place(shard) / "problem"
    if _finished(job, shard, verify=True) or sealed(folder, job.key(shard)):
        return
    unseal(job.index(shard).parent)
    folder.mkdir(parents=True, exist_ok=True)
    start, stop = job.bounds[shard], job.bounds[shard + 1]
    queries, relevance = _asked(job, start, stop)
    problem, held = Assembly(job.metric, recipe=job.recipe).posed(
        job.source.read(start, stop), queries, relevance, job.threads
    )
    problem.save(folder)
    np.save(folder / "tune_queries.npy", held.queries)
    np.save(folder / "tune_rows.npy", held.rows)
    seal(folder, job.key(shard))


def learn(job: Job, shard: int, numbers: list[int]) -> None:
    """Learn repetitions of a shard, after those that they learn from."""
    if _finished(job, shard):
        return
    learner(job.device)  # or say what is missing on this machine
    from irli.repetitions import learn_group

    place = job.place(shard)
    key = job.key(shard)
    learn_group(place / "problem", job.recipe, numbers, place, key, job.threads, job.device)


def finish(job: Job, shard: int) -> None:
    """Put the index of a shard together and save it."""
    if _finished(job, shard):
        return
    from irli.repetitions import finished

    place, key = job.place(shard), job.key(shard)
    problem = Problem.load(place / "problem")
    held = Held(
        np.load(place / "problem" / "tune_queries.npy"),
        np.load(place / "problem" / "tune_rows.npy"),
    )
    start, stop = job.bounds[shard], job.bounds[shard + 1]
    ids = np.arange(start, stop)
    if job.ids is not None:
        ids = np.array(np.load(job.ids, mmap_mode="r")[start:stop])
    index = Assembly(job.metric, recipe=job.recipe)
    index.assemble(problem.items, ids, held, finished(place, job.recipe, key))
    index.save(job.index(shard))
    seal(job.index(shard).parent, key)
    _clean(place)


def _finished(job: Job, shard: int, verify: bool = False) -> bool:
    """Whether there is nothing left to do; the first step has compared the checksums."""
    return sealed(job.index(shard).parent, job.key(shard), verify=verify)


def _clean(place: Path) -> None:
    """Remove what only the steps before the last one need."""
    for path in [*place.glob("problem/*"), *place.glob("repetition-*.npz"), *place.glob("*.tmp")]:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # a network file system keeps a file that is still mapped
        (place / "problem").rmdir()


def _visible(job: Job) -> None:
    if not Path(job.folder).is_dir():
        raise ClusterError(
            f"The machine {socket.gethostname()} cannot see the folder {job.folder}, where the "
            "build keeps its files. Pass checkpoint= a folder on a file system that all share."
        )


def _asked(job: Job, start: int, stop: int) -> tuple[NDArray[np.float32] | None, Any]:
    """Return the sample queries, and which items of a slice they want, if that is known."""
    if job.queries is None:
        return None, None
    queries = np.load(job.queries, mmap_mode="r")
    if job.relevance is None:
        return queries, None
    wanted = sp.csr_array(sp.load_npz(job.relevance))[:, start:stop]
    # Where nobody wants anything, there is nothing to learn from the queries.
    return (queries, wanted) if wanted.nnz else (None, None)


class Assembly(VectorIndex):
    """`VectorIndex.fit` in parts, with files between them."""

    def posed(
        self,
        X: NDArray[np.float32],
        queries: NDArray[np.float32] | None,
        relevance: Any,
        threads: int,
    ) -> tuple[Problem, Held]:
        """Return what there is to learn, and the queries to tune by."""
        given = None if queries is None else self._prepared(np.asarray(queries))
        vectors = X
        if self.metric == "cosine":
            vectors = np.empty_like(X)
            for start in range(0, len(X), _BLOCK):  # what a block needs beside it is little
                vectors[start : start + _BLOCK] = self._prepared(X[start : start + _BLOCK])
        return pose(
            vectors, self.metric, self.recipe, queries=given, relevance=relevance, threads=threads
        )

    def assemble(
        self,
        vectors: NDArray[np.float32],
        ids: NDArray[np.int64],
        held: Held,
        repetitions: list[Any],
    ) -> None:
        """Make the index of what was learned; its search is not tuned yet."""
        self._ids, self._held = Ids(ids), held
        self.history = [entry for repetition in repetitions for entry in repetition.history]
        self._freeze(vectors, repetitions)


STEPS = Steps(prepare, learn, finish)


# --- files ---------------------------------------------------------------------------------------


def clear(folder: Path) -> None:
    """Remove all that a build has left in `folder`, when its shards are saved elsewhere."""
    for path in folder.glob("shard-[0-9]*"):
        shutil.rmtree(path)
    for name in ("items", "ids", "queries", "relevance", "rows", "labels"):
        for path in folder.glob(f"{name}.*.np[yz]"):
            path.unlink()
