"""Searcher: Algorithm 2 on an index in memory, for one query, a batch, or with a clock."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import align_fields, read_only
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

_CACHE = 1 << 21  # bytes; smaller vectors stay in the CPU cache, so queries are not ordered
_AT_ONCE = 65_536  # queries ordered together; more would take more memory

_ALL = read_only(np.empty(0, dtype=bool))  # the filter that allows every item
_ROWS = read_only(np.empty(0, dtype=np.int64))  # no ids: return item rows


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
    router_multiplications: int
    seconds: dict[str, NDArray[np.float64]]


class ThreadState(NamedTuple):
    """The memory that one thread needs to search."""

    engine: Engine
    scratch: Scratch  # the engine's
    row: NDArray[np.float32]  # (d,): a single query is copied here
    query: NDArray[np.float32]  # (1, d): the same memory, in the shape that the kernels take


def make_thread_state(layout: VectorLayout) -> ThreadState:
    """Allocate the memory of one thread."""
    scratch = make_scratch(layout)
    row = np.zeros(layout.vectors.shape[1], dtype=np.float32)
    return ThreadState(make_engine(layout, scratch), scratch, row, read_only(row[None]))


class Searcher:
    """An index in memory, with scratch memory for any number of threads."""

    def __init__(self, layout: VectorLayout) -> None:
        fields = align_fields(layout) | {
            "codes": Codes(**align_fields(layout.codes)),
            "projection": Projection(**align_fields(layout.projection)),
            "int8": Int8Vectors(**align_fields(layout.int8)),
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
        """Return distances and ids (n, k) for finite queries, padded with id -1.

        `ids` must be a read-only array. Without it, ids are the rows of the items. With the PLAIN
        `form`, distances are as the kernels compute them.
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
            finite = search(state.engine, plan, _ALL, state.query, distances, items, ids, form)
        return (distances[0], items[0]) if finite else None

    def is_plain_query(self, query: Any) -> bool:
        """Whether `query` is a single query that needs no conversion."""
        return (
            type(query) is np.ndarray and query.dtype == np.float32 and query.shape == self._shape
        )

    def explain(
        self, queries: NDArray[np.float32], plan: SearchPlan, allowed: NDArray[np.bool_]
    ) -> Explanation:
        """Run the stages of `search` and time each one; `ids` are item rows."""
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
                if plan.score == CODES:  # a search with codes counts no votes
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
