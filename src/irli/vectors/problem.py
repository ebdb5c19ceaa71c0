"""What there is to learn from vectors: their neighbours, sample queries, and queries held out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.progress import Progress
from irli.base.recipe import Recipe
from irli.base.types import Sparse
from irli.engine.exact import exact_neighbors
from irli.errors import InvalidParameter
from irli.learning.problem import Problem

log = logging.getLogger(__name__)

HELD_SHARE, HELD_MOST = 0.05, 500  # of items and of queries: held out for validation and tuning
_HELD_WANTED = 10  # what validation looks for
_QUERY_WEIGHT = 3.0  # a given query counts like three base vectors in an affinity
_MIX_NEAREST = 50  # a query is mixed with one of so many near ones


class HeldOut(NamedTuple):
    """Queries that training never sees, kept to tune a search by."""

    queries: NDArray[np.float32]  # (v, d)
    rows: NDArray[np.int64]  # (v,): the item that the query is, or -1


class VectorProblem(NamedTuple):
    """What there is to learn, and the queries to tune by afterwards."""

    problem: Problem
    tuning: HeldOut

    def save(self, folder: Path) -> None:
        """Write the arrays so that other processes can map them."""
        self.problem.save(folder)
        for name, value in self.tuning._asdict().items():
            np.save(folder / f"tuning_{name}.npy", value)

    @classmethod
    def load(cls, folder: Path) -> VectorProblem:
        """Read what `save` wrote; the problem is mapped."""
        parts = [np.load(folder / f"tuning_{name}.npy") for name in HeldOut._fields]
        return cls(Problem.load(folder), HeldOut(*parts))


def make_problem(
    items: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    *,
    queries: NDArray[np.float32] | None = None,
    relevance: Sparse | None = None,
    neighbors: NDArray[np.int64] | None = None,
    threads: int | None = None,
    progress: Progress = False,
) -> VectorProblem:
    """Turn items, and what is known of queries, into a problem to learn: the first phase.

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
        rows = rows[:0]  # the items serve validation only
    elif len(rows) > recipe.training_points:
        rows = np.sort(rng.choice(rows, recipe.training_points, replace=False))
    asked = np.concatenate([held, rows])
    if neighbors is None:
        count = min(recipe.neighbors, max(1, len(items) - 1))
        wanted = near(items[asked], items, count, metric, rows=asked)
    else:
        wanted = neighbors[asked, : recipe.neighbors]
    lonely = (wanted < 0).all(axis=1)
    wanted[lonely, 0] = asked[lonely]  # an item without neighbours wants itself

    parts = [_Part(items[rows], rows, *_list_pairs(wanted[len(held) :], 1.0), 1.0)]
    held_queries, held_truth = items[held], wanted[: len(held), :_HELD_WANTED]
    tuning = HeldOut(held_queries, held)
    if queries is not None:
        # The given queries are what will be asked: validation goes by them alone.
        part, (held_queries, held_truth) = _use_queries(
            items, metric, queries, relevance, recipe, rng, near
        )
        share = recipe.query_share
        parts = [parts[0]._replace(share=1 - share), part._replace(share=share)]
        tuning = HeldOut(
            np.concatenate([tuning.queries, held_queries]),
            np.concatenate([tuning.rows, np.full(len(held_queries), -1)]),
        )
    problem = Problem(
        metric=metric,
        items=items,
        items_are_queries=True,
        queries=np.concatenate([part.queries for part in parts]),
        query_items=np.concatenate([part.items for part in parts]),
        indptr=np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]),
        indices=np.concatenate([part.indices for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        sampling=_weigh_parts(parts),
        held_queries=held_queries,
        held_truth=_pad(held_truth),
    )
    log.info(
        "problem: %d items, %d training queries, %d held out",
        len(items),
        len(problem.query_items),
        len(tuning.rows),
    )
    return VectorProblem(problem, tuning)


class _Part(NamedTuple):
    """Training queries of one origin."""

    queries: NDArray[np.float32]
    items: NDArray[np.int64]  # (n,): the item that each query is, or -1
    lengths: NDArray[np.int64]  # (n,): how many items each query wants
    indices: NDArray[np.int64]
    weights: NDArray[np.float32]
    share: float


def _split(count: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return held-out and training rows; a handful of rows serves as both."""
    order = rng.permutation(count)
    most = min(HELD_MOST, int(HELD_SHARE * count))
    if most == 0:
        return order, order
    return np.sort(order[:most]), np.sort(order[most:])


def _use_queries(
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
        useful = np.flatnonzero(np.diff(relevance.indptr))  # a query without items teaches nothing
        if len(useful) == 0:
            raise InvalidParameter(
                "The 'relevance' parameter must name an item for at least one query. "
                "Got none at all. Leave it out to learn from the nearest neighbours."
            )
    held, rows = (useful[part] for part in _split(len(useful), rng))
    if relevance is None:
        count = min(recipe.neighbors, len(items))
        wanted = near(queries, items, count, metric)
        mixed = _mix_queries(queries[rows], recipe, metric, rng)
        between = near(mixed, items, count, metric)
        lengths, indices, weights = _list_pairs(
            np.concatenate([wanted[rows], between]), _QUERY_WEIGHT
        )
        # In an affinity, all mixed queries together weigh as much as the given ones.
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
    return part, (queries[held], _find_heaviest(relevance, held))


def _mix_queries(
    queries: NDArray[np.float32], recipe: Recipe, metric: str, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Make more queries like the given ones: points between each and one near it.

    A few thousand queries leave gaps. The exact neighbours of a point between two queries can be
    computed, so it serves as a training query too. On WordNet-MiniLM this saves a seventh of the
    scanned items at recall .95.
    """
    if not recipe.mixed_queries or len(queries) < 2:
        return queries[:0]
    near = exact_neighbors(
        queries,
        queries,
        min(_MIX_NEAREST, len(queries) - 1),
        "l2",
        rows=np.arange(len(queries)),
    )
    one = rng.integers(len(queries), size=recipe.mixed_queries)
    other = near[one, rng.integers(near.shape[1], size=recipe.mixed_queries)]
    part = rng.uniform(0.5, 1.0, size=(recipe.mixed_queries, 1)).astype(np.float32)
    mixed = part * queries[one] + (1 - part) * queries[other]
    if metric == "cosine":
        mixed /= np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-12)
    return mixed


def _list_pairs(
    wanted: NDArray[np.int64], weight: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return lengths, indices and weights of an array of wanted items with -1 as padding."""
    there = wanted >= 0
    indices = wanted[there]
    return there.sum(axis=1), indices, np.full(len(indices), weight, dtype=np.float32)


def _find_heaviest(relevance: Sparse, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the items of the largest weights in each row, padded with -1."""
    best = np.full((len(rows), _HELD_WANTED), -1, dtype=np.int64)
    for i, row in enumerate(rows):
        start, stop = relevance.indptr[row], relevance.indptr[row + 1]
        order = np.argsort(-relevance.data[start:stop], kind="stable")[:_HELD_WANTED]
        best[i, : len(order)] = relevance.indices[start:stop][order]
    return best


def _pad(truth: NDArray[np.int64]) -> NDArray[np.int64]:
    missing = _HELD_WANTED - truth.shape[1]
    return np.pad(truth, ((0, 0), (0, missing)), constant_values=-1)


def _weigh_parts(parts: list[_Part]) -> NDArray[np.float64]:
    """Return how often each query is drawn: by the share of its part, evenly within."""
    each = [np.full(len(p.queries), p.share / max(1, len(p.queries))) for p in parts]
    chance: NDArray[np.float64] = np.concatenate(each)
    chance /= chance.sum()
    return chance
