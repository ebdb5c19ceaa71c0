"""VectorIndex, the public class: check what `fit` is given, run the phases, save and load."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import (
    as_array,
    as_vectors,
    check_bool,
    check_float,
    check_int,
    check_keywords,
)
from irli.base.distance import resolve_metric
from irli.base.folder import Folder, read_folder, write_folder
from irli.base.ids import make_ids
from irli.base.index import SavedIndex
from irli.base.memory import MappedFile, align
from irli.base.progress import Phases
from irli.base.recipe import AUTO, Recipe, as_recipe
from irli.base.threads import limit_blas
from irli.base.types import StrPath
from irli.engine.metric import prepare_vectors
from irli.errors import InvalidParameter
from irli.vectors.changes.changeable import Changeable, Document, Maintain, check_payloads
from irli.vectors.contents import VectorContents, unpack_vectors
from irli.vectors.front import RECALL, K, check_relevance, check_scale
from irli.vectors.parameters import SearchArguments
from irli.vectors.parts.part import VectorPart
from irli.vectors.results import RangeResult, SearchResult, add_payloads

if TYPE_CHECKING:  # what a search does not need is imported where it is used
    from irli.learning.options import LearnArguments
    from irli.store.store import Sync


class VectorIndex(Changeable, SavedIndex):
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
    dim : int, optional
        The number of dimensions, for an index that starts without items. It compares all items
        until it has enough of them to learn.

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

    def __init__(
        self, metric: str = "l2", *, recipe: str | Recipe = AUTO, dim: int | None = None
    ) -> None:
        self._given = {"metric": metric, "recipe": recipe, "dim": dim}
        self.metric = resolve_metric(metric, owner="VectorIndex")
        self.recipe = as_recipe(recipe)  # `fit` resolves it for its data
        if dim is not None:
            from irli.vectors.build.assemble import assemble_exact

            none = np.empty((0, check_int("dim", dim, owner="VectorIndex", at_least=1)), np.float32)
            exact = as_recipe("exact").resolve(1, dim)
            ids = np.empty(0, dtype=np.int64)
            self._set(assemble_exact(none, self.metric, exact, ids=ids))

    # --- learning ------------------------------------------------------------------------------

    @limit_blas()
    def fit(
        self,
        X: Any,
        ids: Any = None,
        queries: Any = None,
        relevance: Any = None,
        *,
        payloads: Sequence[Document | None] | None = None,
        neighbors: Any = None,
        start: VectorIndex | None = None,
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
            Sample queries, if queries are not distributed like the items. The recipe "exact" needs
            none: it finds the nearest items of any query.
        relevance : sparse array of shape (n, N) or int array of shape (n, j), optional
            The items (rows of `X`) that are relevant to each query. By default its nearest
            neighbours. The recipe "exact" cannot learn it, and refuses it.
        payloads : list of dict or None, optional
            A document for each item, as JSON has them. Filters can ask for what they say.
        neighbors : int array of shape (N, j), optional
            The nearest neighbours of each item, without itself. By default they are computed.
        start : VectorIndex, optional
            An earlier index of similar items, in memory or loaded. Its routers learn on, and items
            that both have, with the same id and vector, begin in their buckets. Where a tenth of
            the items are new, that takes a fifth of the time. The recipe is that of `start` unless
            one is given, which must then have as many repetitions and buckets.
        **options
            progress, threads, workers, device, checkpoint: see `LearnOptions`.
        """
        from irli.base.sparse import as_relevance
        from irli.learning.options import LearnArguments, LearnOptions
        from irli.vectors.build.assemble import assemble, assemble_exact
        from irli.vectors.build.start import choose_recipe, shorten, start_from

        check_keywords(options, LearnArguments.__annotations__, owner="fit")
        self._forget_changes()
        run = LearnOptions(**options)
        metric = resolve_metric(self._given["metric"])
        vectors = prepare_vectors(check_scale(as_vectors(X, "X"), "X", metric), metric)
        shared = isinstance(X, np.ndarray) and np.may_share_memory(vectors, X)
        source = MappedFile.of(X) if shared else None
        # Later changes of X must not change the index, unless it is a mapped file.
        vectors = align(vectors, copy=shared and source is None)
        count, dim = vectors.shape
        recipe = as_recipe(self._given["recipe"])
        if relevance is not None and recipe.name == AUTO:
            recipe = as_recipe("relevance")
        if start is not None:
            earlier = _read_start(start)
            recipe = choose_recipe(recipe, earlier.recipe)
        recipe = recipe.resolve(count, dim)
        given = None
        if queries is not None:
            checked = check_scale(as_vectors(queries, "queries", dim), "queries", metric)
            given = prepare_vectors(checked, metric)
        check_relevance(relevance, queries, recipe)
        wanted = None if relevance is None else as_relevance(relevance, len(queries), count)
        near = None if neighbors is None else _check_neighbors(neighbors, count)
        named = make_ids(ids, count)
        if payloads is not None:  # fails early
            from irli.store.documents import encode

            check_payloads(payloads, count, "fit")
            encode(payloads)
        if recipe.name == "exact":
            contents = assemble_exact(vectors, metric, recipe, ids=named.values)
            contents = dataclasses.replace(contents, strings=named.strings)
            return self._set(contents, source, payloads)

        from irli.learning import check_device, learn
        from irli.learning.repetition import group_repetitions
        from irli.vectors.build.expected import expect_seconds
        from irli.vectors.build.problem import make_problem
        from irli.vectors.finders import choose_finder
        from irli.vectors.tuning.tune import KS

        check_device(run.device, recipe.mixed_precision)  # fails early
        begin = None if start is None else start_from(earlier, vectors, named, metric, recipe)
        learned = recipe if begin is None else shorten(recipe, count)
        expected = expect_seconds(count, dim, 0 if given is None else len(given), learned)
        with Phases(run.progress, expected) as phases:
            problem, held, truth = make_problem(
                vectors,
                metric,
                learned,
                queries=given,
                relevance=wanted,
                neighbors=near,
                k=max(KS),
                find_neighbors=choose_finder(recipe, run.device),
                threads=run.thread_count,
                progress=phases.begin("neighbours"),
            )
            groups = 1 if run.workers > 1 else len(group_repetitions(recipe))
            shown = dataclasses.replace(run, progress=phases.begin("learning", groups))
            repetitions = learn(problem, learned, shown, begin)
            phases.begin("codes")
            contents = assemble(
                vectors, metric, recipe, repetitions, ids=named.values, held=held, truth=truth
            )
            phases.begin("tuning")
            part = VectorPart(dataclasses.replace(contents, strings=named.strings))
            tuned = part.tune(RECALL, K, truth=truth, threads=run.thread_count)
        found = {"recipe": contents.recipe, "defaults": tuned.parameters, "tuned": tuned}
        living = self._with_payloads(part, payloads)
        return self._take_over(part, _living=living, _source=source, **found)

    def _set(
        self,
        contents: VectorContents,
        source: MappedFile | None = None,
        payloads: Sequence[Document | None] | None = None,
    ) -> VectorIndex:
        part = VectorPart(contents)
        return self._take_over(
            part,
            recipe=contents.recipe,
            defaults=contents.defaults,
            tuned=contents.tuned,
            _living=self._with_payloads(part, payloads),
            _source=source,
        )

    # --- searching -----------------------------------------------------------------------------

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        filter: Any = None,
        with_payload: bool = False,
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
        with_payload : bool
            Whether the result has `payloads`, the documents of the items found.
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
        part = self._fitted()
        try:
            found = self._search(part, queries, k, filter, threads, parameters)
        except InvalidParameter:
            if part is self._engine:
                raise
            part = self._fitted()  # it has learned meanwhile, and has other defaults
            found = self._search(part, queries, k, filter, threads, parameters)
        if self.record_share:
            self._record_some(queries)
        return add_payloads(found, part.payloads_of(found.ids)) if with_payload else found

    def search_range(
        self,
        queries: Any,
        radius: float,
        *,
        filter: Any = None,
        with_payload: bool = False,
        threads: int | None = None,
        **parameters: Unpack[SearchArguments],
    ) -> RangeResult:
        """Find all items within a radius of each query, as `search` finds the k nearest.

        It searches for more and more items, until the last one is beyond the radius. So it finds
        the share of them that `search` finds, and all of them with `exact=True`.

        Parameters
        ----------
        queries, filter, with_payload, threads, **parameters
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
        part = self._fitted()
        try:
            found = self._search_range(part, queries, radius, filter, threads, parameters)
        except InvalidParameter:
            if part is self._engine:
                raise
            part = self._fitted()
            found = self._search_range(part, queries, radius, filter, threads, parameters)
        if with_payload:
            found.payloads = part.payloads_of(found.ids)
        return found

    # --- inspecting ----------------------------------------------------------------------------

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vectors of all items (N, d), of unit length for cosine."""
        return self._fitted().vectors

    def _describe(self) -> str:
        if self._engine is None:
            return "not fitted"
        repetitions, buckets = self._engine.searcher.layout.bias.shape
        return f"{len(self)} items, {repetitions} x {buckets} buckets"

    # --- files ---------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        metric: str | None = None,
        dim: int | None = None,
        recipe: str | Recipe | None = None,
        writable: bool = True,
        sync: Sync = "full",
        maintain: Maintain = "auto",
        record: float = 0.0,
    ) -> VectorIndex:
        """Open an index folder to change it: `irli.open` explains the parameters."""
        from irli.vectors.changes.opening import open_index

        index = cls("l2" if metric is None else metric, recipe=AUTO if recipe is None else recipe)
        index.record_share = check_float("record", record, owner="open", at_least=0, at_most=1)
        return open_index(
            index, path, metric=metric, dim=dim, writable=writable, sync=sync, maintain=maintain
        )

    def save(self, path: StrPath, *, held: bool = True) -> None:
        """Write the index folder `path`. An index that is there already is replaced.

        An index that has changed is packed first. Payloads go with it.

        Parameters
        ----------
        held : bool
            Whether the folder gets the queries that `fit` held out for `tune`, some of the given
            sample queries among them. If False, `tune` of the index in the folder needs `queries`.
        """
        check_bool("held", held, owner="save")
        part = self._fitted()
        packed = part.pack(held, defaults=self.defaults, tuned=self.tuned)
        if part.documents is None:
            return write_folder(path, packed)
        from irli.vectors.changes.opening import write_with_payloads

        write_with_payloads(Path(path), packed, part)

    @classmethod
    def load(cls, path: StrPath, *, mmap: bool = True, verify: bool = True) -> VectorIndex:
        """Open the index folder `path`. `irli.load` opens any kind and explains the parameters."""
        folder = read_folder(path, mmap=mmap, verify=verify)
        if folder.store is not None:  # it has changed since its arrays were written
            return cls.open(path, writable=False, maintain="manual")
        return cls.from_folder(folder)

    @classmethod
    def from_folder(cls, folder: Folder) -> VectorIndex:
        """Return the index that a folder in memory holds."""
        contents = unpack_vectors(folder)
        index = cls(contents.metric, recipe=contents.recipe)
        return index._set(contents)


def _read_start(start: Any) -> VectorContents:
    """Return what a fit starts from."""
    if not isinstance(start, VectorIndex):
        raise InvalidParameter(
            "The 'start' parameter of fit must be a VectorIndex that has learned. "
            f"Got {type(start).__name__} instead. Open a folder with irli.load."
        )
    return start._fitted().compact()


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
