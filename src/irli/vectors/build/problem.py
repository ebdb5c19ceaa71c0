"""Phase 1, make_problem: training queries with their true neighbours, and held-out queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.memory import make_array, release_pages
from irli.base.progress import Progress
from irli.base.recipe import Recipe
from irli.base.sparse import find_heaviest
from irli.base.types import Sparse
from irli.engine.exact import exact_neighbors
from irli.errors import InvalidParameter
from irli.learning.problem import Problem
from irli.vectors.build.ground_truth import NEIGHBORS, GroundTruth, find_truth
from irli.vectors.build.held_out import HeldOut, hold_out, make_strange_queries

log = get_logger(__name__)

# Items, and sample queries, held out for validation and tuning: this share, at most this many.
HELD_SHARE, HELD_MOST = 0.05, 500
_QUERY_WEIGHT = 3.0  # in the affinity, a sample query counts as much as three items
_BLOCK = 65_536  # rows copied at a time
_MIX_NEAREST = 50  # a query is mixed with one of this many nearest queries


class VectorProblem(NamedTuple):
    """A problem to learn, and the held-out queries to build and to tune with afterwards."""

    problem: Problem
    held: HeldOut
    truth: GroundTruth  # of the held-out queries, and then of strange ones

    def save(self, folder: Path) -> None:
        """Write the arrays so that other processes can map them."""
        self.problem.save(folder)
        np.savez(folder / "held.npz", **self.held._asdict())
        np.savez(folder / "truth.npz", **self.truth._asdict())

    @classmethod
    def load(cls, folder: Path) -> VectorProblem:
        """Read what `save` wrote. The arrays of the problem are memory-mapped."""
        with np.load(folder / "held.npz") as held, np.load(folder / "truth.npz") as truth:
            return cls(Problem.load(folder), HeldOut(**held), GroundTruth(**truth))


class FindNeighbors(Protocol):
    """A function that finds the nearest items of queries, as `exact_neighbors` does."""

    def __call__(
        self,
        queries: NDArray[np.float32],
        base: NDArray[np.float32],
        k: int,
        metric: str,
        *,
        rows: NDArray[np.int64],
        out: NDArray[Any],
        threads: int | None,
        progress: Progress,
    ) -> NDArray[Any]:
        """Write the rows of `base` to `out` (n, k), and return it."""
        ...


def make_problem(
    items: NDArray[np.float32],
    metric: str,
    recipe: Recipe,
    *,
    queries: NDArray[np.float32] | None = None,
    relevance: Sparse | None = None,
    neighbors: NDArray[np.int64] | None = None,
    leave_out: NDArray[np.int64] | None = None,
    k: int = NEIGHBORS,
    folder: Path | None = None,
    find_neighbors: FindNeighbors | None = None,
    threads: int | None = None,
    progress: Progress = False,
) -> VectorProblem:
    """Turn items, and sample queries if there are any, into a problem to learn.

    Parameters
    ----------
    items : array of shape (N, d)
    queries : array of shape (n, d), optional
        Sample queries. Training uses them together with the items.
    relevance : CSR array of shape (n, N), optional
        The items that are relevant to each query. By default its exact nearest neighbours.
    neighbors : array of shape (N, j), optional
        The nearest neighbours of each item, padded with -1. By default they are computed.
    leave_out : int array, optional
        The rows of sample queries that are not used.
    k : int
        The most neighbours that tuning will look for.
    folder : path, optional
        Where large arrays are filled in files, block by block, and take no memory. `items` and
        `queries` may be mapped, too. `save` is then to be called with the same folder.
    find_neighbors : callable, optional
        What finds the neighbours that training needs. By default `exact_neighbors`.
    """
    rng = np.random.default_rng([recipe.seed, 0x1D])
    own, rows = _split(np.arange(len(items)), rng)
    if queries is not None and recipe.query_share == 1.0:
        rows = rows[:0]  # items serve for validation only
    elif len(rows) > recipe.training_points:
        rows = np.sort(rng.choice(rows, recipe.training_points, replace=False))
    held, sampled, weights = hold_out(items[own], own), [(items, rows)], [1.0]
    if queries is not None:
        asked, learned = _split(_find_useful(len(queries), relevance, leave_out), rng)
        mixed = _mix_queries(queries, learned, relevance, recipe, metric, rng)
        sampled += [(queries, learned), (mixed, np.arange(len(mixed)))]
        # In the affinity, all mixed queries together weigh at most as much as the sample queries.
        weights += [_QUERY_WEIGHT, _QUERY_WEIGHT * min(1.0, len(learned) / max(1, len(mixed)))]
        held = _add_queries(held, queries[asked], None if relevance is None else relevance[asked])
    sizes = [len(part) for _, part in sampled]
    training = make_array(folder, "queries", (sum(sizes), items.shape[1]), np.float32)
    _copy_rows(sampled, training)
    query_items = np.concatenate([rows, np.full(len(training) - len(rows), -1)])

    # What is not given is found at once: the neighbours of items, of queries, or of both.
    unknown = slice(
        0 if neighbors is None else len(rows), len(training) if relevance is None else len(rows)
    )
    shape = len(query_items[unknown]), min(recipe.neighbors, max(1, len(items) - 1))
    near = (find_neighbors or exact_neighbors)(
        training[unknown],
        items,
        shape[1],
        metric,
        rows=query_items[unknown],
        out=make_array(folder, "indices", (shape[0] * shape[1],), np.int32).reshape(shape),
        threads=threads,
        progress=progress,
    )
    if neighbors is not None:
        near = _join(neighbors[rows, : recipe.neighbors], near)
    near[: len(rows)] = _fill_isolated(near[: len(rows)], rows)
    lengths, indices = _list_pairs(near)
    if relevance is not None:
        chosen = relevance[learned]
        lengths = np.concatenate([lengths, np.diff(chosen.indptr)])
        found, indices = len(indices), np.concatenate([indices, chosen.indices])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    pair_weights = make_array(folder, "weights", (len(indices),), np.float32)
    ends = indptr[np.cumsum([0, *sizes])]
    for weight, start, end in zip(weights, ends, ends[1:], strict=False):
        pair_weights[start:end] = weight
    if relevance is not None:
        pair_weights[found:] *= chosen.data

    strange = make_strange_queries(items, metric)
    measured = np.concatenate([held.queries, strange])
    held_rows = np.concatenate([held.rows, np.full(len(strange), -1)])
    truth = find_truth(items, metric, measured, held_rows, k, threads=threads)
    first = 0 if queries is None else len(own)  # later queries will be like the sample queries
    held_truth = truth.neighbors[first : len(held.rows)]
    if held.by_relevance:
        held_truth = held.relevant[first:]
    elif queries is None:
        given = held_truth if neighbors is None else neighbors[own, :NEIGHBORS]
        held_truth = _fill_isolated(given, own)
    problem = Problem(
        metric=metric,
        items=items,
        items_are_queries=True,
        queries=training,
        query_items=query_items,
        indptr=indptr,
        indices=indices,
        weights=pair_weights,
        sampling=_share_draws(len(rows), len(training), recipe.query_share),
        held_queries=held.queries[first:],
        held_truth=held_truth,
    )
    log.info(
        "problem: %d items, %d training queries, %d held out",
        len(items),
        len(problem.query_items),
        len(held.rows),
    )
    return VectorProblem(problem, held, truth)


def _split(
    rows: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return held-out and training rows. Fewer than 20 rows are used as both."""
    order = rng.permutation(len(rows))
    most = min(HELD_MOST, int(HELD_SHARE * len(rows)))
    if most == 0:
        return rows[order], rows[order]
    return rows[np.sort(order[:most])], rows[np.sort(order[most:])]


def _find_useful(
    queries: int, relevance: Sparse | None, leave_out: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return the sample queries to use: those that something is relevant to."""
    useful = np.arange(queries)
    if leave_out is not None:
        useful = np.delete(useful, leave_out)
    if relevance is None:
        return useful
    useful = useful[np.diff(relevance.indptr)[useful] > 0]
    if len(useful) == 0:
        raise InvalidParameter(
            "The 'relevance' parameter must name an item for at least one query. "
            "Got none at all. Leave it out to learn from the nearest neighbours."
        )
    return useful


def _add_queries(held: HeldOut, queries: NDArray[np.float32], relevance: Sparse | None) -> HeldOut:
    """Return the held-out items, followed by sample queries. What was taught is measured."""
    taught = None
    if relevance is not None:
        no_items = np.full((len(held.rows), NEIGHBORS), -1)
        taught = np.concatenate([no_items, find_heaviest(relevance, NEIGHBORS)])
    rows = np.concatenate([held.rows, np.full(len(queries), -1)])
    return hold_out(np.concatenate([held.queries, queries]), rows, taught)


def _mix_queries(
    given: NDArray[np.float32],
    learned: NDArray[np.int64],
    relevance: Sparse | None,
    recipe: Recipe,
    metric: str,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Make more queries like the given ones: points between a query and one near it.

    A few thousand queries leave gaps. A point between two queries can fill one: its exact
    neighbours can be computed, so it is a training query like any other. On WordNet-MiniLM, mixed
    queries save a seventh of the scanned items at recall 0.95. What a point between two queries
    wants is not known where the relevance is given.
    """
    if not recipe.mixed_queries or len(learned) < 2 or relevance is not None:
        return np.array(given[:0])
    queries = given[learned]
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
    mixed: NDArray[np.float32] = part * queries[one] + (1 - part) * queries[other]
    if metric == "cosine":
        mixed /= np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-12)
    return mixed


def _copy_rows(
    parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]], out: NDArray[np.float32]
) -> None:
    """Write some rows of each array to `out`, one after the other, in blocks."""
    end = 0
    for array, rows in parts:
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            out[end : end + len(some)] = array[some]
            end += len(some)
            release_pages(array)


def _list_pairs(near: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return how many items are relevant to each query, and these, query by query.

    They are copied only if rows (n, j) are padded with -1.
    """
    if near.size == 0 or near.min() >= 0:
        return np.full(len(near), near.shape[1]), near.reshape(-1)
    return (near >= 0).sum(axis=1), near[near >= 0]


def _fill_isolated(near: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the neighbours of some items. An item without neighbours is its own neighbour."""
    filled = near.copy()
    isolated = (near < 0).all(axis=1)
    filled[isolated, 0] = rows[isolated]
    return filled


def _join(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of both, padded with -1 to the same width."""
    joined = np.full((len(one) + len(other), max(one.shape[1], other.shape[1])), -1)
    joined[: len(one), : one.shape[1]] = one
    joined[len(one) :, : other.shape[1]] = other
    return joined


def _share_draws(items: int, queries: int, share: float) -> NDArray[np.float64]:
    """Return the probability of each training query (n,) to be drawn: evenly within its source.

    Examples
    --------
    >>> _share_draws(2, 3, share=0.4).tolist(), _share_draws(2, 2, share=0.4).tolist()
    ([0.3, 0.3, 0.4], [0.5, 0.5])
    """
    chance = np.full(queries, (1 - share) / max(1, items))
    chance[items:] = share / max(1, queries - items)
    return np.asarray(chance / chance.sum())
