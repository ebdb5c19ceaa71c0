"""VectorShard and LabelShard: one shard's index, and the methods that are called on it."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.folder import read_folder, read_manifest
from irli.errors import IrliWarning
from irli.labels.explain import RowExplanation
from irli.labels.index import LabelIndex
from irli.labels.parameters import PredictArguments
from irli.labels.tuning.calibration import Calibration
from irli.vectors.build.held_out import hold_out
from irli.vectors.index import VectorIndex
from irli.vectors.parameters import SearchParameters
from irli.vectors.results import RangeResult, SearchResult
from irli.vectors.searcher import Explanation
from irli.vectors.tune_result import TuneResult


class Shard:
    """The methods of both kinds of shard. A shard is an index, opened from its own folder."""

    index: VectorIndex | LabelIndex

    def process(self) -> int:
        """Return the id of the process in which the shard runs."""
        return os.getpid()

    def save(self, path: str, options: dict[str, Any]) -> str:
        """Save the index of this shard, and return the checksum of its manifest."""
        self.index.save(path, **options)
        return str(read_manifest(path)["checksum"])


class VectorShard(Shard):
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


class LabelShard(Shard):
    """A shard with some of the labels of a label index."""

    index: LabelIndex

    def __init__(self, path: str, mmap: bool = True, verify: bool = True) -> None:
        self._last = self.index = LabelIndex.load(path, mmap=mmap, verify=verify)

    def facts(self) -> dict[str, Any]:
        """Return the stats and history of this shard, and how many rows carry each label."""
        index = self.index
        return {"stats": index.stats(), "history": index.history, "counts": index.counts}

    def rank(
        self,
        rows: Any,
        k: int,
        threads: int | None,
        parameters: PredictArguments,
        calibration: Calibration | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return log-odds and numbers of the k best labels, numbered as in this shard."""
        return self._blended(calibration)._rank(rows, k, None, threads, parameters)[:2]

    def explain(
        self, rows: Any, k: int, parameters: PredictArguments, calibration: Calibration | None
    ) -> list[RowExplanation]:
        """Return why the k best labels of this shard were predicted for each row."""
        explained: list[RowExplanation] = self._blended(calibration).explain(rows, k, **parameters)
        return explained

    def _blended(self, calibration: Calibration | None) -> LabelIndex:
        """Return the index with the calibration of all shards, if they have one."""
        if calibration is not None and self._last.calibration != calibration:
            self._last = self.index.with_calibration(calibration)
        return self.index if calibration is None else self._last
