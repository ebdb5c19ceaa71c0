"""Algorithm 2 over a frozen index: plans, filters, batches on threads, and explanations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import kernels
from irli.checks import check_choice, check_float, check_int
from irli.compiled import aligned, read_only
from irli.config import SCORES
from irli.engine import Engine, make_engine
from irli.errors import InvalidParameter
from irli.firstpass import fill_table
from irli.frozen import (
    BLOCK,
    CODES,
    COSINE,
    LOG_PROBABILITY,
    MOST_CANDIDATES,
    PLAIN,
    Coded,
    Frozen,
    Lens,
    Plan,
    Rounded,
    Scratch,
    make_scratch,
)
from irli.locality import FEWEST, near_together
from irli.rounded import sift
from irli.routing import route
from irli.threads import Reserve, run_all

_PER_ANSWER = 8  # candidates for each wanted item, where nobody says how many
_CACHE = 1 << 21  # bytes: smaller indexes lie in the cache, whatever is asked
_AT_ONCE = 65_536  # queries that are put into an order: it takes memory
_PIECES = 4  # pieces of a batch for each thread: the last thread waits for a quarter at most


_ALL = read_only(np.empty(0, dtype=bool))  # the filter that allows all items
_ROWS = read_only(np.empty(0, dtype=np.int64))  # in place of ids


@dataclass(frozen=True)
class SearchParameters:
    """How to search; the index keeps one as its defaults, found by `tune`.

    Attributes
    ----------
    probes : int or None
        Buckets probed in each repetition (m), or None to go by `threshold`.
    threshold : float or None
        Probe every bucket of at least this probability.
    min_votes : int
        In how many probed buckets an item must have been seen.
    candidates : int or None
        Exact distances at most, chosen by score; None: for all that were seen.
    score : {"votes", "probability", "log-probability", "codes"}
        What chooses the candidates: what probed buckets add to the score of their items, or the
        items' 4-bit codes.
    """

    probes: int | None = None
    threshold: float | None = None
    min_votes: int = 1
    candidates: int | None = None
    score: str = "log-probability"

    def changed(
        self,
        probes: int | None = None,
        threshold: float | None = None,
        min_votes: int | None = None,
        candidates: int | None = None,
        score: str | None = None,
    ) -> SearchParameters:
        """Return the parameters of one call: what it names, the defaults for the rest."""
        if probes is not None and threshold is not None:
            raise InvalidParameter(
                "Only one of the 'probes' and 'threshold' parameters of search may be given. "
                f"Got probes={probes!r} and threshold={threshold!r}. Leave out one of them."
            )
        if probes is not None:
            probes = _count("probes", probes)
        elif threshold is not None:
            threshold = check_float("threshold", threshold, at_least=0.0, at_most=1.0)
        else:
            probes, threshold = self.probes, self.threshold
        if min_votes is not None:
            min_votes = _count("min_votes", min_votes)
        if candidates is not None:
            candidates = _count("candidates", candidates)
        if score is not None:
            check_choice("score", score, SCORES, owner="search")
        min_votes, score = min_votes or self.min_votes, score or self._score(min_votes)
        if score == "codes" and min_votes > 1:
            raise InvalidParameter(
                "The 'min_votes' parameter of search must be 1 with score='codes', which counts no "
                f"votes. Got {min_votes} instead. Use another score, such as 'votes'."
            )
        return SearchParameters(
            probes=probes,
            threshold=threshold,
            min_votes=min_votes,
            candidates=candidates or self.candidates,
            score=score,
        )

    def _score(self, min_votes: int | None) -> str:
        """Return the score of a call that names none: one that counts votes if it needs them."""
        votes = min_votes is not None and min_votes > 1
        return "log-probability" if votes and self.score == "codes" else self.score

    def plan(self, k: int) -> Plan:
        """Return the parameters as the kernels take them."""
        threshold = self.threshold or 0.0
        candidates = max(self.candidates, k) if self.candidates else 0
        score = SCORES.index(self.score)
        if score == CODES:
            candidates = candidates or _PER_ANSWER * k
            if candidates > MOST_CANDIDATES:  # so many that choosing them costs more than it saves
                score = LOG_PROBABILITY
        return Plan(
            k=k,
            probes=self.probes or 0,
            threshold=math.log(threshold) if threshold > 0 else -math.inf,
            min_votes=self.min_votes,
            candidates=candidates,
            score=score,
        )


def _count(name: str, value: int) -> int:
    """Check a count; more than there can be of anything is as good as all."""
    return min(check_int(name, value, at_least=1, owner="search"), 2**31 - 1)


class Explanation(NamedTuple):
    """What a search does. Arrays have a row for each query.

    `votes` and `ids` are of shape (n, k); `probed`, `scanned` and `candidates` of shape (n,):
    buckets probed, entries read in them, exact distances computed. `seconds` are per query and
    stage.
    """

    ids: NDArray[np.int64]
    votes: NDArray[np.int32]
    probed: NDArray[np.int64]
    scanned: NDArray[np.int64]
    candidates: NDArray[np.int64]
    router_multiplications: int
    seconds: dict[str, NDArray[np.float64]]


class Seat(NamedTuple):
    """What one thread needs to search."""

    engine: Engine
    scratch: Scratch  # the engine's
    row: NDArray[np.float32]  # (d,): a place for a single query
    query: NDArray[np.float32]  # (1, d): the same, as kernels take it


def make_seat(frozen: Frozen) -> Seat:
    """Allocate the memory of one thread."""
    scratch = make_scratch(frozen)
    row = np.zeros(frozen.vectors.shape[1], dtype=np.float32)
    return Seat(make_engine(frozen, scratch), scratch, row, read_only(row[None]))


def _sealed(part: Any) -> dict[str, Any]:
    """Return the fields of a named tuple, its arrays aligned and as read-only views."""
    fields = part._asdict().items()
    return {n: read_only(aligned(v)) if isinstance(v, np.ndarray) else v for n, v in fields}


class Searcher:
    """A frozen index with scratch memory for any number of threads."""

    def __init__(self, frozen: Frozen) -> None:
        parts = {
            "coded": Coded(**_sealed(frozen.coded)),
            "lens": Lens(**_sealed(frozen.lens)),
            "rounded": Rounded(**_sealed(frozen.rounded)),
        }
        fields = _sealed(frozen) | parts
        self.frozen = frozen = Frozen(**fields)
        self._seats: Reserve[Seat] = Reserve(lambda: make_seat(frozen))
        self._shape = frozen.vectors.shape[1:]
        self._large = frozen.vectors.nbytes > _CACHE

    def search(
        self,
        queries: NDArray[np.float32],
        plan: Plan,
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
            asked = queries[part]
            if len(asked) >= FEWEST and self._large:
                order = near_together(asked, angle=form == COSINE)
                found = self._search(asked[order], plan, allowed, ids, form, threads)
                distances[part][order], items[part][order] = found
            else:
                found = self._search(asked, plan, allowed, ids, form, threads)
                distances[part], items[part] = found
        return distances, items

    def _search(
        self,
        queries: NDArray[np.float32],
        plan: Plan,
        allowed: NDArray[np.bool_],
        ids: NDArray[np.int64],
        form: int,
        threads: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        count = len(queries)
        queries, allowed = read_only(queries), read_only(allowed)
        distances = np.empty((count, plan.k), dtype=np.float32)
        items = np.empty((count, plan.k), dtype=np.int64)
        pieces = 1 if threads == 1 else threads * _PIECES
        step = BLOCK * max(1, -(-count // (BLOCK * pieces)))

        def piece(start: int) -> None:
            part = slice(start, start + step)
            mine = queries[part], distances[part], items[part]
            with self._seats.lend() as seat:
                kernels.search(seat.engine, plan, allowed, *mine, ids, form)

        run_all([partial(piece, start) for start in range(0, count, step)], threads)
        return distances, items

    def search_one(
        self, query: NDArray[np.float32], plan: Plan, ids: NDArray[np.int64], form: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return distances and ids (k,) for one query (d,), or None if it is not finite."""
        distances = np.empty((1, plan.k), dtype=np.float32)
        items = np.empty((1, plan.k), dtype=np.int64)
        with self._seats.lend() as seat:
            seat.row[:] = query
            fine = kernels.search(seat.engine, plan, _ALL, seat.query, distances, items, ids, form)
        return (distances[0], items[0]) if fine else None

    def fits(self, query: Any) -> bool:
        """Whether something is a single query that needs no preparation."""
        return (
            type(query) is np.ndarray and query.dtype == np.float32 and query.shape == self._shape
        )

    def explain(
        self, queries: NDArray[np.float32], plan: Plan, allowed: NDArray[np.bool_]
    ) -> Explanation:
        """Run the stages one by one with a clock between them; `ids` are item rows."""
        count, frozen = len(queries), self.frozen
        queries, allowed = read_only(queries), read_only(allowed)
        items = np.empty((count, plan.k), dtype=np.int64)
        votes = np.zeros((count, plan.k), dtype=np.int32)
        distances = np.empty(plan.k, dtype=np.float32)
        probed, scanned, candidates = np.zeros((3, count), dtype=np.int64)
        clock = np.empty((5, count))
        with self._seats.lend() as seat:
            scratch = seat.scratch
            for i in range(count):
                query = queries[i : i + 1]
                clock[0, i] = perf_counter()
                route(frozen, query, scratch)
                if plan.score == CODES:
                    fill_table(frozen, query, 0, scratch)
                clock[1, i] = perf_counter()
                probed[i], found, scanned[i] = kernels.shortlist(frozen, plan, allowed, 0, scratch)
                clock[2, i] = perf_counter()
                candidates[i] = kernels.select(plan, found, scratch)
                if plan.score == CODES:
                    candidates[i] = sift(frozen, query[0], candidates[i], plan.k, scratch)
                clock[3, i] = perf_counter()
                kernels.rerank(frozen, query[0], candidates[i], scratch, distances, items[i])
                clock[4, i] = perf_counter()
                if plan.score == CODES:  # which needs no votes to search
                    kernels.gather(frozen, allowed, probed[i], scratch)
                there = items[i] >= 0
                votes[i, there] = scratch.votes[items[i, there]]
        stages = ("route", "gather", "select", "rerank")
        return Explanation(
            ids=items,
            votes=votes,
            probed=probed,
            scanned=scanned,
            candidates=candidates,
            router_multiplications=self.router_multiplications,
            seconds=dict(zip(stages, np.diff(clock, axis=0), strict=True)),
        )

    @property
    def router_multiplications(self) -> int:
        """What routing one query costs, over all repetitions."""
        frozen = self.frozen
        scoring = int((np.diff(frozen.depths, prepend=0) * frozen.keeps).sum())
        return frozen.project.size + frozen.turn.size + len(frozen.bias) * scoring
