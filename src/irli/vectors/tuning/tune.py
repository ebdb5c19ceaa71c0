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
from irli.vectors.build.ground_truth import GroundTruth
from irli.vectors.build.held_out import HeldOut
from irli.vectors.cost import Sizes, count_exact_work
from irli.vectors.parameters import OperatingPoint, SearchParameters
from irli.vectors.tune_result import TuneResult, describe_exact
from irli.vectors.tuning.by_relevance import tune_by_relevance
from irli.vectors.tuning.measure import Ask, Evaluator, find_tuning_truth, make_evaluators
from irli.vectors.tuning.strange_queries import allow_strange

log = get_logger(__name__)

KS = (1, 10, 100, 300, 1000)  # the numbers of items to tune for, besides the given one
_SELF_HITS = 0.999  # the share of the items that must find themselves
_SAMPLED_HITS = 0.9993  # of those that are tried
_STRIDES = 16  # coarse steps of a threshold, from the least work to the most
_PATIENCE = 3.0  # times as many entries without a gain
_STEPS, _LEAST_STEP = 3, 0.2  # within a stride, each by this share of it at least
_STEP = 1 / 27  # of the way to the least threshold, by which items that miss themselves lower it
_VOTING = 3  # repetitions from which on votes can choose the candidates
_BY_SCORE = (1024, 256, 64, 16, 4)  # candidates tried without codes, in multiples of k
_BY_CODES = (40, 20, 12, 8, 5, 3, 2)  # tried with codes
_FEWER = 3  # of these multiples are tried for other k
_VOTES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # the least votes of a candidate that are tried
_TOO_MUCH = 2.0  # times the least work, from which on more votes are not tried
_MOST_SCANNED = 0.5  # reading more of the items than this is hardly better than comparing all


def tune(
    ask: Ask,
    held: HeldOut,
    metric: str,
    recall: float,
    k: int,
    *,
    by_votes: bool = False,
    truth: GroundTruth | None = None,
) -> TuneResult:
    """Find the parameters of least work whose recall on the held-out queries reaches `recall`.

    Parameters
    ----------
    ask : callable
        Calls a method of the `Meter` of each part, with the same arguments.
    by_votes : bool
        Whether the parameters are those of the paper: probes, and the least votes of a candidate.
    truth : GroundTruth, optional
        Of the held-out queries, then of strange ones. By default it is found here.
    """
    check_float("recall", recall, at_least=0.0, at_most=1.0, owner="tune")
    check_int("k", k, at_least=1, owner="tune")
    each: list[Sizes] = ask("measure_sizes")
    sizes, items = each[0], sum(part.items for part in each)
    k = min(k, items)
    if sizes.repetitions * sizes.buckets == 1:  # one bucket: all items are compared
        return describe_exact(sizes, k, len(each))
    if held.by_relevance:
        return tune_by_relevance(ask, held, recall, k)
    ks = [k, *sorted({min(other, items) for other in KS} - {k})]
    if truth is None:
        truth = find_tuning_truth(ask, held, metric, k if by_votes else max(ks))
    strange, truth = truth.take(slice(len(held.rows), None)), truth.take(slice(len(held.rows)))
    if by_votes:
        evaluator = Evaluator(ask, metric, k, truth)
        return _report(evaluator, _find_votes(evaluator, recall).parameters, recall)
    length = _find_usual_length(held.queries) if metric == "ip" else None
    evaluators = make_evaluators(ask, metric, truth, ks, length)
    evaluator = evaluators[0]
    best = _choose_family(evaluator, recall)
    if _is_exact_better(sizes, best.work):
        return _compare_all(evaluator, recall, best.work)
    points = [best.point]
    for other in evaluators[1:]:
        before = max((each for each in points if each.k <= other.k), default=best.point)
        points.append(_find_point(other, best, before, recall))
    parameters = dataclasses.replace(best.parameters, points=_make_monotone(points), length=length)
    parameters = _let_items_find_themselves(evaluator, parameters, recall)
    work = evaluator.measure(evaluator.choose_point(parameters)).work
    if _is_exact_better(sizes, work):
        return _compare_all(evaluator, recall, work)
    return _report(evaluator, allow_strange(evaluators, strange, parameters), recall)


def _is_exact_better(sizes: Sizes, work: float) -> bool:
    """Whether comparing all items costs less than a search of so much work.

    Few items are always compared for less: whoever learned them wants to see what was learned.
    """
    return not is_exact_cheap(sizes.items, sizes.dim) and work > count_exact_work(
        sizes, sizes.items
    )


def _compare_all(evaluator: Evaluator, recall: float, work: float) -> TuneResult:
    """Return a result that compares all items, and say why."""
    exact = describe_exact(evaluator.sizes, evaluator.k, evaluator.parts)
    log.warning(
        "tune: comparing all items takes %.0f us a query, and reaching recall %.3f at k=%d by "
        "buckets %.0f us: they tell little about the neighbours in this data. So all items are "
        "compared from now on. Pass probes or threshold to search the buckets, set a lower recall, "
        "or check the metric and the scale of the columns.",
        exact.work / 1e3,
        recall,
        exact.k,
        evaluator.parts * work / 1e3,
    )
    return exact


def _report(evaluator: Evaluator, parameters: SearchParameters, recall: float) -> TuneResult:
    """Return what was measured. Warn if it misses the targets, or reads most of the items."""
    seen = evaluator.measure(evaluator.choose_point(parameters))
    self_hits, parts = evaluator.self_hits(parameters), evaluator.parts
    # Votes are as the paper has them, where items may miss themselves.
    found = self_hits >= _SELF_HITS or parameters.score == "votes"
    tuned = TuneResult(
        parameters=parameters,
        k=evaluator.k,
        recall=seen.recall,
        self_hits=self_hits,
        scanned=parts * seen.scanned,
        work=parts * seen.work,
        reached=seen.recall >= recall and found,
    )
    log.info("tuned: %s, recall %.4f at k=%d", tuned.parameters, tuned.recall, tuned.k)
    items = parts * evaluator.sizes.items
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
    return tuned


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


class _Solution(NamedTuple):
    """The parameters of least work of a family."""

    dial: float
    factor: int | None  # candidates, in multiples of k
    parameters: SearchParameters
    work: float
    reached: bool

    @property
    def point(self) -> OperatingPoint:
        return self.parameters.points[0]._replace(work=self.work)


def _by_threshold(
    evaluator: Evaluator, candidates: int | None, score: str, dial: float
) -> SearchParameters:
    threshold = evaluator.least**dial if dial < 1 else 0.0
    return _make_parameters(OperatingPoint(evaluator.k, threshold, candidates), score)


def _by_centroids(
    near: OperatingPoint, buckets: int, candidates: int | None, score: str, dial: float
) -> SearchParameters:
    point = near._replace(candidates=candidates, centroids=round(buckets**dial))
    return _make_parameters(point, score)


def _make_parameters(point: OperatingPoint, score: str) -> SearchParameters:
    return SearchParameters(
        threshold=point.threshold, candidates=point.candidates, score=score, points=(point,)
    )


def _compare_found(
    evaluator: Evaluator, recall: float, start: float = 0.0, most: float = math.inf
) -> _Solution:
    """Return the parameters of least work that compare all items found."""
    family = partial(_by_threshold, evaluator, None, "log-probability")
    return _find_cheapest(evaluator, None, family, recall, start, most)


def _choose_family(evaluator: Evaluator, recall: float) -> _Solution:
    """Return the parameters of least work: the best items by codes or by score, or all found."""
    score, factors = _list_factors(evaluator.sizes)
    threshold = partial(_by_threshold, evaluator)
    found = _try_factors(evaluator, score, factors, 0.0, recall, threshold)
    if not found or not found[0].reached:
        return _take_least([_compare_found(evaluator, recall), *found])
    least = _take_least(found)
    return _take_least([least, _compare_found(evaluator, recall, found[0].dial, least.work)])


def _find_point(
    evaluator: Evaluator, best: _Solution, before: OperatingPoint, recall: float
) -> OperatingPoint:
    """Return the operating point of another k, with the score that is best at the first one.

    Routers learn where the nearest items are. For a larger k than the first, centroids may know
    more. More items never have a higher threshold or fewer buckets, so these begin where the
    next smaller k has them, in the point `before`.
    """
    score, factors = _list_factors(evaluator.sizes)
    threshold = partial(_by_threshold, evaluator)
    if evaluator.k < best.point.k:
        near = factors[: factors.index(best.factor) + 1][-_FEWER:] if best.factor else ()
        found = _try_factors(evaluator, score, near, 0.0, recall, threshold)
        return _take_reached(evaluator, found, 0.0, recall).point
    start = _find_dial(evaluator.least, max(best.point.threshold, evaluator.least))
    # A larger k needs fewer candidates for each item.
    near = factors[factors.index(best.factor) :][:_FEWER] if best.factor else ()
    if not evaluator.ask("find_scales")[0].size:
        found = _try_factors(evaluator, score, near, start, recall, threshold)
        return _take_reached(evaluator, found, start, recall).point
    buckets = evaluator.sizes.buckets
    point = OperatingPoint(evaluator.k, best.point.threshold, None)
    centroids = partial(_by_centroids, point, buckets)
    first = _find_dial(buckets, before.centroids)
    found = _try_factors(evaluator, score, near, first, recall, centroids)
    if not any(each.reached for each in found):
        family = partial(centroids, None, "log-probability")
        found.append(_find_cheapest(evaluator, None, family, recall, first))
    least = _take_least(found)
    most = least.work if least.reached else math.inf
    family = partial(threshold, least.factor and least.factor * evaluator.k, least.parameters.score)
    other = _find_cheapest(evaluator, least.factor, family, recall, start, most)
    return _take_least([least, other]).point


def _find_dial(least: float, value: float) -> float:
    """Return the dial of a value between 1 and `least`, which is less than 1 or more."""
    return min(1.0, max(0.0, math.log(max(value, 1e-300)) / math.log(least))) if least != 1 else 0.0


def _take_reached(
    evaluator: Evaluator, found: list[_Solution], start: float, recall: float
) -> _Solution:
    """Return what takes the least work, or what compares all items found if none will do."""
    least = _take_least(found) if found else None
    return least if least and least.reached else _compare_found(evaluator, recall, start)


def _list_factors(sizes: Sizes) -> tuple[str, tuple[int, ...]]:
    """Return the score that can choose candidates, and how many to try, in multiples of k."""
    if sizes.pieces:
        return "codes", _BY_CODES
    if sizes.repetitions >= _VOTING:
        return "log-probability", _BY_SCORE
    return "", ()


def _try_factors(
    evaluator: Evaluator,
    score: str,
    factors: tuple[int, ...],
    start: float,
    recall: float,
    family_of: Callable[[int, str, float], SearchParameters],
) -> list[_Solution]:
    """Return what each number of candidates can do, from the most on. Fewer than enough fail."""
    found: list[_Solution] = []
    for factor in factors:
        family = partial(family_of, factor * evaluator.k, score)
        most = min((each.work for each in found), default=math.inf)
        found.append(_find_cheapest(evaluator, factor, family, recall, start, most))
        if not found[-1].reached:
            break
        start = found[-1].dial  # fewer candidates need as many buckets, or more
    return found


def _take_least(found: list[_Solution]) -> _Solution:
    """Return what takes the least work, of those that reach the recall. The first wins a tie."""
    reached = (each for each in found if each.reached)
    return min(reached, key=lambda each: each.work, default=found[0])


def _find_cheapest(
    evaluator: Evaluator,
    factor: int | None,
    family: Family,
    recall: float,
    start: float = 0.0,
    most: float = math.inf,
) -> _Solution:
    """Find the least work that reaches `recall`, given that more work never lowers it.

    Strides start at the dial `start`, so all items are scanned only if nothing less reaches the
    recall. They stop at `most` work, which another family needs. A limit on the candidates may make
    a recall impossible. Then strides stop when much more is scanned for nothing. Between the last
    two strides, the recall tells where to look.
    """
    best, scanned, high = -1.0, 0.0, start
    low, below = start, 0.0
    seen = evaluator.measure(family(high))
    while seen.safe_recall < recall and high < 1 and seen.work < most:
        if seen.safe_recall > best:
            best, scanned = seen.safe_recall, seen.scanned
        if factor is not None and seen.scanned > _PATIENCE * scanned:
            break
        low, below = high, seen.safe_recall
        high = min(1.0, high + 1 / _STRIDES)
        seen = evaluator.measure(family(high))
    reached, above = seen.safe_recall >= recall, seen.safe_recall
    for _ in range(_STEPS if reached and high > low else 0):
        share = (recall - below) / max(above - below, 1e-9)
        middle = low + min(max(share, _LEAST_STEP), 1 - _LEAST_STEP) * (high - low)
        at_middle = evaluator.measure(family(middle))
        if at_middle.safe_recall >= recall:
            high, above, seen = middle, at_middle.safe_recall, at_middle
        else:
            low, below = middle, at_middle.safe_recall
    return _Solution(high, factor, family(high), seen.work, reached)


def _let_items_find_themselves(
    evaluator: Evaluator, parameters: SearchParameters, recall: float
) -> SearchParameters:
    """Lower the thresholds until nearly all items find themselves, if that can be reached.

    Or until it would cost less to compare all items. Where the true neighbours are lost among more
    entries, there are more candidates, too.
    """
    sizes, wider = evaluator.sizes, parameters
    while evaluator.self_hits(wider) < _SAMPLED_HITS:
        first = wider.points[0]
        if first.threshold == 0.0 and (first.candidates or sizes.items) >= sizes.items:
            return parameters.at(evaluator.k)
        lower = (
            first.threshold * evaluator.least**_STEP if first.threshold > evaluator.least else 0.0
        )
        points = [_widen(point, lower, wider.score) for point in wider.points]
        wider = dataclasses.replace(wider, points=_make_monotone(points))
        seen = evaluator.measure(evaluator.choose_point(wider))
        if wider.score == "codes" and seen.safe_recall < recall:
            points = [_double_candidates(point, sizes.entries) for point in wider.points]
            wider = dataclasses.replace(wider, points=tuple(points))
        if _is_exact_better(sizes, seen.work):
            break
    return wider.at(evaluator.k)


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


def _find_votes(evaluator: Evaluator, recall: float) -> _Solution:
    """Return the pair of probes and votes of least work. More votes need more probes."""
    sizes, solutions, start = evaluator.sizes, [], 0.0
    most = max(1, sizes.entries // sizes.items)  # the buckets of an item
    for votes in sorted({min(votes, most) for votes in _VOTES}):
        family = partial(_by_probes, sizes.buckets, votes)
        solutions.append(_find_cheapest(evaluator, None, family, recall, start))
        start, work = solutions[-1].dial, solutions[-1].work
        if not solutions[-1].reached or work > _TOO_MUCH * min(each.work for each in solutions):
            break
    return _take_least(solutions)


def _by_probes(buckets: int, votes: int, dial: float) -> SearchParameters:
    return SearchParameters(probes=round(buckets**dial), min_votes=votes, score="votes")
