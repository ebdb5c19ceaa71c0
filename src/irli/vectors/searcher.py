"""Algorithm 2 over an index in memory: single queries, batches on threads, explanations."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import read_only, to_kernel_fields
from irli.base.threads import Pool, run_all, split_batch
from irli.engine.handle import Engine, make_engine
from irli.engine.search import CHOSEN, PROBED, READ, STAGES, count_votes, run_stage, search
from irli.engine.vector_layout import (
    BLOCK,
    CODES,
    COSINE,
    PLAIN,
    Codes,
    Int8Vectors,
    Projection,
    Scratch,
    SearchPlan,
    VectorLayout,
    make_scratch,
)
from irli.vectors.batch_order import FEWEST, order_batch

_CACHE = 1 << 21  # bytes: a smaller index is in the cache, whatever the order of the queries
_AT_ONCE = 65_536  # queries that are ordered together: that takes memory

_ALL = read_only(np.empty(0, dtype=bool))  # the filter that allows all items
_ROWS = read_only(np.empty(0, dtype=np.int64))  # in place of ids


class Explanation(NamedTuple):
    """What a search does. Arrays have a row for each query.

    `votes` and `ids` are of shape (n, k). `probed` (buckets probed), `scanned` (entries read in
    them) and `candidates` (exact distances computed) are of shape (n,). `seconds` has an array of
    shape (n,) for each stage: route, scan, select, rerank.
    """

    ids: NDArray[np.int64]
    votes: NDArray[np.int32]
    probed: NDArray[np.int64]
    scanned: NDArray[np.int64]
    candidates: NDArray[np.int64]
    router_multiplications: int
    seconds: dict[str, NDArray[np.float64]]


class ThreadState(NamedTuple):
    """What one thread needs to search."""

    engine: Engine
    scratch: Scratch  # the engine's
    row: NDArray[np.float32]  # (d,): a place for a single query
    query: NDArray[np.float32]  # (1, d): the same memory, as kernels take it


def make_thread_state(layout: VectorLayout) -> ThreadState:
    """Allocate the memory of one thread."""
    scratch = make_scratch(layout)
    row = np.zeros(layout.vectors.shape[1], dtype=np.float32)
    return ThreadState(make_engine(layout, scratch), scratch, row, read_only(row[None]))


class Searcher:
    """An index in memory, with scratch memory for any number of threads."""

    def __init__(self, layout: VectorLayout) -> None:
        fields = to_kernel_fields(layout) | {
            "codes": Codes(**to_kernel_fields(layout.codes)),
            "projection": Projection(**to_kernel_fields(layout.projection)),
            "int8": Int8Vectors(**to_kernel_fields(layout.int8)),
        }
        self.layout = layout = VectorLayout(**fields)
        self._states: Pool[ThreadState] = Pool(lambda: make_thread_state(layout))
        self._shape = layout.vectors.shape[1:]
        self._large = layout.vectors.nbytes > _CACHE

    def search(
        self,
        queries: NDArray[np.float32],
        plan: SearchPlan,
        allowed: NDArray[np.bool_] = _ALL,
        ids: NDArray[np.int64] = _ROWS,
        form: int = PLAIN,
        threads: int = 1,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return distances and ids (n, k) for finite queries, -1 where there are fewer.

        Without `ids`, which must be a read-only array, the rows of the items are returned, and
        with the PLAIN `form` the distances of the kernels.
        """
        count = len(queries)
        distances = np.empty((count, plan.k), dtype=np.float32)
        items = np.empty((count, plan.k), dtype=np.int64)
        for start in range(0, count, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            batch = queries[part]
            if len(batch) >= FEWEST and self._large:
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
        allowed: NDArray[np.bool_],
        ids: NDArray[np.int64],
        form: int,
        threads: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        count = len(queries)
        queries, allowed = read_only(queries), read_only(allowed)
        distances = np.empty((count, plan.k), dtype=np.float32)
        items = np.empty((count, plan.k), dtype=np.int64)

        def answer(part: slice) -> None:
            answers = distances[part], items[part]
            with self._states.borrow() as state:
                search(state.engine, plan, allowed, queries[part], *answers, ids, form)

        run_all([partial(answer, part) for part in split_batch(count, threads, BLOCK)], threads)
        return distances, items

    def search_one(
        self, query: NDArray[np.float32], plan: SearchPlan, ids: NDArray[np.int64], form: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return distances and ids (k,) for one query (d,), or None if it is not finite."""
        distances = np.empty((1, plan.k), dtype=np.float32)
        items = np.empty((1, plan.k), dtype=np.int64)
        with self._states.borrow() as state:
            state.row[:] = query
            fine = search(state.engine, plan, _ALL, state.query, distances, items, ids, form)
        return (distances[0], items[0]) if fine else None

    def is_plain_query(self, query: Any) -> bool:
        """Whether something is a single query that needs no preparation."""
        return (
            type(query) is np.ndarray and query.dtype == np.float32 and query.shape == self._shape
        )

    def explain(
        self, queries: NDArray[np.float32], plan: SearchPlan, allowed: NDArray[np.bool_]
    ) -> Explanation:
        """Run the stages of `search` with a clock between them; `ids` are item rows."""
        count = len(queries)
        queries, allowed = read_only(queries), read_only(allowed)
        items = np.empty((count, plan.k), dtype=np.int64)
        votes = np.zeros((count, plan.k), dtype=np.int32)
        distances = np.empty(plan.k, dtype=np.float32)
        counts = np.zeros((count, 4), dtype=np.int64)
        clock = np.empty((len(STAGES) + 1, count))
        with self._states.borrow() as state:
            engine, scratch = state.engine, state.scratch
            for i in range(count):
                query = queries[i : i + 1]
                clock[0, i] = perf_counter()
                for stage in range(len(STAGES)):
                    run_stage(stage, engine, plan, allowed, query, distances, items[i])
                    clock[stage + 1, i] = perf_counter()
                counts[i] = scratch.counts
                if plan.score == CODES:  # which needs no votes to search
                    count_votes(engine, allowed)
                there = items[i] >= 0
                votes[i, there] = scratch.votes[items[i, there]]
        return Explanation(
            ids=items,
            votes=votes,
            probed=counts[:, PROBED],
            scanned=counts[:, READ],
            candidates=counts[:, CHOSEN],
            router_multiplications=self.layout.router_multiplications,
            seconds=dict(zip(STAGES, np.diff(clock, axis=0), strict=True)),
        )
