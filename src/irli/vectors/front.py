"""VectorFront: what all vector indexes share. It checks arguments, and names what engines find."""

from __future__ import annotations

from html import escape
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_queries, as_vectors, check_float, check_k, check_norms
from irli.base.ids import Allowed, Ids, TextIds, check_filters, split_filter
from irli.base.index import Configured
from irli.base.logs import describe_few, warn
from irli.base.memory import MappedFile
from irli.base.recipe import Recipe
from irli.base.threads import limit_blas, thread_count
from irli.errors import InvalidParameter, NotFitted
from irli.vectors.parameters import SearchArguments, SearchParameters
from irli.vectors.range_search import rank_by_distance
from irli.vectors.results import MakeResult, RangeResult, SearchResult, choose_result
from irli.vectors.searcher import Explanation
from irli.vectors.tune_result import TuneResult

Answer = tuple[NDArray[np.float32], NDArray[np.int64]]  # distances and ids
Filters = Allowed | list[Allowed | None] | None  # for all queries, or one for each

RECALL, K = 0.95, 10  # what `fit` tunes the search to
_SHORTEST = 1e-15  # length of the longest vector; shorter ones have no squares in float32


class Request(NamedTuple):
    """What is asked of an engine. It has been checked."""

    queries: NDArray[np.float32]  # (n, d), as long as they were given
    parameters: SearchParameters
    filters: Filters = None
    threads: int | None = None


class Engine(Protocol):
    """What holds the items of an index, and searches them: one part in memory, or several.

    In answers of shape (n, k), ids are those of `ids.values`: numbers, or rows where ids are
    strings. Padding, where there are fewer items, is last: id -1 and an infinite distance.
    """

    metric: str
    names: TextIds | None  # if ids are strings
    make_result: MakeResult  # makes the result of a search; the front sets it

    @property
    def dim(self) -> int: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def history(self) -> list[dict[str, Any]]: ...
    def __len__(self) -> int: ...
    def search_one(
        self,
        query: NDArray[Any],
        k: int,
        parameters: SearchParameters,
        allowed: Allowed | None,
        threads: int | None,
    ) -> Answer | None:
        """Answer one query (d,) of any type with little ado, or return None if it takes more."""

    def search(self, asked: Request, k: int) -> Answer: ...
    def search_range(self, asked: Request, radius: float) -> RangeResult: ...
    def explain(self, asked: Request, k: int) -> Explanation: ...
    def tune(self, recall: float, k: int, queries: NDArray[np.float32] | None) -> TuneResult: ...
    def allow(self, filter: Any) -> Allowed:
        """Return the rows that a filter allows."""

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of some rows."""

    def loads(self) -> list[NDArray[np.int64]]: ...
    def stats(self) -> dict[str, Any]: ...


class _Chosen(NamedTuple):
    """The parameters of the last search, and the arguments that they were chosen by."""

    defaults: SearchParameters
    given: SearchArguments
    parameters: SearchParameters


E = TypeVar("E", bound="Engine")


class VectorFront(Configured, Generic[E]):
    """The methods of every vector index, whatever engine answers.

    Attributes
    ----------
    defaults : SearchParameters
        The search parameters of calls that give none. `tune` sets them.
    tuned : TuneResult
        What `tune` found last. It is saved with the index.
    """

    metric: str
    recipe: Recipe
    defaults: SearchParameters
    tuned: TuneResult | None = None
    _engine: E | None = None
    _source: MappedFile | None = None  # what the vectors are read from, if not from our folder
    _chosen: _Chosen | None = None

    def _take_over(self, engine: E, **attributes: Any) -> Self:
        """Answer with an engine. In one step: an interrupt leaves the old one or the new one."""
        engine.make_result = choose_result(engine.metric, engine.names)
        vars(self).update(metric=engine.metric, _engine=engine, **attributes)
        return self

    def _fitted(self) -> E:
        engine = self._engine
        if engine is None:
            raise NotFitted(
                f"This {type(self).__name__} is not fitted yet. Call fit(X) or irli.load(path)."
            )
        if self._source is not None:
            self._source.warn_if_changed()
        return engine

    # --- searching -----------------------------------------------------------------------------

    def _search(
        self,
        engine: E,
        queries: Any,
        k: int,
        filter: Any,
        threads: int | None,
        given: SearchArguments,
    ) -> SearchResult:
        parameters, items = self._choose(given), len(engine)
        k = check_k(k, items, owner="search")
        if threads is not None:  # asking the system takes a while
            threads = thread_count(threads)
        filters = None if filter is None else self._read_filter(engine, filter)
        if type(queries) is np.ndarray and _is_one(queries) and not isinstance(filters, list):
            single = queries.ndim == 1
            row = queries if single else queries[0]
            found = engine.search_one(row, k, parameters, filters, threads)
            if found is not None:
                return engine.make_result(*(found if single else (found[0][None], found[1][None])))
        prepared, single = self._prepare(queries, filters)
        distances, ids = engine.search(Request(prepared, parameters, filters, threads), k)
        if parameters.min_votes > 1 and (ids[:, :items] < 0).any():
            warn(describe_few(k, "items", "queries", parameters.min_votes))
        return engine.make_result(*((distances[0], ids[0]) if single else (distances, ids)))

    def _search_range(
        self,
        engine: E,
        queries: Any,
        radius: float,
        filter: Any,
        threads: int | None,
        given: SearchArguments,
    ) -> RangeResult:
        radius = check_float("radius", radius, owner="search_range")
        parameters = self.defaults.replace(**rank_by_distance(given))
        if threads is not None:
            threads = thread_count(threads)
        filters = None if filter is None else self._read_filter(engine, filter)
        prepared, _ = self._prepare(queries, filters)
        asked = Request(prepared, parameters, filters, threads)
        found = engine.search_range(asked, radius)
        if engine.names is not None:
            found = found._replace(ids=engine.names.names(found.ids))
        found.metric = self.metric
        return found

    def allow(self, filter: Any) -> Allowed:
        """Prepare a filter that many calls will use, so that each one need not read it again.

        It holds for this index as it is now: after another `fit`, it is refused.

        Parameters
        ----------
        filter : as for `search`
            What it allows now: later changes of an array do not count.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex().fit(np.eye(3), ids=[10, 20, 30])
        >>> some = index.allow([20, 30])
        >>> index.search(np.eye(3)[0], k=1, filter=some).ids
        array([20])
        """
        engine = self._fitted()
        return engine.allow(filter).prepare(engine.ids.token)

    def explain(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        **given: Unpack[SearchArguments],
    ) -> Explanation:
        """Report the work of a search for these queries. They run one by one, on one thread.

        Of several shards, work is summed, and seconds are those of the slowest one.
        """
        engine = self._fitted()
        parameters = self._choose(given)
        k = check_k(k, len(engine), owner="explain")
        filters = None if filter is None else self._read_filter(engine, filter)
        prepared, _ = self._prepare(queries, filters)
        told = engine.explain(Request(prepared, parameters, filters), k)
        return told if engine.names is None else told._replace(ids=engine.names.names(told.ids))

    def _choose(self, given: SearchArguments) -> SearchParameters:
        """Return the parameters of one call, or those of the last one if nothing has changed."""
        last = self._chosen
        # Compare with 'is': True equals 1, but is no valid number of probes.
        if last is not None and last.defaults is self.defaults and len(last.given) == len(given):
            before = last.given
            if not given or all(before.get(name, self) is value for name, value in given.items()):
                return last.parameters
        parameters = self.defaults.replace(**given)
        self._chosen = _Chosen(self.defaults, given, parameters)
        return parameters

    def _read_filter(self, engine: E, filter: Any) -> Filters:
        """Return the allowed items, or those of each query."""
        several = split_filter(filter)
        if several is None:
            return None if filter is None else engine.allow(filter)
        read = {id(one): None if one is None else engine.allow(one) for one in several}
        return [read[id(one)] for one in several]

    def _prepare(self, queries: Any, filters: Filters) -> tuple[NDArray[np.float32], bool]:
        """Return queries (n, d), and whether it was a single one."""
        prepared, single = as_queries(queries, self.dim)
        if isinstance(filters, list):
            check_filters(filters, len(prepared))
        return check_scale(prepared, "queries", self.metric), single

    # --- tuning --------------------------------------------------------------------------------

    @limit_blas()
    def tune(self, recall: float = RECALL, k: int = K, queries: Any = None) -> TuneResult:
        """Find the search of least work that reaches `recall`, and make it the default.

        It is tuned for `k`, and for 1, 10, 100, 300 and 1000 items. Other k take what lies between.
        Nearly all items must find themselves, too. If `fit` was given relevance, the share of the
        relevant items counts instead, and it also chooses how results are ranked. With
        `search="votes"` in the recipe, it chooses probes and `min_votes`, for `k` alone, as the
        paper does.

        All shards of a `ShardedIndex` get the same parameters. The counted work is that of a query
        in all shards.

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
        engine = self._fitted()
        if queries is not None:
            queries = check_scale(as_vectors(queries, "queries", self.dim), "queries", self.metric)
        tuned = engine.tune(recall, k, queries)
        vars(self).update(defaults=tuned.parameters, tuned=tuned)
        return tuned

    # --- inspecting ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._fitted())

    def __contains__(self, id: object) -> bool:
        return id in self._fitted().ids

    def __repr__(self) -> str:
        settings = f"metric={self.metric!r}, recipe={self.recipe.name!r}"
        return f"{type(self).__name__}({settings}, {self._describe()})"

    def _describe(self) -> str:
        """Return the sizes of the index in words."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from irli.vectors.notebook import show_index

        if self._engine is None:
            return f"<code>{escape(repr(self))}</code>"
        facts = self._list_facts()
        return show_index(type(self).__name__, self.stats(), self.tuned, self.loads()[0], **facts)

    def _list_facts(self) -> dict[str, object]:
        """Return what else to show in a notebook."""
        return {}

    @property
    def ids(self) -> NDArray[Any]:
        """The ids of all items (N,), in the order of the rows given to `fit`.

        Strings are an object array, which is made at each call.
        """
        return self._fitted().ids.all()

    @property
    def ntotal(self) -> int:
        """The number of items, like `len(index)`. FAISS calls it so."""
        return len(self)

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return self._fitted().dim

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """The type of the stored vectors: float32."""
        self._fitted()
        return np.dtype(np.float32)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition of each repetition."""
        return [] if self._engine is None else self._engine.history

    def vector(self, ids: Any) -> NDArray[np.float32]:
        """Return the vector of an id (d,), or those of several ids (n, d).

        For cosine, they are of unit length: lengths are not kept.

        Examples
        --------
        >>> import irli
        >>> index = irli.VectorIndex().fit([[0.0, 1.0], [2.0, 3.0]], ids=["a", "b"])
        >>> index.vector("b")
        array([2., 3.], dtype=float32)
        >>> index.vector(["b", "a", "b"]).shape
        (3, 2)
        """
        engine = self._fitted()
        rows = engine.ids.locate(ids)
        vectors = engine.take(np.atleast_1d(rows))
        return vectors if rows.ndim else vectors[0]

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array for each repetition.

        It has the shape (B,), or (P B,) for P shards.
        """
        return self._fitted().loads()

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values, of all shards together."""
        from irli.base.metrics import load_summary

        return self._fitted().stats() | {
            "loads": [load_summary(loads) for loads in self.loads()],
            "defaults": self.defaults.to_json(),
        }


def check_scale(vectors: NDArray[np.float32], name: str, metric: str) -> NDArray[np.float32]:
    """Return vectors whose squared lengths are float32 numbers, or raise an error."""
    if metric != "cosine":  # any vector can be scaled to unit length
        check_norms(vectors, name, least=_SHORTEST if name == "X" else 0.0)
    return vectors


def check_relevance(relevance: Any, queries: Any, recipe: Recipe) -> None:
    """Raise if `fit` was given relevance without queries, or with a recipe that learns none."""
    if relevance is None:
        return
    if queries is None:
        raise InvalidParameter(
            "The 'relevance' parameter of fit must come with 'queries', one row for each of them. "
            "Got no queries. Pass fit(X, queries=Q, relevance=Y), or neighbors= for the items."
        )
    if recipe.name == "exact":
        raise InvalidParameter(
            "The 'relevance' parameter of fit must be left out with recipe='exact', which learns "
            "nothing and finds the nearest items. Got some. Use recipe='relevance' to learn it."
        )


def _is_one(queries: NDArray[Any]) -> bool:
    """Whether the array has the shape of one query: (d,) or (1, d)."""
    return queries.ndim == 1 or (queries.ndim == 2 and len(queries) == 1)
