"""Phase 4, tune: find the least work that reaches a recall on held-out queries, at several k.

Work is counted, not timed. So the same index gets the same parameters, however busy the machine is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import MOST_CANDIDATES
from irli.base.checks import check_float, check_int
from irli.base.logs import get_logger
from irli.base.recipe import is_exact_cheap
from irli.engine.exact import exact_neighbors
from irli.engine.vector_layout import VectorLayout
from irli.vectors.build.held_out import HeldOut
from irli.vectors.build.thresholds import find_homes
from irli.vectors.cost import count_exact_work
from irli.vectors.parameters import OperatingPoint, SearchParameters
from irli.vectors.searcher import Searcher
from irli.vectors.tune_result import TuneResult, describe_exact
from irli.vectors.tuning.by_relevance import tune_by_relevance
from irli.vectors.tuning.measure import ROUTED, Measured, Trial, make_trials
from irli.vectors.tuning.strange_queries import allow_strange

log = get_logger(__name__)

_KS = (1, 10, 100, 300, 1000)  # the numbers of items to tune for, besides the given one
_SELF_HITS = 0.999  # the share of the items that must find themselves
_SAMPLED_HITS = 0.9993  # of those that are tried
_STRIDES = 16  # coarse steps of a threshold, from the least work to the most
_PATIENCE = 3.0  # times as many entries without a gain
_STEPS = 5  # bisection steps within a stride
_STEP = 1 / 27  # of the way to the least threshold, by which items that miss themselves lower it
_VOTING = 3  # repetitions from which on votes can choose the candidates
_BY_SCORE = (1024, 256, 64, 16, 4)  # candidates tried without codes, in multiples of k
_BY_CODES = (40, 20, 12, 8, 5, 3, 2)  # tried with codes
_FEWER = 3  # of these multiples are tried for other k
_VOTES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # the least votes of a candidate that are tried
_MORE_PROBES = 1.06  # times as many probes, until they reach the recall
_TOO_MUCH = 2.0  # times the least work, from which on more votes are not tried
_MOST_SCANNED = 0.5  # reading more of the items than this is hardly better than comparing all


def tune(
    searcher: Searcher,
    held: HeldOut,
    metric: str,
    recall: float,
    k: int,
    by_votes: bool = False,
) -> TuneResult:
    """Find the parameters of least work whose recall on the held-out queries reaches `recall`.

    With `by_votes`, they are those of the paper: probes, and the least votes of a candidate.
    """
    check_float("recall", recall, at_least=0.0, at_most=1.0, owner="tune")
    check_int("k", k, at_least=1, owner="tune")
    items = len(searcher.layout.vectors)
    k = min(k, items)
    if searcher.layout.bias.size == 1:  # one bucket: all items are compared
        return describe_exact(searcher.layout, k)
    if held.by_relevance:
        return tune_by_relevance(searcher, held, recall, k)
    if by_votes:
        [trial] = make_trials(searcher, held, metric, [k])
        return _tune_votes(trial, recall)
    others = {min(each, items) for each in _KS} - {k}
    length = _find_usual_length(held.queries) if metric == "ip" else None
    trials = make_trials(searcher, held, metric, [k, *sorted(others)], length)
    trial = trials[0]
    best = _choose_family(trial, recall)
    if _is_exact_better(searcher.layout, best.point.work):
        return _compare_all(searcher.layout, recall, k, best.point.work)
    points = [best.point, *(_find_point(other, best, recall) for other in trials[1:])]
    parameters = dataclasses.replace(best.parameters, points=_make_monotone(points), length=length)
    parameters = _let_items_find_themselves(trial, parameters, recall)
    work = trial.measure(trial.choose_point(parameters)).work
    if _is_exact_better(searcher.layout, work):
        return _compare_all(searcher.layout, recall, k, work)
    parameters = allow_strange(trials, parameters)
    seen = trial.measure(trial.choose_point(parameters))
    self_hits = trial.self_hits(parameters)
    reached = seen.recall >= recall and self_hits >= _SELF_HITS
    result = TuneResult(parameters, k, seen.recall, self_hits, seen.scanned, seen.work, reached)
    _report(result, recall, items)
    return result


def _is_exact_better(layout: VectorLayout, work: float) -> bool:
    """Whether comparing all items costs less than a search of so much work.

    Few items are always compared for less: whoever learned them wants to see what was learned.
    """
    return not is_exact_cheap(*layout.vectors.shape) and work > count_exact_work(
        layout, len(layout.vectors)
    )


def _compare_all(layout: VectorLayout, recall: float, k: int, work: float) -> TuneResult:
    """Return a result that compares all items, and say why."""
    exact = describe_exact(layout, k)
    log.warning(
        "tune: comparing all items takes %.0f us a query, and reaching recall %.3f at k=%d by "
        "buckets %.0f us: they tell little about the neighbours in this data. So all items are "
        "compared from now on. Pass probes or threshold to search the buckets, set a lower recall, "
        "or check the metric and the scale of the columns.",
        exact.work / 1e3,
        recall,
        k,
        work / 1e3,
    )
    return exact


def _report(tuned: TuneResult, recall: float, items: int) -> None:
    """Log the result. Warn if the recall is missed, or reached by reading most of the items."""
    log.info("tuned: %s, recall %.4f at k=%d", tuned.parameters, tuned.recall, tuned.k)
    if not tuned.reached:
        log.warning(
            "tune: recall %.3f at k=%d is out of reach; the best is %.3f, and %.4f of the items "
            "find themselves. This is now the default. Set a lower recall, learn with more "
            "buckets_per_item or repetitions, or search with exact=True.",
            recall,
            tuned.k,
            tuned.recall,
            tuned.self_hits,
        )
    elif tuned.scanned > _MOST_SCANNED * items and items > tuned.k:
        log.warning(
            "tune: recall %.3f at k=%d takes %.0f entries a query, of %d items. The buckets tell "
            "little about the neighbours in this data. Search with exact=True, set a lower recall, "
            "or check the metric and the scale of the columns.",
            recall,
            tuned.k,
            tuned.scanned,
            items,
        )


def _find_usual_length(queries: NDArray[np.float32]) -> float:
    """Return the length of most queries: routers know them best.

    Examples
    --------
    >>> _find_usual_length(np.array([[3.0, 4.0], [0.0, 6.0], [900.0, 0.0]], dtype="f4"))
    6.0
    """
    return float(np.median(np.linalg.norm(queries.astype(np.float64), axis=1)))


# --- families of parameters ----------------------------------------------------------------------

# A family of parameters has one dial, from 0 (the least work) to 1 (the most).
Family = Callable[[float], SearchParameters]


class _Found(NamedTuple):
    """The parameters of a family that were found."""

    dial: float
    factor: int | None  # candidates, in multiples of k
    parameters: SearchParameters
    reached: bool

    @property
    def point(self) -> OperatingPoint:
        return self.parameters.points[0]


def _by_threshold(
    trial: Trial, candidates: int | None, score: str, dial: float
) -> SearchParameters:
    threshold = trial.least**dial if dial < 1 else 0.0
    return _make_parameters(OperatingPoint(trial.k, threshold, candidates), score)


def _by_centroids(near: SearchParameters, buckets: int, dial: float) -> SearchParameters:
    return _make_parameters(near.points[0]._replace(centroids=round(buckets**dial)), near.score)


def _make_parameters(point: OperatingPoint, score: str) -> SearchParameters:
    return SearchParameters(
        threshold=point.threshold, candidates=point.candidates, score=score, points=(point,)
    )


def _compare_found(trial: Trial, recall: float, start: float = 0.0) -> _Found:
    """Return the parameters of least work that compare all items found."""
    family = partial(_by_threshold, trial, None, "log-probability")
    return _find_cheapest(trial, None, family, recall, start)


def _choose_family(trial: Trial, recall: float) -> _Found:
    """Return the parameters of least work: the best items by codes or by score, or all found."""
    score, factors = _list_factors(trial.searcher)
    found = _try_factors(trial, score, factors, 0.0, recall)
    start = found[0].dial if found and found[0].reached else 0.0
    return _take_least([_compare_found(trial, recall, start), *found])


def _find_point(trial: Trial, best: _Found, recall: float) -> OperatingPoint:
    """Return the operating point of another k, with the score that is best at the first one.

    Routers learn where the nearest items are. For a large k, centroids may know more.
    """
    found = []
    if best.factor is not None:
        score, factors = _list_factors(trial.searcher)
        place = factors.index(best.factor)
        # A larger k needs fewer candidates for each item.
        near = factors[place:] if trial.k > best.point.k else factors[: place + 1][-_FEWER:]
        found = _try_factors(trial, score, near[:_FEWER], 0.0, recall)
    least = _take_least(found) if found else None
    if least is None or not least.reached:
        least = _compare_found(trial, recall)
    if trial.k > best.point.k and trial.searcher.layout.centroids.centre.size:
        point = least.point._replace(threshold=best.point.threshold)
        close = _make_parameters(point, least.parameters.score)
        family = partial(_by_centroids, close, trial.searcher.layout.bias.shape[1])
        least = _take_least([least, _find_cheapest(trial, least.factor, family, recall)])
    return least.point


def _list_factors(searcher: Searcher) -> tuple[str, tuple[int, ...]]:
    """Return the score that can choose candidates, and how many to try, in multiples of k."""
    if searcher.layout.codes.blocks.size:
        return "codes", _BY_CODES
    if len(searcher.layout.bias) >= _VOTING:
        return "log-probability", _BY_SCORE
    return "", ()


def _try_factors(
    trial: Trial, score: str, factors: tuple[int, ...], start: float, recall: float
) -> list[_Found]:
    """Return what each number of candidates can do, from the most on. Fewer than enough fail."""
    found: list[_Found] = []
    for factor in factors:
        family = partial(_by_threshold, trial, factor * trial.k, score)
        found.append(_find_cheapest(trial, factor, family, recall, start))
        if not found[-1].reached:
            break
        start = found[-1].dial  # fewer candidates need as many buckets, or more
    return found


def _take_least(found: list[_Found]) -> _Found:
    """Return what takes the least work, of those that reach the recall. The first wins a tie."""
    return min(
        (each for each in found if each.reached), key=lambda f: f.point.work, default=found[0]
    )


def _find_cheapest(
    trial: Trial, factor: int | None, family: Family, recall: float, start: float = 0.0
) -> _Found:
    """Find the least work that reaches `recall`, given that more work never lowers it.

    Strides start at the dial `start`, so all items are scanned only if nothing less reaches the
    recall. A limit on the candidates may make a recall impossible. Then strides stop when much more
    is scanned for nothing.
    """
    best, scanned, reached = -1.0, 0.0, False
    for stride in range(math.floor(start * _STRIDES), _STRIDES + 1):
        high = max(start, stride / _STRIDES)
        seen = trial.measure(family(high))
        reached = seen.safe_recall >= recall
        if seen.safe_recall > best:
            best, scanned = seen.safe_recall, seen.scanned
        if reached or (factor is not None and seen.scanned > _PATIENCE * scanned):
            break
    low = max(start, high - 1 / _STRIDES)
    for _ in range(_STEPS if reached and high > low else 0):
        middle = (low + high) / 2
        if trial.measure(family(middle)).safe_recall >= recall:
            high = middle
        else:
            low = middle
    parameters = family(high)
    point = parameters.points[0]._replace(work=trial.measure(parameters).work)
    return _Found(high, factor, dataclasses.replace(parameters, points=(point,)), reached)


def _let_items_find_themselves(
    trial: Trial, parameters: SearchParameters, recall: float
) -> SearchParameters:
    """Lower the thresholds until nearly all items find themselves, if that can be reached.

    Or until it would cost less to compare all items. Where the true neighbours are lost among more
    entries, there are more candidates, too.
    """
    layout = trial.searcher.layout
    items = len(layout.vectors)
    wider = parameters
    while trial.self_hits(wider) < _SAMPLED_HITS:
        first = wider.points[0]
        if first.threshold == 0.0 and (first.candidates or items) >= items:
            return parameters.at(trial.k)
        lower = first.threshold * trial.least**_STEP if first.threshold > trial.least else 0.0
        points = [_widen(point, lower, wider.score) for point in wider.points]
        wider = dataclasses.replace(wider, points=_make_monotone(points))
        seen = trial.measure(trial.choose_point(wider))
        if wider.score == "codes" and seen.safe_recall < recall:
            points = [_double_candidates(point, len(layout.items)) for point in wider.points]
            wider = dataclasses.replace(wider, points=tuple(points))
        if _is_exact_better(layout, seen.work):
            break
    return wider.at(trial.k)


def _double_candidates(point: OperatingPoint, items: int) -> OperatingPoint:
    """Return the point with more candidates, as many as codes can choose. Or with all found."""
    if point.candidates is None or 2 * point.candidates <= min(items, MOST_CANDIDATES):
        return point._replace(candidates=point.candidates and 2 * point.candidates)
    return point._replace(candidates=None)


def _widen(point: OperatingPoint, threshold: float, score: str) -> OperatingPoint:
    """Return the point with a lower threshold, unless it has one.

    Candidates chosen by score are doubled: the right ones are lost among more entries. Codes mostly
    tell them apart.
    """
    if threshold > 0.0 and point.threshold <= threshold:
        return point
    if point.candidates is not None and (score != "codes" or threshold == 0.0):
        point = point._replace(candidates=2 * point.candidates)
    return point._replace(threshold=threshold)


def _make_monotone(points: list[OperatingPoint]) -> tuple[OperatingPoint, ...]:
    """Return the points by k. More items never have a higher threshold or fewer candidates."""
    rising: list[OperatingPoint] = []
    for point in sorted(points, key=lambda each: each.k):
        if rising and point.threshold > rising[-1].threshold:
            point = point._replace(threshold=rising[-1].threshold)
        if rising and point.candidates is not None and rising[-1].candidates is not None:
            point = point._replace(candidates=max(point.candidates, rising[-1].candidates))
        if rising:
            point = point._replace(centroids=max(point.centroids, rising[-1].centroids))
        rising.append(point)
    return tuple(rising)


# --- the paper's way -----------------------------------------------------------------------------


def _tune_votes(trial: Trial, recall: float) -> TuneResult:
    """Find the fewest probes for each number of votes, and take the pair of least work.

    More votes need more probes and leave fewer candidates.
    """
    needed = _count_needed_probes(trial)
    tried: list[tuple[SearchParameters, Measured]] = []
    for votes in sorted({min(votes, needed.shape[1]) for votes in _VOTES}):
        parameters = _find_probes(trial, votes, needed[:, votes - 1], recall)
        tried.append((parameters, trial.measure(parameters)))
        if tried[-1][1].work > _TOO_MUCH * min(seen.work for _, seen in tried):
            break
    good = [each for each in tried if each[1].recall >= recall]
    parameters, seen = min(good, key=lambda each: each[1].work, default=tried[0])
    self_hits, reached = trial.self_hits(parameters), seen.recall >= recall
    result = TuneResult(
        parameters, trial.k, seen.recall, self_hits, seen.scanned, seen.work, reached
    )
    _report(result, recall, len(trial.searcher.layout.vectors))
    return result


def _count_needed_probes(trial: Trial) -> NDArray[np.int64]:
    """Return the probes that find each true neighbour with 1, 2, ... votes: (pairs, entries)."""
    searcher, homes = trial.searcher, find_homes(trial.searcher.layout)
    vectors, buckets = searcher.layout.vectors, searcher.layout.bias.shape[1]
    truth = exact_neighbors(trial.queries, vectors, trial.k, trial.metric, rows=trial.rows)
    needed = []
    for start in range(0, len(truth), ROUTED):
        logits = searcher.route(trial.queries[start : start + ROUTED])
        for column in truth[start : start + ROUTED].T:
            row = np.flatnonzero(column >= 0)[:, None]
            own = homes[column[row[:, 0]]]  # (rows, entries)
            reached = logits[row, own // buckets, own % buckets]
            better = logits[row, own // buckets] > reached[:, :, None]
            needed.append(np.sort(better.sum(axis=2), axis=1) + 1)
    return np.concatenate(needed)


def _find_probes(
    trial: Trial, votes: int, needed: NDArray[np.int64], recall: float
) -> SearchParameters:
    """Return the fewest probes that reach the recall: about the quantile of those needed."""
    buckets = trial.searcher.layout.bias.shape[1]
    probes = int(np.quantile(needed, recall, method="higher")) if len(needed) else 1
    while True:
        parameters = SearchParameters(probes=probes, min_votes=votes, score="votes")
        if probes >= buckets or trial.measure(parameters).safe_recall >= recall:
            return parameters
        probes = min(buckets, max(probes + 1, math.ceil(_MORE_PROBES * probes)))
