"""VectorPart: the items that one searcher holds, with their ids. Most indexes are one part."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irli._native import SearchPlan
from irli.base.checks import LONGEST
from irli.base.distance import worst_distance
from irli.base.folder import VECTORS, Folder, read_folder
from irli.base.ids import Allowed, Deny, Ids, TextIds, Where, is_item
from irli.base.parts.local import Part
from irli.base.threads import thread_count
from irli.engine.metric import ANSWER_FORM, prepare_vectors
from irli.errors import InvalidParameter
from irli.vectors.build.held_out import HeldOut, hold_out, require_queries
from irli.vectors.changes.compact import Changed, compact
from irli.vectors.contents import VectorContents, pack_vectors, unpack_vectors
from irli.vectors.cost import count_exact_work, count_work
from irli.vectors.front import Answer, Filters, Request
from irli.vectors.parameters import FilterPlan, SearchParameters
from irli.vectors.range_search import find_within
from irli.vectors.results import MakeResult, RangeResult
from irli.vectors.searcher import Explanation, Searcher, join_explanations
from irli.vectors.tune_result import TuneResult

if TYPE_CHECKING:  # what a search does not need is imported where it is used
    from irli.vectors.build.ground_truth import GroundTruth
    from irli.vectors.changes.payloads import Payloads

_EAGER = 2.0  # a search that has to widen much is not much cheaper than comparing all


class VectorPart(Part):
    """Items in memory, with their ids. Any number of threads can search them.

    It is the engine of a `VectorIndex`, and a shard of a `ShardedIndex`.

    Parameters
    ----------
    contents : VectorContents
        Its arrays are aligned, which may copy them.
    changed : Changed, optional
        What was added and removed since.
    """

    make_result: MakeResult
    documents: Payloads | None = None  # the payloads, once the index changes

    def __init__(self, contents: VectorContents, changed: Changed | None = None) -> None:
        self.searcher = Searcher(contents.layout) if changed is None else changed.searcher
        self.contents = dataclasses.replace(contents, layout=self.searcher.layout)
        self.changed = changed
        self.metric = contents.metric
        self.ids: Ids
        if changed is not None:
            self.ids = changed.ids
        elif contents.strings is None:
            self.ids = Ids(contents.ids)
        else:
            self.ids = TextIds(contents.strings)
        self.names = self.ids if isinstance(self.ids, TextIds) else None
        self._form = ANSWER_FORM[contents.metric]
        self._last: tuple[Any, SearchPlan] = None, SearchPlan()  # arguments, and their plan

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_last": (None, None)}  # a copy makes its own plans

    def __len__(self) -> int:
        return len(self.searcher.left) if self.searcher.removed is not None else self.searcher.items

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vectors of all items (N, d), of unit length for cosine. After changes, a copy."""
        if self.changed is None:
            return self.searcher.layout.vectors
        return self.searcher.take(self.searcher.left.astype(np.int64))

    def compact(self, *, even: bool = False) -> VectorContents:
        """Return the contents of the items that are left, packed as after a fit.

        With `even`, buckets that hold far more than others give items away.
        """
        if self.changed is None:
            return self.contents
        return compact(self.contents, self.changed, self.documents, even=even)

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return int(self.searcher.layout.vectors.shape[1])

    @property
    def tuning(self) -> HeldOut:
        """Queries that training never saw."""
        return self.contents.tuning

    def payloads(self, rows: NDArray[np.int64]) -> list[dict[str, Any] | None]:
        """Return the payloads of rows (n,). None is no payload."""
        return [None] * len(rows) if self.documents is None else self.documents.take(rows)

    def payloads_of(self, ids: NDArray[Any]) -> list[Any]:
        """Return the payloads of ids that a search has found, as nested as they are."""
        flat = ids.ravel()
        there = np.flatnonzero(is_item(flat))
        found: list[Any] = [None] * len(flat)
        rows = self.ids.find(flat[there].tolist()) if len(there) else there
        for place, payload in zip(there.tolist(), self.payloads(rows), strict=True):
            found[place] = payload
        if ids.ndim == 1:
            return found
        width = ids.shape[1]
        return [found[start : start + width] for start in range(0, len(found), width)]

    def allow(self, filter: Any) -> Allowed:
        """Return the rows that a filter allows: by ids, or by what payloads say."""
        if isinstance(filter, Deny):
            return Allowed.where(~self.allow(filter.ids).mask)
        if not isinstance(filter, Mapping | Where):
            allowed = self.ids.allowed(filter)
            return (
                Allowed.where(np.ones(len(self.ids.values), bool)) if allowed is None else allowed
            )
        from irli.store.filters import as_condition

        condition, rows = as_condition(filter), len(self.ids.values)
        if self.documents is not None:
            return Allowed.where(self.documents.match(condition, rows))
        from irli.store.columns import Columns

        no_payloads = Columns(lambda some: [None] * len(some))
        return Allowed.where(no_payloads.evaluate(condition, rows))

    # --- searching -----------------------------------------------------------------------------

    def search_one(
        self,
        query: NDArray[Any],
        k: int,
        parameters: SearchParameters,
        allowed: Allowed | None = None,
        threads: int | None = None,
    ) -> Answer | None:
        """Search one query (d,) with little ado, or return None if it takes more.

        It takes more if it must be converted, is too long, or has so few answers that it is said.
        """
        if self.searcher.is_slow_to_route and thread_count(threads) > 1:
            return None  # threads share the routers
        plan = self.make_plan(k, parameters, allowed)
        if plan.k != k:
            return None
        found = self.searcher.search_one(query, plan, allowed, self.ids.values, self._form)
        if found is None or not math.isfinite(found[0][0]):
            return None
        if parameters.min_votes > 1 and found[1][-1] < 0:
            return None
        if self.metric == "ip" and np.linalg.norm(query.astype(np.float64)) > LONGEST:
            return None  # its products are numbers all the same
        return found

    def answer(self, method: str, size: float, *asked: Any) -> Any:
        """Call `search`, `search_range` or `explain` with the fields of a `Request`."""
        return getattr(self, method)(Request(*asked), size)

    def search(self, asked: Request, k: int) -> Answer:
        """Return distances and ids of the nearest items (n, k)."""
        queries, parameters, filters, threads = asked
        if isinstance(filters, list):
            return self._search_each(asked, filters, k)
        if len(queries) == 1:
            found = self.search_one(queries[0], k, parameters, filters, threads)
            if found is not None:
                return found[0][None], found[1][None]
        plan = self.make_plan(k, parameters, filters, len(queries))
        threads = thread_count(threads)
        values, form = self.ids.values, self._form
        distances, ids = self.searcher.search(queries, plan, filters, values, form, threads)
        return _add_columns(distances, k, worst_distance(self.metric)), _add_columns(ids, k, -1)

    def _search_each(self, asked: Request, filters: list[Allowed | None], k: int) -> Answer:
        """Search with one filter for each query. Queries with the same filter run together."""
        if not filters:
            return self.search(asked._replace(filters=None), k)
        together: dict[int, list[int]] = {}
        for row, allowed in enumerate(filters):
            together.setdefault(id(allowed), []).append(row)
        groups = list(together.values())
        parts = [
            self.search(_choose(asked, np.array(rows), filters[rows[0]]), k) for rows in groups
        ]
        place = np.argsort(np.concatenate(groups))
        distances, ids = (np.concatenate(arrays)[place] for arrays in zip(*parts, strict=True))
        return distances, ids

    def search_range(self, asked: Request, radius: float) -> RangeResult:
        """Return all items within a radius of each query."""
        parameters, filters = asked.parameters, asked.filters
        all_items = count_exact_work(self.searcher.sizes, len(self))
        exact = asked._replace(parameters=dataclasses.replace(parameters, exact=True))

        def search(rows: NDArray[np.int64], k: int) -> Answer:
            dear = parameters.points and parameters.work_at(k) > all_items
            some = [filters[row] for row in rows] if isinstance(filters, list) else filters
            return self.search(_choose(exact if dear else asked, rows, some), k)

        queries = len(asked.queries)
        return find_within(search, queries, radius, metric=self.metric, items=len(self))

    def explain(self, asked: Request, k: int) -> Explanation:
        """Return the work of a search. Queries run one by one, on one thread."""
        queries, parameters, filters, _ = asked
        if isinstance(filters, list):
            rows = np.split(np.arange(len(queries)), range(len(queries)))  # none, and each one
            each = zip(rows, [None, *filters], strict=True)
            return join_explanations([self.explain(_choose(asked, *one), k) for one in each])
        plan = self.make_plan(k, parameters, filters, len(queries))
        told = self.searcher.explain(prepare_vectors(queries, self.metric), plan, filters)
        ids = np.where(told.ids < 0, -1, self.ids.values[told.ids])
        return told._replace(ids=_add_columns(ids, k, -1), votes=_add_columns(told.votes, k, 0))

    def make_plan(
        self, k: int, parameters: SearchParameters, allowed: Allowed | None = None, queries: int = 1
    ) -> SearchPlan:
        """Return the plan of a search, or the last plan if the arguments are the same."""
        count = -1 if allowed is None else allowed.count
        given, (before, plan) = (parameters, k, count, queries), self._last
        if before == given:
            return plan
        if parameters.score == "codes" and self.searcher.layout.codes.blocks.size == 0:
            raise InvalidParameter(
                "The 'score' parameter of search must not be 'codes' for an index without codes. "
                "Got 'codes' instead. Use another score, or learn with pieces=64 in the recipe."
            )
        most = max(1, min(k, len(self)))
        if allowed is None:
            plan = parameters.to_plan(most)
        else:
            plan = self._plan_filtered(parameters, most, count, queries)
        self._last = given, plan
        return plan

    def _plan_filtered(
        self, parameters: SearchParameters, k: int, allowed: int, queries: int
    ) -> SearchPlan:
        """Return a plan that compares the few allowed items, or widens by the share of the many.

        Many queries are compared with the allowed items together, so it pays for more of them.
        Where votes or scores rank, comparing is no other way to the same answer.
        """
        sizes = self.searcher.sizes
        level = math.log2(max(1, sizes.items) / max(1, allowed))
        if not parameters.by_distance:
            return parameters.to_plan(k, FilterPlan(level))
        exact = count_exact_work(sizes, allowed)
        if parameters.points:
            routed = parameters.work_at(k * 2**level)
        else:  # given by the user
            routed = count_work(sizes, 0, 0, 0, codes=False)
        if count_exact_work(sizes, allowed, queries) <= routed or allowed <= k:
            return dataclasses.replace(parameters, exact=True).to_plan(k)
        dear = parameters.find_level(k, above=level, work=exact / _EAGER)
        return parameters.to_plan(k, FilterPlan(level, dear))

    # --- tuning --------------------------------------------------------------------------------

    def tune(
        self,
        recall: float,
        k: int,
        queries: NDArray[np.float32] | None = None,
        truth: GroundTruth | None = None,
        threads: int | None = None,
    ) -> TuneResult:
        """Find the search of least work that reaches `recall` at k: see `tune`."""
        from irli.vectors.tuning.measure import Meter
        from irli.vectors.tuning.tune import tune

        if self.changed is not None:
            return VectorPart(self.compact()).tune(recall, k, queries, truth)
        held, recipe = self.tuning, self.contents.recipe
        if queries is not None:
            held = hold_out(prepare_vectors(queries, self.metric))
        if recipe.name != "exact":
            require_queries(held.queries)
        ask = Meter(self.searcher, self.metric, threads).ask
        by_votes = recipe.search == "votes"
        return tune(ask, held, self.metric, recall, k, by_votes=by_votes, truth=truth)

    def measure(self, method: str, *arguments: Any) -> Any:
        """Call a method of the `Meter` of this part."""
        from irli.vectors.tuning.measure import Meter

        return getattr(Meter(self.searcher, self.metric), method)(*arguments)

    def held_out(self) -> HeldOut:
        """Return what `fit` held out of this part. Relevance is left out: distances are merged."""
        return hold_out(np.array(self.tuning.queries), np.array(self.tuning.rows))

    # --- inspecting ----------------------------------------------------------------------------

    def list_ids(self) -> NDArray[np.int64]:
        """Return the ids of all items as kernels know them: numbers, or rows of strings."""
        return np.array(self.ids.values)

    def are_numbered_from(self, start: int) -> bool:
        """Whether the ids are consecutive numbers from `start` on."""
        return np.array_equal(self.ids.values, np.arange(start, start + len(self)))

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of some rows."""
        return self.searcher.take(rows)

    def loads(self) -> list[NDArray[np.int64]]:
        """Return how many items each bucket holds: an array of shape (B,) for each repetition."""
        if self.changed is not None:
            return list(self.changed.loads)
        return list(np.diff(self.searcher.layout.offsets, axis=1))

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition of each repetition."""
        return self.contents.history

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes as plain values."""
        layout = self.searcher.layout
        inner = (*layout.codes, *layout.projection, *layout.int8, *layout.centroids)
        vectors = 4 * self.dim * self.searcher.items
        parts = (*layout, *inner, *self.searcher.added)
        size = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
        repetitions, buckets = layout.bias.shape
        learned, changed = self.contents.learned, self.changed
        counts = {
            "learned": learned.items,
            "added": learned.added + (0 if changed is None else changed.added),
            "removed": learned.removed + (0 if changed is None else changed.gone),
            "refreshes": learned.refreshes,
        }
        has_changed = counts["added"] or counts["removed"] or counts["refreshes"]
        return ({"changes": counts} if has_changed else {}) | {
            "kind": VECTORS,
            "metric": self.metric,
            "items": len(self),
            "dim": self.dim,
            "repetitions": repetitions,
            "buckets": buckets,
            "entries": self.searcher.sizes.entries,
            "router_multiplications": layout.router_multiplications,
            "recipe": dataclasses.asdict(self.contents.recipe),
            "bytes": self.ids.nbytes + size + vectors - layout.vectors.nbytes,
            "bytes_vectors": vectors,
            "bytes_codes": layout.codes.blocks.nbytes + self.searcher.added_codes,
        }

    def facts(self) -> dict[str, Any]:
        """Return stats, loads and history."""
        return {"stats": self.stats(), "loads": self.loads(), "history": self.history}

    # --- files ---------------------------------------------------------------------------------

    def pack(
        self,
        held: bool = True,
        defaults: SearchParameters | None = None,
        tuned: TuneResult | None = None,
    ) -> Folder:
        """Return this part as a folder in memory, with the parameters of an index if it has some.

        Without `held`, it has no queries to tune by.
        """
        contents = self.compact()
        if defaults is not None:
            contents = contents.tuned_as(defaults, tuned)
        if not held:
            contents = dataclasses.replace(contents, tuning=hold_out(self.tuning.queries[:0]))
        return pack_vectors(contents)


def open_part(path: str, mmap: bool = True, verify: bool = True) -> VectorPart:
    """Open the folder of a part."""
    return VectorPart(unpack_vectors(read_folder(path, mmap=mmap, verify=verify)))


def _choose(asked: Request, rows: NDArray[np.int64], filters: Filters) -> Request:
    """Return the request for some of the queries."""
    return asked._replace(queries=asked.queries[rows], filters=filters)


def _add_columns(array: NDArray[Any], width: int, value: float) -> NDArray[Any]:
    """Pad rows to `width` columns, for a k above the number of items."""
    more = width - array.shape[1]
    return array if more == 0 else np.pad(array, ((0, 0), (0, more)), constant_values=value)
