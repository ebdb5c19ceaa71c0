"""VectorParts: several parts that answer as one, wherever they run. Their results are merged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.ids import Allowed, Ids, TextIds, Where
from irli.base.parts.group import PartGroup, Parts
from irli.errors import InvalidParameter
from irli.vectors.front import Answer, Filters, Request
from irli.vectors.parameters import SearchParameters
from irli.vectors.parts.merge import merge, merge_explanations, merge_ranges
from irli.vectors.parts.tune import tune_parts
from irli.vectors.results import MakeResult, RangeResult
from irli.vectors.searcher import Explanation
from irli.vectors.tune_result import TuneResult


class VectorParts(Parts):
    """Parts that hold consecutive rows, searched together.

    Parameters
    ----------
    group : PartGroup
        Each of them a `VectorPart`.
    held : float32 array of shape (v, d)
        Sample queries that no part has learned from.
    names : TextIds, optional
        The ids, if they are strings. Parts know their items by row.
    """

    make_result: MakeResult

    def __init__(
        self, group: PartGroup, held: NDArray[np.float32], names: TextIds | None = None
    ) -> None:
        super().__init__(group)
        self.held, self.names = held, names
        stats = [facts["stats"] for facts in group.facts]
        self.metric: str = stats[0]["metric"]
        self.dim: int = stats[0]["dim"]
        self._bounds = np.cumsum([0, *(each["items"] for each in stats)])

    def __len__(self) -> int:
        return int(self._bounds[-1])

    @cached_property
    def ids(self) -> Ids:
        """The ids of all items. Parts send them when they are first needed."""
        if self.names is not None:
            return self.names
        if self.are_numbered():
            return Ids(np.arange(len(self)))
        return Ids(np.concatenate(self.group.ask("list_ids").values))

    def are_numbered(self) -> bool:
        """Whether the ids are the row numbers."""
        starts = [(int(start),) for start in self._bounds[:-1]]
        return all(self.group.call("are_numbered_from", starts).values)

    # --- searching -----------------------------------------------------------------------------

    def search_one(
        self,
        query: NDArray[Any],
        k: int,
        parameters: SearchParameters,
        allowed: Allowed | None,
        threads: int | None,
    ) -> Answer | None:
        """Leave it to `search`: a part of its own has little ado with one query."""
        return None

    def search(self, asked: Request, k: int) -> Answer:
        """Return distances and ids of the nearest items of all parts."""
        _check_rank(asked.parameters)
        return merge(self._ask("search", asked, k), k, self.metric)

    def search_range(self, asked: Request, radius: float) -> RangeResult:
        """Return all items of all parts within a radius of each query."""
        return merge_ranges(self._ask("search_range", asked, radius), self.metric)

    def explain(self, asked: Request, k: int) -> Explanation:
        """Return the summed work of all parts, and the seconds of the slowest."""
        _check_rank(asked.parameters)
        found, told = (self._ask(method, asked, k) for method in ("search", "explain"))
        return merge_explanations(found, told, k, self.metric)

    def _ask(self, method: str, asked: Request, size: float) -> list[Any]:
        """Ask every part, with its part of the filters."""
        parts = [asked._replace(filters=part) for part in self._split(asked.filters)]
        return self._call("answer", [(method, size, *part) for part in parts]).values

    def _split(self, filters: Filters) -> list[Any]:
        """Return the filter of each part, or a list of them with one for each query."""
        if filters is None:
            return [None] * len(self.group)
        if isinstance(filters, Allowed):
            return filters.split(self._bounds)
        parts = {id(one): self._split(one) for one in filters}  # most queries share theirs
        return [[parts[id(one)][part] for one in filters] for part in range(len(self.group))]

    def tune(self, recall: float, k: int, queries: NDArray[np.float32] | None) -> TuneResult:
        """Find parameters for all parts whose merged results reach `recall` at k."""
        return tune_parts(self.group, recall, k, queries, self.held)

    # --- inspecting ----------------------------------------------------------------------------

    def allow(self, filter: Any) -> Allowed:
        """Return the rows that a filter allows."""
        if isinstance(filter, Mapping | Where):
            raise InvalidParameter(
                "The 'filter' parameter must name ids for an index in shards, which has no "
                f"payloads. Got {filter!r} instead. Pass ids, a boolean array or a function."
            )
        allowed = self.ids.allowed(filter)
        return Allowed.where(np.ones(len(self), bool)) if allowed is None else allowed

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of some rows. Each leads to a part, and to a row there."""
        part = np.searchsorted(self._bounds, rows, side="right") - 1
        wanted = [np.flatnonzero(part == each) for each in range(len(self.group))]
        arguments = [
            (rows[places] - start,) for places, start in zip(wanted, self._bounds[:-1], strict=True)
        ]
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        for places, found in zip(wanted, self.group.call("take", arguments).values, strict=True):
            vectors[places] = found
        return vectors

    @property
    def history(self) -> list[dict[str, Any]]:
        """Loss, recall and loads after each re-partition, part by part."""
        return self.group.history

    def stats(self) -> dict[str, Any]:
        """Return sizes, settings and memory in bytes of all parts together, as plain values."""
        counts = ("items", "buckets", "entries", "router_multiplications")
        return self.group.sum_stats((*counts, "bytes", "bytes_vectors", "bytes_codes"))


def _check_rank(parameters: SearchParameters) -> None:
    """Raise unless results can be merged. Learned scores of different parts are no match."""
    if parameters.rank != "distance":
        raise InvalidParameter(
            "The 'rank' parameter of search must be 'distance' for a ShardedIndex: each shard "
            f"has its own routers. Got {parameters.rank!r} instead. Use a VectorIndex for it."
        )
