"""Phase 4, tune: find the fastest search parameters that reach a recall on held-out queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import check_float, check_int
from irli.base.logs import get_logger
from irli.base.threads import thread_count
from irli.engine.exact import exact_neighbors
from irli.vectors.held_out import HeldOut
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Searcher

log = get_logger(__name__)

_STRIDES = 16  # coarse steps of a dial, from the least work to the most
_STEPS = 6  # bisection steps within a stride
_REPEATS = 3  # timings, of which the shortest counts
_SHORT = 0.2  # seconds that a trial may take, whatever the others needed
_VOTING = 3  # repetitions from which on votes can choose the candidates
_CANDIDATES = (4, 16, 64, 256, 1024)  # tried without codes, in multiples of k
_CODED = (40, 20, 12, 8, 5, 3, 2)  # tried with codes; the most first, to reach the recall at once
_LEAST = 1e-5  # smallest threshold that is tried with scores


class TuneResult(NamedTuple):
    """The parameters that `tune` chose, and what it measured with them.

    Attributes
    ----------
    parameters : SearchParameters
    recall : float
        Recall on the queries used for tuning.
    seconds : float
        For one query of a batch, on one thread.
    reached : bool
        Whether the recall reaches the target.
    """

    parameters: SearchParameters
    recall: float
    seconds: float
    reached: bool


def tune(searcher: Searcher, held: HeldOut, metric: str, recall: float, k: int) -> TuneResult:
    """Find the fastest parameters whose recall at k on the held-out queries reaches `recall`."""
    check_float("recall", recall, at_least=0.0, at_most=1.0, owner="tune")
    check_int("k", k, at_least=1, owner="tune")
    vectors = searcher.layout.vectors
    k = min(k, len(vectors))
    truth = exact_neighbors(held.queries, vectors, k, metric, rows=held.rows)
    trial = _Trial(searcher, held, truth)
    good: list[TuneResult] = []
    failed: list[tuple[float, SearchParameters]] = []
    bound = math.inf  # seconds; slower trials are pointless, another family needs half of it
    for families in _list_families(searcher, k):
        for family in families:
            parameters, reached = _find_cheapest(trial, family, recall, bound)
            if good and not reached:
                continue
            found, took = trial.recall(parameters)
            if reached:
                good.append(TuneResult(parameters, found, trial.seconds(parameters), True))
                bound = min(bound, max(2 * took, _SHORT))
            else:
                failed.append((found, parameters))
        if good:
            best = min(good, key=lambda outcome: outcome.seconds)
            log.info("tuned: %s, recall %.4f at k=%d", best.parameters, best.recall, k)
            return best
    found, parameters = max(failed, key=itemgetter(0))
    best = TuneResult(parameters, found, trial.seconds(parameters), False)
    log.warning(
        "tune: recall %.3f at k=%d is out of reach; the best is %.3f, which is now the default. "
        "Set a lower recall, or learn with more buckets_per_item or repetitions.",
        recall,
        k,
        best.recall,
    )
    return best


# A family of parameters has one dial, from 0 (the least work) to 1 (the most).
Family = Callable[[float], SearchParameters]


def _list_families(searcher: Searcher, k: int) -> Iterator[list[Family]]:
    """Yield groups of families. A later group is tried only if none before reaches the recall."""
    repetitions, buckets = searcher.layout.bias.shape
    if searcher.layout.codes.blocks.size:
        yield [*(partial(_by_codes, factor * k) for factor in _CODED), _by_threshold]
    if repetitions >= _VOTING:
        yield [partial(_by_score, factor * k) for factor in _CANDIDATES]
    yield [_by_threshold, partial(_by_probes, buckets)]


def _by_score(candidates: int, dial: float) -> SearchParameters:
    return SearchParameters(threshold=_LEAST**dial, candidates=candidates)


def _by_codes(candidates: int, dial: float) -> SearchParameters:
    return SearchParameters(threshold=1e-8**dial, candidates=candidates, score="codes")


def _by_threshold(dial: float) -> SearchParameters:
    return SearchParameters(threshold=1e-8**dial)


def _by_probes(buckets: int, dial: float) -> SearchParameters:
    return SearchParameters(probes=max(1, round(buckets**dial)))


def _find_cheapest(
    trial: _Trial, family: Family, recall: float, bound: float
) -> tuple[SearchParameters, bool]:
    """Find the least work that reaches `recall`, given that more work never lowers it.

    Strides start at the least work, so all items are scanned only if nothing less reaches the
    recall. They stop when a trial takes longer than `bound` seconds.
    """
    for stride in range(_STRIDES + 1):
        high = stride / _STRIDES
        found, took = trial.recall(family(high))
        if took > bound:
            return family(high), False
        if found >= recall:
            break
    else:
        return family(1.0), False
    low = max(0.0, high - 1 / _STRIDES)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if trial.recall(family(middle))[0] >= recall:
            high = middle
        else:
            low = middle
    return family(high), True


class _Trial:
    """Held-out queries with their true neighbours, to measure parameters on."""

    def __init__(self, searcher: Searcher, held: HeldOut, truth: NDArray[np.int64]) -> None:
        self.searcher = searcher
        self.queries = np.ascontiguousarray(held.queries)
        self.rows = np.asarray(held.rows)
        self.truth = truth

    def recall(self, parameters: SearchParameters) -> tuple[float, float]:
        """Return the recall, and the seconds that the search took on all threads.

        A query never counts as its own neighbour. The recall is that of the held-out items or that
        of the sample queries, whichever is lower: many easy items must not hide a few hard queries.
        """
        k = self.truth.shape[1]
        any_items = bool((self.rows >= 0).any())  # items find themselves: one more is needed
        more = min(k + any_items, len(self.searcher.layout.vectors))
        start = perf_counter()
        items = self._search(parameters, more, thread_count(None))
        took = perf_counter() - start
        itself = items == self.rows[:, None]
        itself[~itself.any(axis=1), -1] = more > k
        items = np.where(itself, -1, items)
        hit = (self.truth[:, :, None] == items[:, None, :]).any(axis=2)
        kinds = [(self.truth >= 0) & kind[:, None] for kind in (self.rows >= 0, self.rows < 0)]
        shares = [float(hit[wanted].mean()) for wanted in kinds if wanted.any()]
        return min(shares, default=1.0), took

    def seconds(self, parameters: SearchParameters) -> float:
        """Return the seconds for one query of a batch on one thread."""
        k = self.truth.shape[1]
        times = []
        for _ in range(_REPEATS):
            start = perf_counter()
            self._search(parameters, k, 1)
            times.append(perf_counter() - start)
        return min(times) / max(1, len(self.queries))

    def _search(self, parameters: SearchParameters, k: int, threads: int) -> NDArray[np.int64]:
        return self.searcher.search(self.queries, parameters.to_plan(k), threads=threads)[1]
