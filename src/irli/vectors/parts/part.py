"""VectorShard: one part of a vector index, and the methods that are called on it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.folder import read_folder
from irli.base.parts.local import Part
from irli.errors import IrliWarning
from irli.vectors.build.held_out import hold_out
from irli.vectors.index import VectorIndex
from irli.vectors.parameters import SearchParameters
from irli.vectors.results import RangeResult, SearchResult
from irli.vectors.searcher import Explanation
from irli.vectors.tune_result import TuneResult


class VectorShard(Part):
    """A shard with some of the items of a vector index."""

    index: VectorIndex

    def __init__(self, path: str, mmap: bool = True, verify: bool = True) -> None:
        folder = read_folder(path, mmap=mmap, verify=verify)
        self.index = VectorIndex.from_folder(folder)
        self._tuning = folder.arrays["tuning_queries"], folder.arrays["tuning_rows"]
        self._last = self.index

    def facts(self) -> dict[str, Any]:
        """Return the stats, loads and history of this shard."""
        index = self.index
        return {"stats": index.stats(), "loads": index.loads(), "history": index.history}

    def search(
        self, queries: Any, k: int, parameters: SearchParameters, filter: Any, threads: int | None
    ) -> SearchResult:
        """Return the k nearest items of this shard."""
        index = self._with_defaults(parameters)
        if parameters.min_votes > 1:
            with warnings.catch_warnings():  # what is few is known when all shards have answered
                warnings.simplefilter("ignore", IrliWarning)
                return index.search(queries, k, filter=filter, threads=threads)
        if len(queries) != 1:
            return index.search(queries, k, filter=filter, threads=threads)
        # The index has a faster path for a single query.
        found = index.search(queries[0], k, filter=filter, threads=threads)
        return type(found)(found.distances[None], found.ids[None])

    def search_range(
        self,
        queries: Any,
        radius: float,
        parameters: SearchParameters,
        filter: Any,
        threads: int | None,
    ) -> RangeResult:
        """Return all items of this shard within a radius."""
        index = self._with_defaults(parameters)
        return index.search_range(queries, radius, filter=filter, threads=threads)

    def explain(
        self, queries: Any, k: int, parameters: SearchParameters, filter: Any
    ) -> tuple[SearchResult, Explanation]:
        """Return the results of a search in this shard, and its work."""
        index = self._with_defaults(parameters)
        found = index.search(queries, k, filter=filter, threads=1)
        return found, index.explain(queries, k, filter=filter)

    def contains(self, id: int) -> bool:
        """Whether an item is in this shard."""
        return id in self.index

    def ids(self) -> NDArray[np.int64]:
        """Return the ids of all items of this shard."""
        return np.array(self.index.ids)

    def are_numbered_from(self, start: int) -> bool:
        """Whether the ids are consecutive numbers from `start` on."""
        ids = self.index.ids
        return np.array_equal(ids, np.arange(start, start + len(ids)))

    def find_vectors(self, ids: Any) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Return which of the ids are in this shard, and the vectors of those."""
        rows = self.index._ids.find(ids)
        return rows >= 0, np.array(self.index.vectors[rows[rows >= 0]])

    def held_out(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return about `count` held-out items as queries, and their ids."""
        queries, rows = self._tuning
        items = np.flatnonzero(rows >= 0)
        items = items[:: max(1, len(items) // count)]
        return np.array(queries[items]), np.array(self.index.ids[rows[items]])

    def propose(self, recalls: Sequence[float], k: int, queries: Any) -> list[TuneResult]:
        """Return the search of least work for each recall, on the items of this shard."""
        index = copy.copy(self.index)  # `tune` sets the defaults of the copy only
        held = index._tuning  # results of shards are merged by distance
        index._tuning = hold_out(held.queries, held.rows)
        return [index.tune(recall, k, queries) for recall in recalls]

    def _with_defaults(self, parameters: SearchParameters) -> VectorIndex:
        """Return the index with these defaults. The last one is kept, as most calls repeat them."""
        index = self._last
        if index.defaults != parameters:
            index = copy.copy(self.index)
            index.defaults = parameters
            self._last = index
        return index
