"""VectorJob: the inputs of ShardedIndex.fit as files, and the phases of one vector shard."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.checks import as_ids, as_vectors, check_int
from irli.base.folder import VERSION, Folder
from irli.base.recipe import Recipe
from irli.base.sparse import as_relevance
from irli.cluster.build.job import Job
from irli.cluster.build.sources import Source
from irli.cluster.build.workdir import check_space, store, store_sparse
from irli.engine.metric import prepare_vectors
from irli.learning.repetition import Repetition
from irli.vectors.build.assemble import assemble
from irli.vectors.build.problem import HELD_MOST, HELD_SHARE, VectorProblem, make_problem
from irli.vectors.contents import pack_vectors
from irli.vectors.front import check_relevance


@dataclass(frozen=True, kw_only=True)
class VectorJob(Job):
    """How to build each shard of a vector index.

    Attributes
    ----------
    source : Source
        The files of the vectors.
    bounds : tuple of int
        (P + 1,): where the slice of each shard starts, and the end.
    metric : str
    ids, queries, relevance : str or None
        Paths of files.
    """

    source: Source
    bounds: tuple[int, ...]
    metric: str
    ids: str | None = None
    queries: str | None = None
    relevance: str | None = None

    def describe(self, shard: int) -> list[Any]:
        files = [
            # The names of our own files contain their checksum.
            (Path(file.path).name if Path(file.path).parent == Path(self.folder) else list(file))
            for file in self.source.files
        ]
        given = [path and Path(path).name for path in (self.ids, self.queries, self.relevance)]
        recipe = dataclasses.asdict(self.recipe)
        return [VERSION, files, given, self.bounds, self.metric, recipe]

    def make_problem(self, shard: int) -> VectorProblem:
        start, stop = self.bounds[shard], self.bounds[shard + 1]
        queries, relevance = self._read_queries(start, stop)
        if queries is not None:
            queries = prepare_vectors(np.asarray(queries), self.metric)
        return make_problem(
            prepare_vectors(self.source.read(start, stop), self.metric),
            self.metric,
            self.recipe,
            queries=queries,
            relevance=relevance,
            threads=self.threads,
        )

    def assemble(self, shard: int, saved: Path, repetitions: list[Repetition]) -> Folder:
        problem, held, truth = VectorProblem.load(saved)
        start, stop = self.bounds[shard], self.bounds[shard + 1]
        ids = np.arange(start, stop)
        if self.ids is not None:
            ids = np.array(np.load(self.ids, mmap_mode="r")[start:stop])
        contents = assemble(
            problem.items, self.metric, self.recipe, repetitions, ids=ids, held=held, truth=truth
        )
        return pack_vectors(contents)

    def _read_queries(self, start: int, stop: int) -> tuple[NDArray[np.float32] | None, Any]:
        """Return the sample queries, and their relevance for the items of a slice, or None."""
        if self.queries is None:
            return None, None
        queries = np.load(self.queries, mmap_mode="r")
        if self.relevance is None:
            return queries, None
        relevant = sp.csr_array(sp.load_npz(self.relevance))[:, start:stop]
        # If no item of the slice is relevant to any query, the queries are of no use.
        return (queries, relevant) if relevant.nnz else (None, None)


def make_vector_job(
    folder: Path,
    X: Any,
    ids: Any,
    queries: Any,
    relevance: Any,
    *,
    metric: str,
    recipe: Recipe,
    shards: int,
    threads: int,
    device: str,
) -> tuple[VectorJob, NDArray[np.float32]]:
    """Check the inputs of `fit`, and write those that are not in files yet to `folder`.

    Returns
    -------
    VectorJob
    float32 array of shape (v, d)
        Sample queries that no shard learns from.
    """
    check_relevance(relevance, queries, recipe)
    source = _make_source(X, folder, shards)
    owner = f"an index of {source.rows} items"
    check_int("shards", shards, at_least=1, at_most=source.rows, owner=owner)
    bounds = split_rows(source.rows, shards)
    sizes = np.diff(bounds)
    # Resolve for the smallest shard: all shards get the same buckets, and all get codes or none.
    resolved = recipe.resolve(int(min(sizes)), source.dim)
    named = None if ids is None else store(folder, "ids", as_ids(ids, source.rows))
    held, paths = _store_queries(folder, queries, relevance, source, shards)
    job = VectorJob(
        folder=str(folder),
        shards=shards,
        recipe=resolved,
        slice_bytes=4 * source.dim * int(max(sizes)),
        threads=threads,
        device=device,
        source=source,
        bounds=bounds,
        metric=metric,
        ids=named,
        **paths,
    )
    return job, held


def split_rows(rows: int, shards: int) -> tuple[int, ...]:
    """Return where each of P slices starts, and the end. Sizes differ by at most one.

    Examples
    --------
    >>> split_rows(10, 3)
    (0, 3, 6, 10)
    """
    return tuple(rows * shard // shards for shard in range(shards + 1))


def _make_source(X: Any, folder: Path, shards: int) -> Source:
    """Return the vectors as files. An array is written to `folder`, if the build has room there.

    At the least, the folder then holds the array, the vectors of all finished shards, and those of
    a problem.
    """
    listed = isinstance(X, list | tuple) and X and isinstance(X[0], str | os.PathLike)
    if isinstance(X, str | os.PathLike) or listed:
        source = Source.of(X)
        size = 4 * source.rows * source.dim
        check_space(folder, size + size // shards, "the shards")
        return source
    vectors = as_vectors(X, "X")
    size = 4 * vectors.size
    check_space(folder, 2 * size + size // shards, "the vectors and the shards")
    return Source.of(store(folder, "items", vectors))


def _store_queries(
    folder: Path, queries: Any, relevance: Any, source: Source, shards: int
) -> tuple[NDArray[np.float32], dict[str, str]]:
    """Write the sample queries to files. Return the held-out ones, and the paths of the files.

    A single shard holds out queries by itself. Several shards must hold out the same ones, so that
    no shard has learned from them.
    """
    if queries is None:
        return np.empty((0, source.dim), dtype=np.float32), {}
    given = as_vectors(queries, "queries", source.dim)
    order = np.random.default_rng(0x1D).permutation(len(given))
    count = min(HELD_MOST, int(HELD_SHARE * len(given))) if shards > 1 else 0
    held, rest = given[np.sort(order[:count])], np.sort(order[count:])
    paths = {"queries": store(folder, "queries", given[rest])}
    if relevance is not None:
        relevant = as_relevance(relevance, len(given), source.rows)
        paths["relevance"] = store_sparse(folder, "relevance", relevant[rest])
    return held, paths
