"""VectorIndex, the public class: check arguments, run the phases, search, save and load."""

from __future__ import annotations

import dataclasses
import math
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from irli._native import SearchPlan
from irli.base.checks import (
    LONGEST,
    as_array,
    as_queries,
    as_vectors,
    check_bool,
    check_float,
    check_k,
    check_keywords,
    check_norms,
)
from irli.base.distance import resolve_metric, worst_distance
from irli.base.folder import VECTORS, Folder, write_folder
from irli.base.ids import (
    Allowed,
    Ids,
    TextIds,
    as_id_list,
    check_filters,
    check_known,
    make_ids,
    split_filter,
)
from irli.base.index import Configured, SavedIndex
from irli.base.logs import describe_few, warn
from irli.base.memory import MappedFile
from irli.base.recipe import AUTO, Recipe, as_recipe
from irli.base.threads import thread_count
from irli.base.types import StrPath
from irli.engine.metric import ANSWER_FORM, prepare_vectors
from irli.errors import InvalidParameter, NotFitted
from irli.vectors.build.held_out import HeldOut, hold_out, require_queries
from irli.vectors.contents import VectorContents, pack_vectors, unpack_vectors
from irli.vectors.cost import count_exact_work, count_work
from irli.vectors.parameters import FilterPlan, SearchArguments, SearchParameters
from irli.vectors.range_search import find_within, rank_by_distance
from irli.vectors.results import MakeResult, RangeResult, SearchResult, choose_result
from irli.vectors.searcher import Explanation, Searcher, join_explanations
from irli.vectors.tune_result import TuneResult

if TYPE_CHECKING:  # what a search does not need is imported where it is used
    from irli.learning.options import LearnArguments
    from irli.learning.repetition import History


_EAGER = 2.0  # a search that has to widen much is not much cheaper than comparing all
_RECALL, _K = 0.95, 10  # what `fit` tunes the search to
_SHORTEST = 1e-15  # length of the longest vector; shorter ones have no squares in float32


class _LastPlan(NamedTuple):
    """The plan of the last search, and the arguments that it was made from."""

    defaults: SearchParameters
    k: int
    given: SearchArguments
    filtered: tuple[int, int] | None  # allowed items and queries, if there is a filter
    plan: SearchPlan

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy in another process makes its own


class VectorIndex(SavedIndex, Configured):
    """Approximate nearest-neighbour search with learned, balanced buckets.

    Parameters
    ----------
    metric : {"l2", "ip", "cosine"}
        "l2" is the squared Euclidean distance, "ip" the inner product (largest first), "cosine"
        1 - cos, so that smaller is nearer. Results also have `similarities`. "euclidean" is the
        same as "l2", "dot" and "inner_product" as "ip", "angular" as "cosine".
    recipe : str or Recipe
        How to learn: "default", "relevance", "paper", or one made with `irli.recipe`. "exact"
        learns nothing and compares all items. "auto" is "relevance" if that is given, "exact" for
        few items, where that takes less than 200 microseconds a query, and else "default".

    Attributes
    ----------
    defaults : SearchParameters
        The search parameters of calls that give none. `tune` sets them.
    tuned : TuneResult
        What `tune` found last. It is saved with the index.
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
    _make_result: MakeResult

    def __init__(self, metric: str = "l2", *, recipe: str | Recipe = AUTO) -> None:
        self._given = {"metric": metric, "recipe": recipe}
        self.metric = resolve_metric(metric, owner="VectorIndex")
        self.recipe = as_recipe(recipe)  # `fit` resolves it for its data
        self.history: History = []
        self.tuned: TuneResult | None = None
        self._searcher: Searcher | None = None
        self._last: _LastPlan | None = None
        self._source: MappedFile | None = None

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
            It is copied, unless it is a mapped file of float32 and the metric is not "cosine". The
            index then reads this file, and warns if it changes.
        ids : array_like of shape (N,), optional
            The ids that searches return: integers or strings. By default the row numbers.
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
        from irli.vectors.build.assemble import assemble, assemble_exact

        check_keywords(options, LearnArguments.__annotations__, owner="fit")
        run = LearnOptions(**options)
        metric = resolve_metric(self._given["metric"])
        vectors = prepare_vectors(_check_scale(as_vectors(X, "X"), "X", metric), metric)
        borrowed = vectors is X or vectors.base is not None
        source = MappedFile.of(X) if borrowed else None
        if borrowed and source is None:
            vectors = vectors.copy()  # later changes of X must not change the index
        count, dim = vectors.shape
        recipe = as_recipe(self._given["recipe"])
        if relevance is not None and recipe.name == AUTO:
            recipe = as_recipe("relevance")
        recipe = recipe.resolve(count, dim)
        given = None
        if queries is not None:
            checked = _check_scale(as_vectors(queries, "queries", dim), "queries", metric)
            given = prepare_vectors(checked, metric)
        wanted = _check_relevance(relevance, given, count)
        near = None if neighbors is None else _check_neighbors(neighbors, count)
        named = make_ids(ids, count)
        if recipe.name == "exact":
            contents = assemble_exact(vectors, metric, recipe, ids=named.values)
            return self._set(dataclasses.replace(contents, strings=named.strings), source)

        from irli.learning import learn, load_runs
        from irli.vectors.build.problem import make_problem
        from irli.vectors.tuning.tune import tune

        load_runs(run.device)  # fails early if torch or the device is missing
        problem, tuning = make_problem(
            vectors,
            metric,
            recipe,
            queries=given,
            relevance=wanted,
            neighbors=near,
            threads=run.thread_count,
            progress=run.progress,
        )
        repetitions = learn(problem, recipe, run)
        contents = assemble(vectors, metric, recipe, repetitions, ids=named.values, tuning=tuning)
        by_votes = recipe.search == "votes"
        tuned = tune(Searcher(contents.layout), tuning, metric, _RECALL, _K, by_votes)
        contents = dataclasses.replace(
            contents, defaults=tuned.parameters, tuned=tuned, strings=named.strings
        )
        return self._set(contents, source)

    def _set(self, contents: VectorContents, source: MappedFile | None = None) -> VectorIndex:
        """Take over the contents in one step: an interrupt leaves the old index or the new one."""
        ids = Ids(contents.ids) if contents.strings is None else TextIds(contents.strings)
        self.__dict__.update(
            metric=contents.metric,
            recipe=contents.recipe,
            history=contents.history,
            defaults=contents.defaults,
            tuned=contents.tuned,
            _tuning=contents.tuning,
            _ids=ids,
            _make_result=choose_result(contents.metric, ids),
            _searcher=Searcher(contents.layout),
            _last=None,
            _source=source,
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
        filter : array, list, set or range of ids, bool array of shape (N,), Deny, or function
            Restricts the search to some of the items. A function is called with the id of every
            item, and returns whether to allow it. A list of filters, or an array with a row for
            each query, holds one filter for each query; None allows all. `allow` prepares a filter
            for many calls.
        threads : int
            -1 uses every core. A single query uses several for the repetitions of large routers.
        **parameters
            probes, threshold, min_votes, candidates, score, rank, exact: see `SearchParameters`.
            Those left out have the values that `tune` chose.

        Returns
        -------
        SearchResult
            `distances` and `ids` of shape (n, k), or (k,) for a single query. If fewer than k items
            are found, the other columns have id -1, or None if ids are strings, and an infinite
            distance.
        """
        searcher, filters = self._fitted(), split_filter(filter)
        if filters is not None:
            return self._search_each(queries, k, filters, threads, parameters)
        allowed, form = self._ids.allowed(filter), ANSWER_FORM[self.metric]
        if threads is not None:  # asking the system takes a while
            threads = thread_count(threads)
        spread = searcher.is_slow_to_route and thread_count(threads) > 1
        if type(queries) is np.ndarray and not spread and _is_one(queries):
            answer = self._search_one(queries, k, parameters, allowed)
            if answer is not None:
                return answer
        prepared, single = as_queries(queries, searcher.layout.vectors.shape[1])
        plan = self._make_plan(k, parameters, allowed, len(prepared))
        _check_scale(prepared, "queries", self.metric)
        threads = thread_count(threads)
        distances, ids = searcher.search(prepared, plan, allowed, self._ids.values, form, threads)
        if plan.k < k:
            distances = _add_columns(distances, k, worst_distance(self.metric))
            ids = _add_columns(ids, k, -1)
        if plan.min_votes > 1 and (ids[:, : plan.k] < 0).any():
            warn(describe_few(k, "items", "queries", plan.min_votes))
        return self._make_result(*((distances[0], ids[0]) if single else (distances, ids)))

    def allow(self, filter: Any) -> Allowed:
        """Prepare a filter that many calls will use, so that each one need not read it again.

        Parameters
        ----------
        filter : as for `search`
            What it allows now: later changes of an array do not count.

        Examples
        --------
        >>> index = VectorIndex().fit(np.eye(3), ids=[10, 20, 30])
        >>> some = index.allow([20, 30])
        >>> index.search(np.eye(3)[0], k=1, filter=some).ids
        array([20])
        """
        self._fitted()
        return self._ids.prepare(filter)

    def search_range(
        self,
        queries: Any,
        radius: float,
        *,
        filter: Any = None,
        threads: int | None = None,
        **parameters: Unpack[SearchArguments],
    ) -> RangeResult:
        """Find all items within a radius of each query, as `search` finds the k nearest.

        It searches for more and more items, until the last one is beyond the radius. So it finds
        the share of them that `search` finds, and all of them with `exact=True`.

        Parameters
        ----------
        queries, filter, threads, **parameters
            As for `search`.
        radius : float
            The largest distance, as `search` returns it: squared for l2, 1 - cos for cosine. For
            ip, the smallest inner product.

        Returns
        -------
        RangeResult
            `lims`, `distances` and `ids`. The items of query i are those from `lims[i]` to
            `lims[i + 1]`, nearest first.

        Examples
        --------
        >>> index = VectorIndex().fit([[0.0], [1.0], [3.0]], ids=["a", "b", "c"])
        >>> index.search_range([[0.0], [3.0], [9.0]], radius=4).split()[1].ids
        array(['c', 'b'], dtype=object)
        """
        searcher = self._fitted()
        radius = check_float("radius", radius, owner="search_range")
        prepared, _ = as_queries(queries, searcher.layout.vectors.shape[1])
        filters = split_filter(filter)
        if filters is not None:
            check_filters(filters, len(prepared))
        parameters = rank_by_distance(parameters)
        chosen = self.defaults.replace(**parameters)
        all_items = count_exact_work(searcher.layout, len(self))

        def search(rows: NDArray[np.int64], k: int) -> SearchResult:
            given = parameters.copy()
            if given.get("exact") is None and chosen.points and chosen.work_at(k) > all_items:
                given["exact"] = True
            some = filter if filters is None else [filters[row] for row in rows]
            return self.search(prepared[rows], k, filter=some, threads=threads, **given)

        return find_within(search, len(prepared), radius, metric=self.metric, items=len(self))

    def explain(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        **given: Unpack[SearchArguments],
    ) -> Explanation:
        """Report the work of a search for these queries. They run one by one, on one thread."""
        searcher = self._fitted()
        filters = split_filter(filter)
        if filters is not None:
            prepared, _ = as_queries(queries, self.dim)
            check_filters(filters, len(prepared))
            none = self.explain(prepared[:0], k, **given)
            each = zip(prepared, filters, strict=True)
            parts = [self.explain(q, k, filter=f, **given) for q, f in each]
            return join_explanations([none, *parts])
        allowed = self._ids.allowed(filter)
        prepared, _ = as_queries(queries, searcher.layout.vectors.shape[1])
        plan = self._make_plan(k, given, allowed, len(prepared))
        _check_scale(prepared, "queries", self.metric)
        explanation = searcher.explain(prepare_vectors(prepared, self.metric), plan, allowed)
        ids = self._ids.names(_add_columns(explanation.ids, k, -1))
        return explanation._replace(ids=ids, votes=_add_columns(explanation.votes, k, 0))

    def _search_one(
        self, query: NDArray[Any], k: int, parameters: SearchArguments, allowed: Allowed | None
    ) -> SearchResult | None:
        """Search one query (d,) or (1, d) with little ado, or return None if it takes more."""
        plan = self._make_plan(k, parameters, allowed)
        if plan.k != k:
            return None
        form, single = ANSWER_FORM[self.metric], query.ndim == 1
        row = query if single else query[0]
        found = self._fitted().search_one(row, plan, allowed, self._ids.values, form)
        # Else the query may be too long, or the answer too short.
        if found is None or not math.isfinite(found[0][0]) or found[1][-1] < 0:
            return None
        if self.metric == "ip" and np.linalg.norm(row.astype(np.float64)) > LONGEST:
            return None  # its products are numbers all the same
        distances, ids = found
        return self._make_result(*(found if single else (distances[None], ids[None])))

    def _search_each(
        self,
        queries: Any,
        k: int,
        filters: list[Any],
        threads: int | None,
        parameters: SearchArguments,
    ) -> SearchResult:
        """Search with one filter for each query. Queries with the same filter run together."""
        prepared, single = as_queries(queries, self.dim)
        check_filters(filters, len(prepared))
        together: dict[int, list[int]] = {}
        for row, filter in enumerate(filters):
            together.setdefault(id(filter), []).append(row)
        groups = list(together.values())
        if not groups:
            return self.search(prepared, k, **parameters)
        parts = [
            self.search(prepared[g], k, filter=filters[g[0]], threads=threads, **parameters)
            for g in groups
        ]
        place = np.argsort(np.concatenate(groups))
        distances, ids = (np.concatenate(arrays)[place] for arrays in zip(*parts, strict=True))
        kind = type(parts[0])
        return kind(distances[0], ids[0]) if single else kind(distances, ids)

    def _make_plan(
        self, k: int, given: SearchArguments, allowed: Allowed | None = None, queries: int = 1
    ) -> SearchPlan:
        """Return the plan of a search, or the last plan if the arguments are the same."""
        last = self._last
        filtered = None if allowed is None else (allowed.count, queries)
        # Compare with 'is': True equals 1, but is no valid number of probes.
        if last is not None and last.k is k and last.defaults is self.defaults:
            same = last.filtered == filtered and len(last.given) == len(given)
            if same and all(last.given.get(name, self) is value for name, value in given.items()):
                return last.plan
        check_k(k, len(self), owner="search")
        parameters, most = self.defaults.replace(**given), min(int(k), len(self))
        self._check_score(parameters.score)
        if filtered is None:
            plan = parameters.to_plan(most)
        else:
            plan = self._plan_filtered(parameters, most, *filtered)
        self._last = _LastPlan(self.defaults, k, given, filtered, plan)
        return plan

    def _check_score(self, score: str) -> None:
        if score == "codes" and self._fitted().layout.codes.blocks.size == 0:
            raise InvalidParameter(
                "The 'score' parameter of search must not be 'codes' for an index without codes. "
                "Got 'codes' instead. Use another score, or learn with pieces=64 in the recipe."
            )

    def _plan_filtered(
        self, parameters: SearchParameters, k: int, allowed: int, queries: int
    ) -> SearchPlan:
        """Return a plan that compares the few allowed items, or widens by the share of the many.

        Many queries are compared with the allowed items together, so it pays for more of them.
        """
        layout = self._fitted().layout
        exact = count_exact_work(layout, allowed)
        level = math.log2(len(layout.vectors) / max(1, allowed))
        if parameters.points:
            routed = parameters.work_at(k * 2**level)
        else:  # given by the user
            routed = count_work(layout, 0, 0, 0, codes=False)
        if count_exact_work(layout, allowed, queries) <= routed or allowed <= k:
            return parameters.to_plan(k, FilterPlan(all=True))
        dear = parameters.find_level(k, above=level, work=exact / _EAGER)
        return parameters.to_plan(k, FilterPlan(level, dear))

    # --- tuning --------------------------------------------------------------------------------

    def tune(self, recall: float = 0.95, k: int = 10, queries: Any = None) -> TuneResult:
        """Find the search of least work that reaches `recall`, and make it the default.

        It is tuned for `k`, and for 1, 10, 100, 300 and 1000 items. Other k take what lies between.
        Nearly all items must find themselves, too. If `fit` was given relevance, the share of the
        relevant items counts instead, and it also chooses how results are ranked. With
        `search="votes"` in the recipe, it chooses probes and `min_votes`, for `k` alone, as the
        paper does.

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
        from irli.vectors.tuning.tune import tune

        searcher = self._fitted()
        held = self._tuning
        if queries is not None:
            given = as_vectors(queries, "queries", searcher.layout.vectors.shape[1])
            given = _check_scale(given, "queries", self.metric)
            held = hold_out(prepare_vectors(given, self.metric))
        if self.recipe.name != "exact":
            require_queries(held.queries)
        by_votes = self.recipe.search == "votes"
        tuned = tune(searcher, held, self.metric, recall, k, by_votes)
        self.__dict__.update(defaults=tuned.parameters, tuned=tuned)
        return tuned

    # --- inspecting ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted().layout.vectors)

    def __contains__(self, id: object) -> bool:
        self._fitted()
        return id in self._ids

    def __repr__(self) -> str:
        settings = f"metric={self.metric!r}, recipe={self.recipe.name!r}"
        if self._searcher is None:
            return f"VectorIndex({settings}, not fitted)"
        repetitions, buckets = self._searcher.layout.bias.shape
        return f"VectorIndex({settings}, {len(self)} items, {repetitions} x {buckets} buckets)"

    def _repr_html_(self) -> str:
        from irli.vectors.notebook import show_index

        if self._searcher is None:
            return f"<code>{escape(repr(self))}</code>"
        return show_index("VectorIndex", self.stats(), self.tuned, self.loads()[0])

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all items (N,), in the order of the rows given to `fit`.

        Strings are an object array, which is made at each call.
        """
        self._fitted()
        return self._ids.all()

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vectors of all items (N, d), of unit length for cosine."""
        return self._fitted().layout.vectors

    @property
    def ntotal(self) -> int:
        """The number of items, like `len(index)`. FAISS calls it so."""
        return len(self)

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return int(self._fitted().layout.vectors.shape[1])

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """The type of the stored vectors: float32."""
        return self._fitted().layout.vectors.dtype

    def vector(self, ids: Any) -> NDArray[np.float32]:
        """Return the vector of an id (d,), or those of several ids (n, d).

        For cosine, they are of unit length: lengths are not kept.

        Examples
        --------
        >>> index = VectorIndex().fit([[0.0, 1.0], [2.0, 3.0]], ids=["a", "b"])
        >>> index.vector("b")
        array([2., 3.], dtype=float32)
        >>> index.vector(["b", "a", "b"]).shape
        (3, 2)
        """
        vectors = self._fitted().layout.vectors
        wanted, single = as_id_list(ids)
        rows = self._ids.find(wanted)
        check_known(wanted, rows >= 0)
        return np.array(vectors[rows[0] if single else rows])

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array of shape (B,) for each repetition."""
        return list(np.diff(self._fitted().layout.offsets, axis=1))

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values."""
        from irli.base.metrics import load_summary

        layout = self._fitted().layout
        inner = (*layout.codes, *layout.projection, *layout.int8, *layout.centroids)
        parts = (*layout, *inner)
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
            "bytes": self._ids.nbytes + sum(p.nbytes for p in parts if isinstance(p, np.ndarray)),
            "bytes_vectors": layout.vectors.nbytes,
            "bytes_codes": layout.codes.blocks.nbytes,
        }

    def _fitted(self) -> Searcher:
        if self._searcher is None:
            raise NotFitted("This VectorIndex is not fitted yet. Call fit(X) or irli.load(path).")
        if self._source is not None:
            self._source.warn_if_changed()
        return self._searcher

    # --- files ---------------------------------------------------------------------------------

    def save(self, path: StrPath, *, held: bool = True) -> None:
        """Write the index folder `path`. An index that is there already is replaced.

        Parameters
        ----------
        held : bool
            Whether the folder gets the queries that `fit` held out for `tune`, some of the given
            sample queries among them. If False, `tune` of the index in the folder needs `queries`.
        """
        layout, tuning = self._fitted().layout, self._tuning
        if not check_bool("held", held, owner="save"):
            tuning = hold_out(tuning.queries[:0])
        contents = VectorContents(
            metric=self.metric,
            layout=layout,
            recipe=self.recipe,
            ids=self._ids.values,
            strings=self._ids.strings,
            tuning=tuning,
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


def _check_scale(vectors: NDArray[np.float32], name: str, metric: str) -> NDArray[np.float32]:
    if metric != "cosine":  # any vector can be scaled to unit length
        check_norms(vectors, name, least=_SHORTEST if name == "X" else 0.0)
    return vectors


def _is_one(queries: NDArray[Any]) -> bool:
    """Whether the array has the shape of one query: (d,) or (1, d)."""
    return queries.ndim == 1 or (queries.ndim == 2 and len(queries) == 1)


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
