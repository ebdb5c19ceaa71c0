"""Searcher: Algorithm 2 on an index in memory, for one query, a batch, or with a clock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import BLOCK, COMPARED, COSINE, PLAIN, SearchPlan, VectorSearcher
from irli.base.ids import Allowed
from irli.base.memory import align_fields
from irli.base.threads import run_all, run_batch
from irli.engine.vector_layout import (
    Added,
    Centroids,
    Codes,
    Int8Vectors,
    Projection,
    VectorLayout,
)
from irli.vectors.batch_order import FEWEST, order_batch
from irli.vectors.cost import Sizes

STAGES = ("route", "scan", "select", "rerank")
# The columns of the work of a search: the last three are entries read as codes, and candidates that
# were chosen by codes and without them.
WORK = ("probed", "scanned", "candidates", "exact", "strange", "coded", "picked", "plain")

_CACHE = 1 << 21  # bytes; smaller vectors stay in the CPU cache, so queries are not ordered
_SLOW = 1 << 21  # multiplications to route a query, from which on threads share them
_AT_ONCE = 65_536  # queries ordered together; more would take more memory


class Explanation(NamedTuple):
    """The work of a search. Arrays have a row for each query.

    Attributes
    ----------
    ids : int64 array of shape (n, k)
        The items found.
    votes : int32 array of shape (n, k)
        In how many probed buckets each of them was.
    probed : int64 array of shape (n,)
        Buckets probed in all repetitions.
    scanned : int64 array of shape (n,)
        Entries read in these buckets.
    candidates : int64 array of shape (n,)
        Items whose exact distance was computed.
    exact : bool array of shape (n,)
        Whether all allowed items were compared, without routing or because a filter leaves few
        items near the query.
    widened : float64 array of shape (n,)
        How far a filter widened the search: it probed as if 2^widened times as many items were
        wanted.
    strange : bool array of shape (n,)
        Whether the query was unlike everything learned, and so probed more buckets, those that
        centroids say are near: its probed buckets had little probability together, or all items
        found were far.
    router_multiplications : int
        Multiplications to route one query.
    seconds : dict
        An array of shape (n,) for each stage: route, scan, select, rerank.
    """

    ids: NDArray[np.int64]
    votes: NDArray[np.int32]
    probed: NDArray[np.int64]
    scanned: NDArray[np.int64]
    candidates: NDArray[np.int64]
    exact: NDArray[np.bool_]
    widened: NDArray[np.float64]
    strange: NDArray[np.bool_]
    router_multiplications: int
    seconds: dict[str, NDArray[np.float64]]


def join_explanations(parts: Sequence[Explanation]) -> Explanation:
    """Return the explanations of several batches of queries as one."""
    arrays: dict[str, Any] = {
        name: np.concatenate(values)
        for name, *values in zip(Explanation._fields, *parts, strict=True)
        if isinstance(values[0], np.ndarray)
    }
    seconds = {stage: np.concatenate([part.seconds[stage] for part in parts]) for stage in STAGES}
    return parts[0]._replace(**arrays, seconds=seconds)


class Searcher:
    """An index in memory that any number of threads can search.

    Attributes
    ----------
    layout : VectorLayout
        What was fitted.
    items : int
        N, the items of the fit and those added since, also those that are removed.
    removed : bool array of shape (N,) or None
        The items that are never found. They widen no search.
    """

    def __init__(self, layout: VectorLayout) -> None:
        fields = align_fields(layout) | {
            "codes": Codes(**align_fields(layout.codes)),
            "projection": Projection(**align_fields(layout.projection)),
            "int8": Int8Vectors(**align_fields(layout.int8)),
            "centroids": Centroids(**align_fields(layout.centroids)),
        }
        self.layout = layout = VectorLayout(**fields)
        self._native = self._fitted = VectorSearcher(layout)
        self._added: Added | None = None
        self.items = len(layout.vectors)
        self.removed: NDArray[np.bool_] | None = None
        self._large = layout.vectors.nbytes > _CACHE
        several = len(layout.bias) > 1
        self.is_slow_to_route = several and layout.router_multiplications >= _SLOW

    def change(self, added: Added | None, removed: NDArray[np.bool_] | None) -> Searcher:
        """Return a searcher of the same fit, with what was added and removed since, in all."""
        changed = object.__new__(Searcher)
        vars(changed).update(vars(self))
        if added is not self._added:
            changed._added = added
            changed._native = (
                self._fitted if added is None else VectorSearcher(self._fitted, *added)
            )
            changed.items = len(self.layout.vectors) if added is None else added.items
        changed.removed = removed
        for name in ("left", "sizes"):
            vars(changed).pop(name, None)
        return changed

    @property
    def added(self) -> list[NDArray[Any]]:
        """The arrays of what was added since the fit, beside its vectors."""
        if self._added is None:
            return []
        more = [array for run in self._added.runs for array in run]
        return [*more, *self._added.int8, *self._added.lengths]

    @property
    def added_codes(self) -> int:
        """The bytes of the codes of what was added since the fit."""
        return 0 if self._added is None else sum(run.blocks.nbytes for run in self._added.runs)

    @cached_property
    def left(self) -> NDArray[np.int32]:
        """The rows of all items that are not removed."""
        if self.removed is None:
            return np.arange(self.items, dtype=np.int32)
        return np.flatnonzero(~self.removed).astype(np.int32)

    @cached_property
    def sizes(self) -> Sizes:
        """What decides how much a search costs."""
        sizes = Sizes.of(self.layout)
        if self._added is None:
            return sizes
        entries = sizes.entries + sum(len(run.items) for run in self._added.runs)
        return sizes._replace(items=self.items, entries=entries)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors (n, d) of rows (n,)."""
        fitted = len(self.layout.vectors)
        if self._added is None:
            return np.array(self.layout.vectors[rows])
        out = np.empty((len(rows), self.layout.vectors.shape[1]), dtype=np.float32)
        old = rows < fitted
        out[old] = self.layout.vectors[rows[old]]
        chunks = self._added.vectors
        chunk, place = np.divmod(rows - fitted, len(chunks[0]))
        for number in np.unique(chunk[~old]):
            mine = chunk == number
            out[mine] = chunks[number][place[mine]]
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.layout, self._added, self.removed)

    def __deepcopy__(self, memo: Any) -> Searcher:
        return self  # nothing of it can change

    def search(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        allowed: Allowed | None = None,
        ids: NDArray[np.int64] | None = None,
        form: int = PLAIN,
        threads: int = 1,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return distances and ids (n, k) for finite queries, padded with id -1.

        Without `ids`, these are the rows of the items. With the PLAIN `form`, distances are as the
        kernels compute them.
        """
        count = len(queries)
        distances = np.empty((count, plan.k), dtype=np.float32)
        items = np.empty((count, plan.k), dtype=np.int64)
        for start in range(0, count, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            batch = queries[part]
            if len(batch) >= FEWEST and self._large and not plan.exact:
                order = order_batch(batch, angle=form == COSINE)
                found = self._search(batch[order], plan, allowed, ids, form, threads)
                distances[part][order], items[part][order] = found
            else:
                found = self._search(batch, plan, allowed, ids, form, threads)
                distances[part], items[part] = found
        return distances, items

    def _search(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        allowed: Allowed | None,
        ids: NDArray[np.int64] | None,
        form: int,
        threads: int,
        work: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        distances = np.empty((len(queries), plan.k), dtype=np.float32)
        items = np.empty((len(queries), plan.k), dtype=np.int64)
        selected = self._select(allowed, plan, len(queries))
        routed = None
        if threads > 1 and len(queries) == 1 and self.is_slow_to_route and not plan.exact:
            routed = self._route_on_threads(queries[0], plan, form, threads)

        def answer(first: int, last: int) -> int:
            return self._native.search(
                queries, plan, *selected, ids, form, first, last, distances, items, work, routed
            )

        run_batch(answer, len(queries), threads, COMPARED if plan.exact else BLOCK)
        return distances, items

    def _route_on_threads(
        self, query: NDArray[np.float32], plan: SearchPlan, form: int, threads: int
    ) -> NDArray[np.float32]:
        """Return the log-probabilities (R, B) of one query. Each thread routes some repetitions."""
        repetitions = len(self.layout.bias)
        routed = np.empty(self.layout.bias.shape, dtype=np.float32)
        cuts = np.linspace(0, repetitions, min(threads, repetitions) + 1).astype(int).tolist()
        jobs = [
            partial(self._native.route_part, query, plan, form, first, last, routed)
            for first, last in itertools.pairwise(cuts)
        ]
        run_all(jobs, threads)
        return routed

    def measure(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        threads: int = 1,
        allowed: Allowed | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """Return kernel distances and rows (n, k), and the work (n, 8) of each query (`WORK`)."""
        work = np.empty((len(queries), len(WORK)), dtype=np.int64)
        found = self._search(queries, plan, allowed, None, PLAIN, threads, work)
        return *found, work

    def route(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-probabilities of all buckets: (n, R, B)."""
        out = np.empty((len(queries), *self.layout.bias.shape), dtype=np.float32)
        self._native.route(np.ascontiguousarray(queries), out)
        return out

    def search_one(
        self,
        query: NDArray[Any],
        plan: SearchPlan,
        allowed: Allowed | None,
        ids: NDArray[np.int64],
        form: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return distances and ids (k,) for one query, or None if it needs to be converted.

        It must be contiguous float32 of shape (d,) and finite.
        """
        k = plan.k
        distances, items = np.empty(k, np.float32), np.empty(k, np.int64)
        selected: Any = ()  # most searches leave out nothing
        if allowed is not None or self.removed is not None:
            selected = self._select(allowed, plan)
        if self._native.search_one(query, plan, ids, form, distances, items, *selected):
            return distances, items
        return None

    def explain(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        allowed: Allowed | None = None,
    ) -> Explanation:
        """Run the stages of `search` and time each one; `ids` are item rows."""
        shape = len(queries), plan.k
        items, votes = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int32)
        work = np.empty((5, len(queries)), dtype=np.int64)
        widened = np.empty(len(queries))
        seconds = np.empty((len(STAGES), len(queries)))
        selected = self._select(allowed, plan)
        for i in range(len(queries)):
            found = self._native.explain(queries[i : i + 1], plan, *selected)
            items[i], votes[i], seconds[:, i] = found["items"], found["votes"], found["seconds"]
            work[:3, i] = len(found["probed"]), found["read"], found["chosen"]
            work[3:, i], widened[i] = (found["exact"], found["strange"]), found["level"]
        probed, scanned, candidates, exact, strange = work
        return Explanation(
            ids=items,
            votes=votes,
            probed=probed,
            scanned=scanned,
            candidates=candidates,
            exact=exact.astype(bool),
            widened=widened,
            strange=strange.astype(bool),
            router_multiplications=self.layout.router_multiplications,
            seconds=dict(zip(STAGES, seconds, strict=True)),
        )

    def _select(
        self, allowed: Allowed | None, plan: SearchPlan, queries: int = 1
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.int32] | None, NDArray[np.bool_] | None]:
        """Return the mask of a filter, its rows if they serve, and the mask of removed items.

        Where all items are compared at once, these are the rows that are left, and no masks. A
        search that widens far compares all allowed items, too. With their rows it need not look for
        them in the mask. It pays to make rows for many queries.
        """
        removed = self.removed
        if not plan.exact:
            if allowed is None:
                return None, None, removed
            return allowed.mask, allowed.rows if queries >= BLOCK else allowed.known_rows, removed
        if removed is None:
            return None, None if allowed is None else allowed.rows, None
        if allowed is None:
            return None, self.left, None
        return None, allowed.rows[~removed[allowed.rows]], None


def _restore(
    layout: VectorLayout, added: Added | None, removed: NDArray[np.bool_] | None
) -> Searcher:
    return Searcher(layout).change(added, removed)
