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
from irli.cluster.build.memory import count_build_bytes, count_step_base
from irli.cluster.build.sources import Source
from irli.cluster.build.workdir import check_space, store, store_sparse
from irli.errors import DimensionMismatch
from irli.learning.repetition import Repetition
from irli.vectors.build.assemble import assemble
from irli.vectors.build.problem import HELD_MOST, HELD_SHARE, VectorProblem, make_problem
from irli.vectors.contents import pack_vectors
from irli.vectors.finders import choose_finder
from irli.vectors.front import check_relevance

_GIVEN = "given"  # the file of the sample queries of a shard


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
    queries : Source or None
        The files of the sample queries, which each step reads by itself.
    held : tuple of int
        The sample queries that no shard learns from.
    ids, relevance : str or None
        Paths of files.
    """

    source: Source
    bounds: tuple[int, ...]
    metric: str
    queries: Source | None = None
    held: tuple[int, ...] = ()
    ids: str | None = None
    relevance: str | None = None

    def describe(self, shard: int) -> list[Any]:
        given = [path and Path(path).name for path in (self.ids, self.relevance)]
        files = [self._list_files(source) for source in (self.source, self.queries)]
        recipe = dataclasses.asdict(self.recipe)
        return [VERSION, files, given, self.held, self.bounds, self.metric, recipe]

    def _list_files(self, source: Source | None) -> list[Any]:
        return [
            # The names of our own files contain their checksum.
            (Path(file.path).name if Path(file.path).parent == Path(self.folder) else list(file))
            for file in (() if source is None else source.files)
        ]

    def make_problem(self, shard: int, folder: Path | None = None) -> VectorProblem:
        start, stop = self.bounds[shard], self.bounds[shard + 1]
        queries, relevance = self._map_queries(start, stop, folder)
        made = make_problem(
            self.source.map(start, stop, self.metric, folder, "items"),
            self.metric,
            self.recipe,
            queries=queries,
            relevance=relevance,
            leave_out=np.array(self.held, dtype=np.int64),
            folder=folder,
            find_neighbors=choose_finder(self.recipe, self.device),
            threads=self.threads,
        )
        if folder is not None:  # they were copied to where training reads them
            (folder / f"{_GIVEN}.npy").unlink(missing_ok=True)
        return made

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

    def _map_queries(
        self, start: int, stop: int, folder: Path | None
    ) -> tuple[NDArray[np.float32] | None, Any]:
        """Return the sample queries, and their relevance for the items of a slice, or None."""
        relevant = None
        if self.relevance is not None:
            relevant = sp.csr_array(sp.load_npz(self.relevance))[:, start:stop]
        # If no item of the slice is relevant to any query, the queries are of no use.
        if self.queries is None or (relevant is not None and not relevant.nnz):
            return None, None
        return self.queries.map(0, self.queries.rows, self.metric, folder, _GIVEN), relevant


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
    given = None if queries is None else _open_queries(queries, source.dim, folder)
    held = () if given is None or shards == 1 else _hold_out(given.rows)
    wanted = None
    if given is not None and relevance is not None:
        checked = as_relevance(relevance, given.rows, source.rows)
        wanted = store_sparse(folder, "relevance", checked)
    asked = 0 if given is None else given.rows
    needed = count_build_bytes(int(max(sizes)), source.dim, resolved, asked)
    job = VectorJob(
        folder=str(folder),
        shards=shards,
        recipe=resolved,
        step_bytes=count_step_base(device) + int(needed),
        threads=threads,
        device=device,
        source=source,
        bounds=bounds,
        metric=metric,
        queries=given,
        held=held,
        ids=named,
        relevance=wanted,
    )
    return job, _read_rows(given, held, source.dim)


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
    if _are_paths(X):
        source = Source.of(X)
        size = 4 * source.rows * source.dim
        check_space(folder, size + size // shards, "the shards")
        return source
    vectors = as_vectors(X, "X")
    size = 4 * vectors.size
    check_space(folder, 2 * size + size // shards, "the vectors and the shards")
    return Source.of(store(folder, "items", vectors))


def _are_paths(given: Any) -> bool:
    several = isinstance(given, list | tuple) and given and isinstance(given[0], str | os.PathLike)
    return isinstance(given, str | os.PathLike) or bool(several)


def _open_queries(queries: Any, dim: int, folder: Path) -> Source:
    """Return the sample queries as files. An array is written to `folder`."""
    if not _are_paths(queries):
        return Source.of(store(folder, "queries", as_vectors(queries, "queries", dim)), "queries")
    given = Source.of(queries, "queries")
    if given.dim != dim:
        raise DimensionMismatch(
            f"The 'queries' parameter must have {dim} dimensions, as the items. Got {given.dim} "
            f"in {given.files[0].path} instead. Pass queries of the same kind."
        )
    return given


def _hold_out(count: int) -> tuple[int, ...]:
    """Return the rows of the sample queries that no shard learns from.

    A single shard holds out queries by itself. Several shards must hold out the same ones, so that
    no shard has learned from them.
    """
    order = np.random.default_rng(0x1D).permutation(count)
    return tuple(np.sort(order[: min(HELD_MOST, int(HELD_SHARE * count))]).tolist())


def _read_rows(source: Source | None, rows: tuple[int, ...], dim: int) -> NDArray[np.float32]:
    if source is None or not rows:
        return np.empty((0, dim), dtype=np.float32)
    return np.concatenate([source.read(row, row + 1) for row in rows])
