"""What there is to learn: the items, the queries that want them, and held-out queries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.config import Recipe
from irli.errors import InvalidParameter
from irli.neighbors import exact_neighbors
from irli.progress import Progress

_HELD_SHARE = 0.05  # of base and queries, held out for validation and tuning
_HELD_MOST = 500
_HELD_WANTED = 10  # what validation looks for
_QUERY_WEIGHT = 3.0  # a given query counts like three base vectors in an affinity
_MIX_NEAREST = 50  # a query is mixed with one of so many near ones

_CSR = ("data", "indices", "indptr")

Sparse: TypeAlias = "sp.csr_array[np.float32, tuple[int, int]]"
Rows: TypeAlias = "NDArray[np.float32] | Sparse"  # (n, d), of either kind


@dataclass(frozen=True)
class Problem:
    """Items, training queries with the items they want, validation queries.

    Attributes
    ----------
    metric : str
    items : float32 array of shape (N, p)
        Where the items lie, for the first partition.
    own : bool
        Whether the items are points of the query space, which the router can be asked about.
    queries : float32 array or CSR of shape (n, d)
        Training queries: base vectors, sample queries, or both.
    rows : int64 array of shape (n,)
        The item that each training query is, or -1.
    indptr, indices, weights : arrays of a CSR of shape (n, N)
        Which items each query wants, and how much.
    sampling : float64 array of shape (n,)
        How often each query is drawn in training; sums to 1.
    held_queries : float32 array or CSR of shape (v, d)
        Held-out queries for validation.
    held_truth : int64 array of shape (v, j)
        What they want, -1 as padding.
    """

    metric: str
    items: NDArray[np.float32]
    own: bool
    queries: Rows
    rows: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    weights: NDArray[np.float32]
    sampling: NDArray[np.float64]
    held_queries: Rows
    held_truth: NDArray[np.int64]

    @property
    def pair_queries(self) -> NDArray[np.int64]:
        """The query of each (query, item) pair."""
        return np.repeat(np.arange(len(self.rows)), np.diff(self.indptr))

    def askers(self) -> tuple[Rows, NDArray[np.float32] | None]:
        """Return all that a router is asked for an affinity: items with vectors, other queries."""
        if not self.own:
            return self.queries, None
        strangers: NDArray[np.float32] = np.asarray(self.queries)[self.rows < 0]
        return self.items, strangers if len(strangers) else None

    def wanted_by(self, weights: NDArray[np.float32]) -> Sparse:
        """Return the relevance with `weights`, turned round: (N, askers)."""
        count = len(self.items)
        column = np.arange(len(self.rows))
        width = len(column)
        if self.own:
            stranger = self.rows < 0
            column = np.where(stranger, count + np.cumsum(stranger) - 1, self.rows)
            width = count + int(stranger.sum())
        pairs = (self.indices, column[self.pair_queries])
        return sp.csr_array((weights, pairs), shape=(count, width))

    def save(self, folder: Path) -> None:
        """Write the arrays so that other processes can map them."""
        for name, value in self._arrays().items():
            np.save(folder / f"{name}.npy", value)
        (folder / "metric").write_text(self.metric)

    @classmethod
    def load(cls, folder: Path) -> Problem:
        """Map what `save` wrote."""

        def read(name: str) -> Any:
            return np.load(folder / f"{name}.npy", mmap_mode="r")

        def rows(name: str) -> Any:
            if (folder / f"{name}.npy").exists():
                return read(name)
            parts = tuple(read(f"{name}_{part}") for part in _CSR)
            return sp.csr_array(parts, shape=tuple(read(f"{name}_shape")))

        arrays = {f.name: rows(f.name) for f in fields(cls) if f.name not in ("metric", "own")}
        metric = (folder / "metric").read_text()
        return cls(metric=metric, own=bool(read("own")), **arrays)

    def fingerprint(self, recipe: Recipe) -> str:
        """Identify the problem and the recipe, so that a checkpoint is never used for another."""
        digest = hashlib.sha256(repr((self.metric, recipe)).encode())
        for value in self._arrays().values():
            digest.update(repr((value.shape, value.dtype.str)).encode())
            digest.update(np.ascontiguousarray(value).data)
        return digest.hexdigest()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return all but the metric as arrays; a CSR is four of them."""
        arrays: dict[str, NDArray[Any]] = {}
        for name in (f.name for f in fields(self) if f.name != "metric"):
            value: Any = getattr(self, name)
            if isinstance(value, sp.csr_array):
                arrays |= {f"{name}_{part}": getattr(value, part) for part in _CSR}
                arrays[f"{name}_shape"] = np.array(value.shape)
            else:
                arrays[name] = np.asarray(value)
        return arrays


class Held(NamedTuple):
    """Queries that training never sees, kept with the index to tune it by."""

    queries: NDArray[np.float32]  # (v, d)
    rows: NDArray[np.int64]  # (v,): the item that the query is, or -1


def pose(
    items: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    *,
    queries: NDArray[np.float32] | None = None,
    relevance: Sparse | None = None,
    neighbors: NDArray[np.int64] | None = None,
    threads: int | None = None,
    progress: Progress = False,
) -> tuple[Problem, Held]:
    """Turn items, and what is known of queries, into a problem to learn and queries to tune by.

    Parameters
    ----------
    items : array of shape (N, d)
    queries : array of shape (n, d), optional
        Sample queries, trained on together with base vectors.
    relevance : CSR array of shape (n, N), optional
        What the queries want; by default their exact nearest neighbours.
    neighbors : array of shape (N, j), optional
        The nearest neighbours of the items, -1 as padding; by default they are computed.
    """
    near = partial(exact_neighbors, threads=threads, progress=progress)
    rng = np.random.default_rng([recipe.seed, 0x1D])
    held, rows = _split(len(items), rng)
    if queries is not None and recipe.query_share == 1.0:
        rows = rows[:0]  # the base serves validation only
    elif len(rows) > recipe.training_points:
        rows = np.sort(rng.choice(rows, recipe.training_points, replace=False))
    asked = np.concatenate([held, rows])
    if neighbors is None:
        count = min(recipe.neighbors, max(1, len(items) - 1))
        wanted = near(items[asked], items, count, metric, rows=asked)
    else:
        wanted = neighbors[asked, : recipe.neighbors]
    wanted[(wanted < 0).all(axis=1), 0] = asked[(wanted < 0).all(axis=1)]  # alone: wants itself

    parts = [_Part(items[rows], rows, *_pairs(wanted[len(held) :], 1.0), 1.0)]
    held_queries, held_truth = items[held], wanted[: len(held), :_HELD_WANTED]
    to_tune = Held(held_queries, held)
    if queries is not None:
        # The given queries say what will be asked: they alone decide what helps.
        part, (held_queries, held_truth) = _ask(
            items, metric, queries, relevance, recipe, rng, near
        )
        share = recipe.query_share
        parts = [parts[0]._replace(share=1 - share), part._replace(share=share)]
        strangers = Held(held_queries, np.full(len(held_queries), -1))
        to_tune = Held(
            np.concatenate([to_tune.queries, strangers.queries]),
            np.concatenate([to_tune.rows, strangers.rows]),
        )
    problem = Problem(
        metric=metric,
        items=items,
        own=True,
        queries=np.concatenate([part.queries for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
        indptr=np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]),
        indices=np.concatenate([part.indices for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        sampling=_sampling(parts),
        held_queries=held_queries,
        held_truth=_padded(held_truth),
    )
    return problem, to_tune


class _Part(NamedTuple):
    """Training queries of one origin."""

    queries: NDArray[np.float32]
    rows: NDArray[np.int64]  # (n,): the item that each query is, or -1
    lengths: NDArray[np.int64]  # (n,): how many items each query wants
    indices: NDArray[np.int64]
    weights: NDArray[np.float32]
    share: float


def _split(count: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return held-out and training rows; a handful of rows serves as both."""
    order = rng.permutation(count)
    most = min(_HELD_MOST, int(_HELD_SHARE * count))
    if most == 0:
        return order, order
    return np.sort(order[:most]), np.sort(order[most:])


def _ask(
    items: NDArray[np.float32],
    metric: str,
    queries: NDArray[np.float32],
    relevance: Sparse | None,
    recipe: Recipe,
    rng: np.random.Generator,
    near: Callable[..., NDArray[np.int64]],
) -> tuple[_Part, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Return the given queries as a part of the training, and the held-out ones with answers."""
    useful = np.arange(len(queries))
    if relevance is not None:
        useful = np.flatnonzero(np.diff(relevance.indptr))  # who wants nothing teaches nothing
        if len(useful) == 0:
            raise InvalidParameter(
                "The 'relevance' parameter must name an item for at least one query. "
                "Got none at all. Leave it out to learn from the nearest neighbours."
            )
    held, rows = (useful[part] for part in _split(len(useful), rng))
    if relevance is None:
        count = min(recipe.neighbors, len(items))
        wanted = near(queries, items, count, metric)
        mixed = _mixed(queries[rows], recipe, metric, rng)
        between = near(mixed, items, count, metric)
        lengths, indices, weights = _pairs(np.concatenate([wanted[rows], between]), _QUERY_WEIGHT)
        # All mixes together weigh as much in an affinity as all queries that they are made of.
        weights[lengths[: len(rows)].sum() :] *= min(1.0, len(rows) / max(1, len(mixed)))
        asked = np.concatenate([queries[rows], mixed])
        part = _Part(asked, np.full(len(asked), -1), lengths, indices, weights, 1.0)
        return part, (queries[held], wanted[held, :_HELD_WANTED])
    chosen = relevance[rows]
    part = _Part(
        queries[rows],
        np.full(len(rows), -1),
        np.diff(chosen.indptr).astype(np.int64),
        chosen.indices.astype(np.int64),
        _QUERY_WEIGHT * chosen.data,
        1.0,
    )
    return part, (queries[held], _heaviest(relevance, held))


def _mixed(
    queries: NDArray[np.float32], recipe: Recipe, metric: str, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Make more queries like the given ones: points between each and one near it.

    A few thousand queries leave gaps. What lies between two of them can be answered exactly, so
    it is as good a lesson: on WordNet-MiniLM this saves a seventh of the scanned items at .95.
    """
    if not recipe.mixes or len(queries) < 2:
        return queries[:0]
    near = exact_neighbors(
        queries,
        queries,
        min(_MIX_NEAREST, len(queries) - 1),
        "l2",
        rows=np.arange(len(queries)),
    )
    one = rng.integers(len(queries), size=recipe.mixes)
    other = near[one, rng.integers(near.shape[1], size=recipe.mixes)]
    part = rng.uniform(0.5, 1.0, size=(recipe.mixes, 1)).astype(np.float32)
    mixed = part * queries[one] + (1 - part) * queries[other]
    if metric == "cosine":
        mixed /= np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-12)
    return mixed


def _pairs(
    wanted: NDArray[np.int64], weight: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return lengths, indices and weights of an array of wanted items with -1 as padding."""
    there = wanted >= 0
    indices = wanted[there]
    return there.sum(axis=1), indices, np.full(len(indices), weight, dtype=np.float32)


def _heaviest(relevance: Sparse, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the items of the largest weights in each row, padded with -1."""
    best = np.full((len(rows), _HELD_WANTED), -1, dtype=np.int64)
    for i, row in enumerate(rows):
        start, stop = relevance.indptr[row], relevance.indptr[row + 1]
        order = np.argsort(-relevance.data[start:stop], kind="stable")[:_HELD_WANTED]
        best[i, : len(order)] = relevance.indices[start:stop][order]
    return best


def _padded(truth: NDArray[np.int64]) -> NDArray[np.int64]:
    missing = _HELD_WANTED - truth.shape[1]
    return np.pad(truth, ((0, 0), (0, missing)), constant_values=-1)


def _sampling(parts: list[_Part]) -> NDArray[np.float64]:
    """Return how often each query is drawn: by the share of its part, evenly within."""
    each = [np.full(len(p.queries), p.share / max(1, len(p.queries))) for p in parts]
    chance: NDArray[np.float64] = np.concatenate(each)
    chance /= chance.sum()
    return chance
