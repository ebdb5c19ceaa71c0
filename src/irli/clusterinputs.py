"""What `ShardedIndex.fit` is given, turned into files and a job that says where they are."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.checks import as_ids, as_relevance, as_vectors, check_int
from irli.clusterbuild import Job, divided
from irli.clusterfiles import Source, kept, kept_sparse
from irli.codes import choose_pieces
from irli.config import Recipe
from irli.errors import InvalidParameter

_HELD_SHARE, _HELD_MOST = 0.05, 500  # of the sample queries, that no shard learns from


def as_job(
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
) -> tuple[Job, NDArray[np.float32]]:
    """Check what was given and write it to `folder`, where it is not in files already.

    Returns
    -------
    Job
    float32 array of shape (v, d)
        Sample queries that no shard learns from.
    """
    source = _source(X, folder)
    check_int("shards", shards, at_most=source.rows, owner=f"{source.rows} items")
    bounds = divided(source.rows, shards)
    smallest = int(min(np.diff(bounds)))
    resolved = recipe.resolved(smallest, source.dim)
    if shards > 1 and resolved.pieces is None and not _worth_codes(smallest):
        resolved = dataclasses.replace(resolved, pieces=0)  # all shards have codes, or none
    named = None if ids is None else kept(folder, "ids", as_ids(ids, source.rows))
    held, paths = _queries(folder, queries, relevance, source, shards)
    job = Job(source, bounds, str(folder), metric, resolved, threads, device, ids=named, **paths)
    return job, held


def _worth_codes(items: int) -> bool:
    """Whether so many items are enough for codes to be worth it."""
    return choose_pieces(np.zeros((items, 1), dtype=np.float32), np.random.default_rng(0)) > 0


def _source(X: Any, folder: Path) -> Source:
    """Return the vectors as files."""
    listed = isinstance(X, list | tuple) and X and isinstance(X[0], str | os.PathLike)
    if isinstance(X, str | os.PathLike) or listed:
        return Source.of(X)
    return Source.of(kept(folder, "items", as_vectors(X, "X")))


def _queries(
    folder: Path, queries: Any, relevance: Any, source: Source, shards: int
) -> tuple[NDArray[np.float32], dict[str, str]]:
    """Write the sample queries to files; return those that no shard learns from, and the paths.

    A single shard holds out queries by itself. Several must agree on which, or those that one has
    not seen would have taught another.
    """
    if queries is None:
        if relevance is not None:
            raise InvalidParameter(
                "The 'relevance' parameter of fit must come with 'queries', one row for each of "
                "them. Got no queries. Pass fit(X, queries=Q, relevance=Y)."
            )
        return np.empty((0, source.dim), dtype=np.float32), {}
    given = as_vectors(queries, "queries", source.dim)
    order = np.random.default_rng(0x1D).permutation(len(given))
    count = min(_HELD_MOST, int(_HELD_SHARE * len(given))) if shards > 1 else 0
    held, rest = given[np.sort(order[:count])], np.sort(order[count:])
    paths = {"queries": kept(folder, "queries", given[rest])}
    if relevance is not None:
        wanted = as_relevance(relevance, len(given), source.rows)
        paths["relevance"] = kept_sparse(folder, "relevance", wanted[rest])
    return held, paths
