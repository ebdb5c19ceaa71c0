"""VectorIndex: items with vectors, found by learned routing and ranked by exact distance."""

from __future__ import annotations

import dataclasses
import os
from operator import is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import storage
from irli.checks import (
    as_array,
    as_ids,
    as_queries,
    as_relevance,
    as_vectors,
    check_choice,
    check_int,
)
from irli.config import METRICS, Recipe
from irli.config import recipe as named_recipe
from irli.errors import FormatError, InvalidParameter, NotFitted
from irli.filters import Ids
from irli.freezing import freeze, from_arrays, to_arrays
from irli.frozen import CODES, COSINE, IP, PLAIN, Frozen, Plan
from irli.kernels import unit_rows
from irli.learner import learner
from irli.metrics import load_summary
from irli.problem import Held, pose
from irli.progress import Progress
from irli.searching import Explanation, Searcher, SearchParameters
from irli.threads import thread_count
from irli.tuning import Tuned, tune

KIND = "vectors"
_FORMS = {"l2": PLAIN, "ip": IP, "cosine": COSINE}


class SearchResult(NamedTuple):
    """Distances and ids, nearest first; unpacks in the order of FAISS."""

    distances: NDArray[np.float32]
    ids: NDArray[np.int64]

    @property
    def counts(self) -> Any:
        """How many items were found for each query; the rest is padding."""
        return (self.ids >= 0).sum(axis=-1)


class _Planned(NamedTuple):
    """What the last search asked for, and what came of it."""

    defaults: SearchParameters
    asked: tuple[Any, ...]
    plan: Plan


class VectorIndex:
    """Approximate nearest neighbours with learned, balanced buckets.

    Parameters
    ----------
    metric : {"l2", "ip", "cosine"}
        "l2" is the squared distance; "ip" the inner product, largest first; "cosine" is 1 - cos.
    recipe : str or Recipe
        How to learn: "default", "paper", or one made with `irli.recipe`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 16))
    >>> index = VectorIndex().fit(X)
    >>> found = index.search(X[:5], k=3)
    >>> found.ids[:, 0]
    array([0, 1, 2, 3, 4])
    """

    def __init__(self, metric: str = "l2", *, recipe: str | Recipe = "default") -> None:
        self.metric = check_choice("metric", metric, METRICS, owner="VectorIndex")
        self.recipe = recipe if isinstance(recipe, Recipe) else named_recipe(recipe)
        self._asked = self.recipe  # `fit` fills in what depends on its data
        self.history: list[dict[str, Any]] = []
        self._searcher: Searcher | None = None
        self._last: _Planned | None = None

    # --- learning ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        ids: Any = None,
        queries: Any = None,
        relevance: Any = None,
        *,
        neighbors: Any = None,
        progress: Progress = False,
        threads: int | None = None,
        workers: int = 1,
        device: str = "cpu",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> VectorIndex:
        """Learn to index the vectors `X`, and tune the search to recall 0.95 at k = 10.

        Parameters
        ----------
        X : array_like of shape (N, d)
        ids : array_like of shape (N,), optional
            int64 ids that searches return; the row numbers by default.
        queries : array_like of shape (n, d), optional
            Sample queries, where they differ from the items.
        relevance : sparse array of shape (n, N) or int array of shape (n, j), optional
            The items (rows of `X`) that each query wants; its nearest neighbours by default.
        neighbors : int array of shape (N, j), optional
            The nearest neighbours of each item, without itself, if you have them already.
        progress : bool or callable
            True shows bars, a function is called with (done, total, what).
        threads, workers : int
            Threads to learn with, and processes that learn repetitions side by side.
        device : str
            Where torch learns: "cpu", "cuda".
        checkpoint : path, optional
            A folder that keeps finished repetitions, so that a second call resumes there.
        """
        vectors = self._prepared(as_vectors(X, "X"))
        borrowed = vectors is X or vectors.base is not None
        if borrowed and not isinstance(X, np.memmap):
            vectors = vectors.copy()  # what the caller does to X later must not change answers
        count, dim = vectors.shape
        recipe = self._asked.resolved(count, dim)
        given = None if queries is None else self._prepared(as_vectors(queries, "queries", dim))
        wanted = _checked_relevance(relevance, given, count)
        near = None if neighbors is None else _checked_neighbors(neighbors, count)
        named = Ids(np.arange(count) if ids is None else as_ids(ids, count).copy())
        threads = thread_count(threads)
        learn = learner(device)
        check_int("workers", workers, at_least=1, owner="fit")

        problem, held = pose(
            vectors,
            self.metric,
            recipe,
            queries=given,
            relevance=wanted,
            neighbors=near,
            threads=threads,
            progress=progress,
        )
        repetitions = learn(
            problem,
            recipe,
            workers=workers,
            threads=threads,
            device=device,
            checkpoint=checkpoint,
            progress=progress,
        )
        self.recipe, self._ids, self._held = recipe, named, held
        self.history = [entry for repetition in repetitions for entry in repetition.history]
        self._freeze(vectors, repetitions)
        self.tuned = self.tune()
        return self

    def _freeze(self, vectors: NDArray[np.float32], repetitions: list[Any]) -> None:
        """Turn what was learned into what is searched."""
        routers = [repetition.router for repetition in repetitions]
        partitions = [repetition.partition for repetition in repetitions]
        frozen, self.recipe = freeze(vectors, self.metric, self.recipe, routers, partitions)
        self._set_frozen(frozen)

    def _set_frozen(self, frozen: Frozen) -> None:
        self._searcher = Searcher(frozen)
        self.defaults = SearchParameters(probes=min(8, frozen.bias.shape[1]))

    def _prepared(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vectors as the index keeps them: of unit length for cosine."""
        if self.metric != "cosine":
            return vectors
        unit = np.empty_like(vectors)
        unit_rows(vectors, unit)
        return unit

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        probes: int | None = None,
        threshold: float | None = None,
        min_votes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
        filter: Any = None,
        threads: int | None = None,
    ) -> SearchResult:
        """Find the k nearest items of each query: Algorithm 2.

        What is not given is as `tune` left it.

        Parameters
        ----------
        queries : array_like of shape (n, d), or (d,) for a single one
        probes : int
            Buckets to probe in each repetition; or
        threshold : float
            the probability from which on a bucket is probed.
        min_votes : int
            In how many probed buckets an item must have been seen.
        candidates : int
            Exact distances at most, of the items with the best score.
        score : {"votes", "probability", "log-probability", "codes"}
            What chooses the candidates: what probed buckets add to the score of their items, or
            the 4-bit codes of the items.
        filter : int array of allowed ids, bool array of shape (N,), or Deny
        threads : int
            -1 for every core.

        Returns
        -------
        SearchResult
            `distances` and `ids` of shape (n, k), or (k,) for a single query. Where fewer than k
            items are allowed, the rest has id -1 and an infinite distance.
        """
        searcher = self._fitted()
        plan = self._plan(k, probes, threshold, min_votes, candidates, score)
        form = _FORMS[self.metric]
        if filter is None and plan.k == k and searcher.fits(queries):
            found = searcher.search_one(queries, plan, self._ids.values, form)
            if found is not None:
                return SearchResult(*found)
        prepared, single = as_queries(queries, searcher.frozen.vectors.shape[1])
        allowed, threads = self._ids.allowed(filter), thread_count(threads)
        answers = searcher.search(prepared, plan, allowed, self._ids.values, form, threads)
        distances, ids = self._padded(*answers, k)
        return SearchResult(distances[0], ids[0]) if single else SearchResult(distances, ids)

    def explain(
        self,
        queries: Any,
        k: int = 10,
        *,
        probes: int | None = None,
        threshold: float | None = None,
        min_votes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
        filter: Any = None,
        threads: int | None = None,
    ) -> Explanation:
        """Report what a search with these arguments does; queries run one by one on one thread."""
        searcher = self._fitted()
        plan = self._plan(k, probes, threshold, min_votes, candidates, score)
        prepared, _ = as_queries(queries, searcher.frozen.vectors.shape[1])
        thread_count(threads)
        found = searcher.explain(self._prepared(prepared), plan, self._ids.allowed(filter))
        more = ((0, 0), (0, k - plan.k))
        ids = np.pad(self._ids.names(found.ids), more, constant_values=-1)
        return found._replace(ids=ids, votes=np.pad(found.votes, more))

    def _plan(self, *asked: Any) -> Plan:
        """Return the plan of a search for (k, probes, threshold, min_votes, candidates, score).

        Single queries mostly ask for the one before. Not by '==': True is no number of probes.
        """
        last = self._last
        if last is not None and last.defaults is self.defaults and all(map(is_, last.asked, asked)):
            return last.plan
        k = check_int("k", asked[0], at_least=1, owner="search")
        plan = self.defaults.changed(*asked[1:]).plan(min(k, len(self)))
        if plan.score == CODES and self._fitted().frozen.coded.blocks.size == 0:
            raise InvalidParameter(
                "The 'score' parameter of search must be another one than 'codes' for an index "
                "without codes. Got 'codes' instead. Learn with pieces=64 in the recipe, say."
            )
        self._last = _Planned(self.defaults, asked, plan)
        return plan

    def _padded(
        self, distances: NDArray[np.float32], ids: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Add columns of nothing, where more was wanted than there are items."""
        if k == ids.shape[1]:
            return distances, ids
        more = ((0, 0), (0, k - ids.shape[1]))
        worst = -np.inf if self.metric == "ip" else np.inf
        return np.pad(distances, more, constant_values=worst), np.pad(ids, more, constant_values=-1)

    # --- tuning --------------------------------------------------------------------------------

    def tune(self, recall: float = 0.95, k: int = 10, queries: Any = None) -> Tuned:
        """Find the cheapest search that reaches `recall` at `k`, and make it the default.

        Parameters
        ----------
        recall : float
            The share of the true k nearest that must be found, on average.
        queries : array_like of shape (n, d), optional
            Queries to tune by; by default those that `fit` held out, and then the share must be
            found both for items and for queries, if it was given any.

        Returns
        -------
        Tuned
            The parameters, the recall and the seconds per query measured with them, and whether
            the target was reached.
        """
        searcher = self._fitted()
        held = self._held
        if queries is not None:
            given = self._prepared(as_vectors(queries, "queries", searcher.frozen.vectors.shape[1]))
            held = Held(given, np.full(len(given), -1))
        tuned = tune(searcher, held, self.metric, recall, k)
        self.defaults = tuned.parameters
        return tuned

    # --- looking -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted().frozen.vectors)

    def __contains__(self, id: object) -> bool:
        self._fitted()
        if not isinstance(id, int | np.integer) or not -(2**63) <= id < 2**63:
            return False
        return len(self._ids.rows([id])) > 0

    def __repr__(self) -> str:
        if self._searcher is None:
            return f"VectorIndex(metric={self.metric!r}, recipe={self.recipe.name!r}, not fitted)"
        repetitions, buckets = self._searcher.frozen.bias.shape
        return (
            f"VectorIndex(metric={self.metric!r}, recipe={self.recipe.name!r}, {len(self)} items, "
            f"{repetitions} x {buckets} buckets)"
        )

    def loads(self) -> list[NDArray[np.int64]]:
        """Return the loads of the buckets, an array of shape (B,) for each repetition."""
        return list(np.diff(self._fitted().frozen.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and bytes as plain values."""
        searcher = self._fitted()
        frozen = searcher.frozen
        arrays = [
            value
            for value in (*frozen, *frozen.coded, *frozen.lens, *frozen.rounded)
            if isinstance(value, np.ndarray)
        ]
        repetitions, buckets = frozen.bias.shape
        return {
            "kind": KIND,
            "metric": self.metric,
            "items": len(self),
            "dim": frozen.vectors.shape[1],
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": len(frozen.items),
            "router_multiplications": searcher.router_multiplications,
            "loads": [load_summary(loads) for loads in self.loads()],
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": dataclasses.asdict(self.defaults),
            "bytes": sum(value.nbytes for value in arrays) + self._ids.values.nbytes,
            "bytes_vectors": frozen.vectors.nbytes,
            "bytes_codes": frozen.coded.blocks.nbytes,
        }

    def _fitted(self) -> Searcher:
        if self._searcher is None:
            raise NotFitted("This VectorIndex is not fitted yet. Call fit(X) or irli.load(path).")
        return self._searcher

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index folder `path`, replacing an index that is there already."""
        arrays, tensors, shape = to_arrays(self._fitted().frozen)
        meta = {
            "metric": self.metric,
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": dataclasses.asdict(self.defaults),
            "history": self.history,
            **shape,
        }
        arrays |= {
            "ids": self._ids.values,
            "held_queries": self._held.queries,
            "held_rows": self._held.rows,
        }
        storage.write_folder(path, storage.Folder(KIND, meta, arrays, tensors))

    @classmethod
    def from_folder(cls, folder: storage.Folder) -> VectorIndex:
        """Make the index that a folder holds; `irli.load` opens any kind."""
        if folder.kind != KIND:
            raise FormatError(
                f"The folder must hold an index of kind '{KIND}'. Got '{folder.kind}' instead. "
                "Open it with irli.load."
            )
        meta, arrays = folder.meta, folder.arrays
        try:
            index = cls(meta["metric"], recipe=Recipe(**meta["recipe"]))
            index.history = meta["history"]
            index._ids = Ids(arrays["ids"])
            index._held = Held(arrays["held_queries"], arrays["held_rows"])
            index._set_frozen(from_arrays(arrays, folder.tensors, meta))
            index.defaults = SearchParameters(**meta["defaults"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"The index folder lacks or misstates something that its version needs: {error}. "
                "Build the index again, or open it with the version of irli that wrote it."
            ) from error
        return index


def _checked_relevance(relevance: Any, queries: NDArray[np.float32] | None, items: int) -> Any:
    if relevance is None:
        return None
    if queries is None:
        raise InvalidParameter(
            "The 'relevance' parameter of fit must come with 'queries', one row for each of them. "
            "Got no queries. Pass fit(X, queries=Q, relevance=Y), or neighbors= for the items' own."
        )
    return as_relevance(relevance, len(queries), items)


def _checked_neighbors(neighbors: Any, items: int) -> NDArray[np.int64]:
    """Check the neighbours of the items, and drop each item itself."""
    near = as_array(neighbors, "neighbors")
    if near.dtype.kind not in "iu" or near.ndim != 2 or len(near) != items or near.size == 0:
        raise InvalidParameter(
            f"The 'neighbors' parameter of fit must be an integer array of shape ({items}, j), the "
            f"nearest items of each item. Got dtype {near.dtype} of shape {near.shape} instead. "
            "Leave it out to have them computed."
        )
    if near.max() >= items or near.min() < -1:
        raise InvalidParameter(
            f"The 'neighbors' parameter of fit must hold rows from 0 to {items - 1}, or -1 as "
            f"padding. Got {near.min()} to {near.max()} instead. Number the items from 0 up."
        )
    return np.where(near == np.arange(items)[:, None], -1, near).astype(np.int64)
