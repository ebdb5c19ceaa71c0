"""VectorIndex, the public class: check arguments, run the phases, search, save and load."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import (
    as_array,
    as_ids,
    as_queries,
    as_vectors,
    check_int,
    check_keywords,
    check_norms,
)
from irli.base.distance import resolve_metric, worst_distance
from irli.base.folder import VECTORS, Folder, write_folder
from irli.base.ids import Allowed, Ids
from irli.base.index import SavedIndex
from irli.base.recipe import AUTO, Recipe, as_recipe
from irli.base.threads import thread_count
from irli.base.types import StrPath
from irli.engine.metric import ANSWER_FORM, prepare_vectors
from irli.engine.vector_layout import LEVELS, SearchPlan
from irli.errors import InvalidParameter, NotFitted
from irli.vectors.contents import VectorContents, pack_vectors, unpack_vectors
from irli.vectors.held_out import HeldOut, hold_out
from irli.vectors.parameters import FilterPlan, SearchArguments, SearchParameters
from irli.vectors.searcher import Explanation, Searcher
from irli.vectors.tune_result import TuneResult
from irli.vectors.work import count_exact_work, count_work

if TYPE_CHECKING:  # what a search does not need is imported where it is used
    from irli.learning.options import LearnArguments
    from irli.learning.repetition import History


_RECALL, _K = 0.95, 10  # what `fit` tunes the search to
_SHORTEST = 1e-15  # length of the longest vector; shorter ones have no squares in float32


class SearchResult(NamedTuple):
    """Distances and ids, nearest first, in the order in which FAISS returns them."""

    distances: NDArray[np.float32]
    ids: NDArray[np.int64]

    @property
    def counts(self) -> Any:
        """How many items were found for each query. The other columns are padding."""
        return (self.ids >= 0).sum(axis=-1)


class _LastPlan(NamedTuple):
    """The plan of the last search, and the arguments that it was made from."""

    defaults: SearchParameters
    k: int
    given: SearchArguments
    plan: SearchPlan


class VectorIndex(SavedIndex):
    """Approximate nearest-neighbour search with learned, balanced buckets.

    Parameters
    ----------
    metric : {"l2", "ip", "cosine"}
        "l2" is the squared Euclidean distance, "ip" the inner product (largest first), "cosine"
        1 - cos. "euclidean" is the same as "l2", "dot" and "inner_product" as "ip", "angular" as
        "cosine".
    recipe : str or Recipe
        How to learn: "default", "paper", or one made with `irli.recipe`. "exact" learns nothing
        and compares all items. "auto" is "exact" for few items, where that takes less than 200
        microseconds a query, and else "default".

    Attributes
    ----------
    defaults : SearchParameters
        The search parameters of calls that give none. `tune` sets them.
    tuned : TuneResult
        What `tune` found last.
    history : list of dict
        Loss, recall and loads after each re-partition of each repetition.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 16))
    >>> index = VectorIndex().fit(X)
    >>> found = index.search(X[:5], k=3)
    >>> found.ids[:, 0]
    array([0, 1, 2, 3, 4])
    """

    defaults: SearchParameters
    _ids: Ids
    _tuning: HeldOut

    def __init__(self, metric: str = "l2", *, recipe: str | Recipe = AUTO) -> None:
        self.metric = resolve_metric(metric, owner="VectorIndex")
        self.recipe = self._given_recipe = as_recipe(recipe)  # `fit` resolves it for its data
        self.history: History = []
        self.tuned: TuneResult | None = None
        self._searcher: Searcher | None = None
        self._last: _LastPlan | None = None

    # --- learning ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        ids: Any = None,
        queries: Any = None,
        relevance: Any = None,
        *,
        neighbors: Any = None,
        **options: Unpack[LearnArguments],
    ) -> VectorIndex:
        """Learn an index of the vectors `X`, and tune the search to recall 0.95 at k = 10.

        Parameters
        ----------
        X : array_like of shape (N, d)
        ids : array_like of shape (N,), optional
            The int64 ids that searches return. By default the row numbers.
        queries : array_like of shape (n, d), optional
            Sample queries, if queries are not distributed like the items.
        relevance : sparse array of shape (n, N) or int array of shape (n, j), optional
            The items (rows of `X`) that are relevant to each query. By default its nearest
            neighbours.
        neighbors : int array of shape (N, j), optional
            The nearest neighbours of each item, without itself. By default they are computed.
        **options
            progress, threads, workers, device, checkpoint: see `LearnOptions`.
        """
        from irli.learning.options import LearnArguments, LearnOptions
        from irli.vectors.assemble import assemble, assemble_exact

        check_keywords(options, LearnArguments.__annotations__, owner="fit")
        run = LearnOptions(**options)
        vectors = prepare_vectors(self._check_scale(as_vectors(X, "X"), "X"), self.metric)
        borrowed = vectors is X or vectors.base is not None
        if borrowed and not isinstance(X, np.memmap):
            vectors = vectors.copy()  # later changes of X must not change the index
        count, dim = vectors.shape
        recipe = self._given_recipe
        if relevance is not None and recipe.name == AUTO:
            recipe = as_recipe("relevance")
        recipe = recipe.resolve(count, dim)
        given = None
        if queries is not None:
            checked = self._check_scale(as_vectors(queries, "queries", dim), "queries")
            given = prepare_vectors(checked, self.metric)
        wanted = _check_relevance(relevance, given, count)
        near = None if neighbors is None else _check_neighbors(neighbors, count)
        named = np.arange(count) if ids is None else as_ids(ids, count).copy()
        if recipe.name == "exact":
            return self._set(assemble_exact(vectors, self.metric, recipe, ids=named))

        from irli.learning import learn, load_runs
        from irli.vectors.problem import make_problem
        from irli.vectors.tune import tune

        load_runs(run.device)  # fails early if torch or the device is missing
        problem, tuning = make_problem(
            vectors,
            self.metric,
            recipe,
            queries=given,
            relevance=wanted,
            neighbors=near,
            threads=run.thread_count,
            progress=run.progress,
        )
        repetitions = learn(problem, recipe, run)
        contents = assemble(vectors, self.metric, recipe, repetitions, ids=named, tuning=tuning)
        tuned = tune(Searcher(contents.layout), tuning, self.metric, _RECALL, _K)
        return self._set(dataclasses.replace(contents, defaults=tuned.parameters, tuned=tuned))

    def _check_scale(self, vectors: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        if self.metric != "cosine":  # any vector can be scaled to unit length
            check_norms(vectors, name, least=_SHORTEST if name == "X" else 0.0)
        return vectors

    def _set(self, contents: VectorContents) -> VectorIndex:
        """Take over the contents in one step: an interrupt leaves the old index or the new one."""
        self.__dict__.update(
            recipe=contents.recipe,
            history=contents.history,
            defaults=contents.defaults,
            tuned=contents.tuned,
            _tuning=contents.tuning,
            _ids=Ids(contents.ids),
            _searcher=Searcher(contents.layout),
            _last=None,
        )
        return self

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        threads: int | None = None,
        **parameters: Unpack[SearchArguments],
    ) -> SearchResult:
        """Find the k nearest items of each query (Algorithm 2 of the paper).

        Parameters
        ----------
        queries : array_like of shape (n, d), or (d,) for a single one
        filter : int array of allowed ids, bool array of shape (N,), or Deny
            Restricts the search to some of the items.
        threads : int
            -1 uses every core.
        **parameters
            probes, threshold, min_votes, candidates, score: see `SearchParameters`. Those left out
            have the values that `tune` chose.

        Returns
        -------
        SearchResult
            `distances` and `ids` of shape (n, k), or (k,) for a single query. If fewer than k items
            are found, the other columns have id -1 and an infinite distance.
        """
        searcher = self._fitted()
        allowed = self._ids.allowed(filter)
        plan = self._make_plan(k, parameters, allowed)
        form = ANSWER_FORM[self.metric]
        if filter is None and type(queries) is np.ndarray and queries.ndim == 1 and plan.k == k:
            found = searcher.search_one(queries, plan, self._ids.values, form)
            if found is not None and math.isfinite(found[0][0]):  # or else it may be too long
                return SearchResult(*found)
        prepared, single = as_queries(queries, searcher.layout.vectors.shape[1])
        self._check_scale(prepared, "queries")
        threads = thread_count(threads)
        distances, ids = searcher.search(prepared, plan, allowed, self._ids.values, form, threads)
        if plan.k < k:
            distances = _add_columns(distances, k, worst_distance(self.metric))
            ids = _add_columns(ids, k, -1)
        return SearchResult(distances[0], ids[0]) if single else SearchResult(distances, ids)

    def explain(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        **given: Unpack[SearchArguments],
    ) -> Explanation:
        """Report the work of a search. Queries run one by one, on one thread."""
        searcher = self._fitted()
        allowed = self._ids.allowed(filter)
        plan = self._make_plan(k, given, allowed)
        prepared, _ = as_queries(queries, searcher.layout.vectors.shape[1])
        self._check_scale(prepared, "queries")
        explanation = searcher.explain(prepare_vectors(prepared, self.metric), plan, allowed)
        ids = _add_columns(self._ids.names(explanation.ids), k, -1)
        return explanation._replace(ids=ids, votes=_add_columns(explanation.votes, k, 0))

    def _make_plan(self, k: int, given: SearchArguments, allowed: Allowed | None) -> SearchPlan:
        """Return the plan of a search, or the last plan if the arguments are the same."""
        last = self._last
        # Compare with 'is': True equals 1, but is no valid number of probes.
        if allowed is None and last is not None and last.k is k and last.defaults is self.defaults:
            if not given and not last.given:
                return last.plan
            same = len(last.given) == len(given)
            if same and all(last.given.get(name, self) is value for name, value in given.items()):
                return last.plan
        check_int("k", k, at_least=1, owner="search")
        parameters, most = self.defaults.replace(**given), min(int(k), len(self))
        self._check_score(parameters.score)
        if allowed is not None:
            return self._plan_filtered(parameters, most, len(allowed.rows))
        plan = parameters.to_plan(most)
        self._last = _LastPlan(self.defaults, k, given, plan)
        return plan

    def _check_score(self, score: str) -> None:
        if score == "codes" and self._fitted().layout.codes.blocks.size == 0:
            raise InvalidParameter(
                "The 'score' parameter of search must not be 'codes' for an index without codes. "
                "Got 'codes' instead. Use another score, or learn with pieces=64 in the recipe."
            )

    def _plan_filtered(self, parameters: SearchParameters, k: int, allowed: int) -> SearchPlan:
        """Return a plan that compares the few allowed items, or widens by the share of the many."""
        layout = self._fitted().layout
        exact = count_exact_work(layout, allowed)
        level = math.log2(len(layout.vectors) / max(1, allowed))
        if parameters.points:
            routed = parameters.work_at(k * 2**level)
        else:  # given by the user
            routed = count_work(layout, 0, 0, 0, codes=False)
        if exact <= routed or allowed <= k:
            return dataclasses.replace(parameters, exact=True).to_plan(k)
        levels = (step / 2 for step in range(2 * LEVELS))
        dear = (
            at
            for at in levels
            if at > level and parameters.points and parameters.work_at(k * 2**at) > exact
        )
        return parameters.to_plan(k, FilterPlan(level, next(dear, math.inf)))

    # --- tuning --------------------------------------------------------------------------------

    def tune(self, recall: float = 0.95, k: int = 10, queries: Any = None) -> TuneResult:
        """Find the search of least work that reaches `recall`, and make it the default.

        It is tuned for `k`, and for 1, 10, 100 and 1000 items. Other k take what lies between.
        Nearly all items must find themselves, too.

        Parameters
        ----------
        recall : float
            The share of the true k nearest neighbours that must be found, on average.
        queries : array_like of shape (n, d), optional
            Queries to tune with. By default those that `fit` held out. If `fit` was given sample
            queries, held-out items and held-out queries must both reach the recall.

        Returns
        -------
        TuneResult
            The parameters, their measured recall and counted work, and whether the recall was
            reached.
        """
        from irli.vectors.tune import tune

        searcher = self._fitted()
        held = self._tuning
        if queries is not None:
            given = as_vectors(queries, "queries", searcher.layout.vectors.shape[1])
            given = self._check_scale(given, "queries")
            held = hold_out(prepare_vectors(given, self.metric))
        tuned = tune(searcher, held, self.metric, recall, k)
        self.__dict__.update(defaults=tuned.parameters, tuned=tuned)
        return tuned

    # --- inspecting ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted().layout.vectors)

    def __contains__(self, id: object) -> bool:
        self._fitted()
        if not isinstance(id, int | np.integer) or not -(2**63) <= id < 2**63:
            return False
        return len(self._ids.rows([id])) > 0

    def __repr__(self) -> str:
        settings = f"metric={self.metric!r}, recipe={self.recipe.name!r}"
        if self._searcher is None:
            return f"VectorIndex({settings}, not fitted)"
        repetitions, buckets = self._searcher.layout.bias.shape
        return f"VectorIndex({settings}, {len(self)} items, {repetitions} x {buckets} buckets)"

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids of all items (N,), in the order of the rows given to `fit`."""
        self._fitted()
        return self._ids.values

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vectors of all items (N, d), of unit length for cosine."""
        return self._fitted().layout.vectors

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array of shape (B,) for each repetition."""
        return list(np.diff(self._fitted().layout.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values."""
        from irli.base.metrics import load_summary

        layout = self._fitted().layout
        inner = (*layout.codes, *layout.projection, *layout.int8, *layout.centroids)
        parts = (*layout, *inner, self._ids.values)
        repetitions, buckets = layout.bias.shape
        return {
            "kind": VECTORS,
            "metric": self.metric,
            "items": len(self),
            "dim": layout.vectors.shape[1],
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": len(layout.items),
            "router_multiplications": layout.router_multiplications,
            "loads": [load_summary(loads) for loads in self.loads()],
            "recipe": dataclasses.asdict(self.recipe),
            "defaults": self.defaults.to_json(),
            "bytes": sum(part.nbytes for part in parts if isinstance(part, np.ndarray)),
            "bytes_vectors": layout.vectors.nbytes,
            "bytes_codes": layout.codes.blocks.nbytes,
        }

    def _fitted(self) -> Searcher:
        if self._searcher is None:
            raise NotFitted("This VectorIndex is not fitted yet. Call fit(X) or irli.load(path).")
        return self._searcher

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write the index folder `path`. An index that is there already is replaced."""
        contents = VectorContents(
            metric=self.metric,
            layout=self._fitted().layout,
            recipe=self.recipe,
            ids=self._ids.values,
            tuning=self._tuning,
            history=self.history,
            defaults=self.defaults,
            tuned=self.tuned,
        )
        write_folder(path, pack_vectors(contents))

    @classmethod
    def from_folder(cls, folder: Folder) -> VectorIndex:
        """Return the index that a folder in memory holds."""
        contents = unpack_vectors(folder)
        index = cls(contents.metric, recipe=contents.recipe)
        return index._set(contents)


def _add_columns(array: NDArray[Any], width: int, value: float) -> NDArray[Any]:
    """Pad rows to `width` columns, for a k above the number of items."""
    more = width - array.shape[1]
    return array if more == 0 else np.pad(array, ((0, 0), (0, more)), constant_values=value)


def _check_relevance(relevance: Any, queries: NDArray[np.float32] | None, items: int) -> Any:
    from irli.base.sparse import as_relevance

    if relevance is None:
        return None
    if queries is None:
        raise InvalidParameter(
            "The 'relevance' parameter of fit must come with 'queries', one row for each of them. "
            "Got no queries. Pass fit(X, queries=Q, relevance=Y), or neighbors= for the items."
        )
    return as_relevance(relevance, len(queries), items)


def _check_neighbors(neighbors: Any, items: int) -> NDArray[np.int64]:
    """Check the neighbours of the items, and replace each item itself by -1."""
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
