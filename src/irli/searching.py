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
from irli.config import SCORES
from irli.errors import InvalidParameter
from irli.kernels import Frozen, Plan, Scratch, read_only
from irli.threads import Reserve, run_all

_PIECES = 4  # pieces of a batch for each thread: the last thread waits for a quarter at most


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
    score : {"votes", "probability", "log-probability"}
        What a probed bucket adds to the score of its items.
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
        return SearchParameters(
            probes=probes,
            threshold=threshold,
            min_votes=min_votes or self.min_votes,
            candidates=candidates or self.candidates,
            score=score or self.score,
        )

    def plan(self, k: int) -> Plan:
        """Return the parameters as the kernels take them."""
        threshold = self.threshold or 0.0
        return Plan(
            k=k,
            probes=self.probes or 0,
            threshold=math.log(threshold) if threshold > 0 else -math.inf,
            min_votes=self.min_votes,
            candidates=max(self.candidates, k) if self.candidates else 0,
            score=SCORES.index(self.score),
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


class Searcher:
    """A frozen index with scratch memory for any number of threads."""

    def __init__(self, frozen: Frozen) -> None:
        fields: dict[str, Any] = frozen._asdict()
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                fields[name] = read_only(value)
        self.frozen = frozen = Frozen(**fields)
        self._reserve: Reserve[Scratch] = Reserve(lambda: kernels.make_scratch(frozen))

    def search(
        self,
        queries: NDArray[np.float32],
        plan: Plan,
        allowed: NDArray[np.bool_],
        threads: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return kernel distances and item rows (n, k), -1 where there are fewer."""
        count = len(queries)
        queries, allowed = read_only(queries), read_only(allowed)
        distances = np.empty((count, plan.k), dtype=np.float32)
        items = np.empty((count, plan.k), dtype=np.int64)
        pieces = 1 if threads == 1 else threads * _PIECES
        step = kernels.BLOCK * max(1, -(-count // (kernels.BLOCK * pieces)))

        def piece(start: int) -> None:
            part = slice(start, start + step)
            with self._reserve.lend() as scratch:
                kernels.search(
                    self.frozen, plan, allowed, queries[part], scratch, distances[part], items[part]
                )

        run_all([partial(piece, start) for start in range(0, count, step)], threads)
        return distances, items

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
        with self._reserve.lend() as scratch:
            for i in range(count):
                query = queries[i : i + 1]
                clock[0, i] = perf_counter()
                kernels.route(frozen, query, scratch)
                clock[1, i] = perf_counter()
                probed[i], found, scanned[i] = kernels.shortlist(frozen, plan, allowed, 0, scratch)
                clock[2, i] = perf_counter()
                candidates[i] = kernels.select(plan, found, scratch)
                clock[3, i] = perf_counter()
                kernels.rerank(frozen, query[0], candidates[i], scratch, distances, items[i])
                clock[4, i] = perf_counter()
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
