"""What strange queries may do, for about four times the work of the others.

A query is strange if the routers do not know it: see `SearchPlan` in `native/layout.h`. It reads
more buckets, and codes choose its candidates. The more it reads, the fewer candidates it can
compare for the same work. What is best depends on how much centroids and codes tell about the data.
So it is measured, on strange queries that are made from the items.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import MOST_CANDIDATES
from irli.vectors.build.ground_truth import GroundTruth
from irli.vectors.build.held_out import KINDS
from irli.vectors.cost import Sizes, count_centroid_work, count_exact_work, count_work
from irli.vectors.parameters import OperatingPoint, SearchParameters, Strange
from irli.vectors.searcher import WORK
from irli.vectors.tuning.measure import MANY, Evaluator

_STRANGE = 4.0  # times the work of the others for a strange query
_SHARES = tuple(4.0**-j for j in range(6))  # its candidates, of the entries that it reads
_ROUNDS = 3  # after each, the counted work tells how much more may be done
_SPARE, _NEARLY = 0.98, 0.94  # of the work: at which they aim, and what is near enough
_USUAL = 0.99  # of the others, a strange query is farther from its best bucket, or less sure, than
_TINY = 5e-324  # stands for a threshold of 0
_FEWER = 2  # every second query is enough for a large k; KINDS does not divide it
_FEWEST = 20  # held-out queries that can tell what is far


def allow_strange(
    evaluators: list[Evaluator], strange: GroundTruth, parameters: SearchParameters
) -> SearchParameters:
    """Set the work of each point, which queries are strange, and what they may do.

    The first evaluator counts most: for other k, what is best for it is tried, and the like if
    that takes little time.
    """
    first = evaluators[0]
    points, probed = {}, {}
    for evaluator in evaluators:
        alone = evaluator.choose_point(parameters)
        seen, k = evaluator.measure(alone), evaluator.k
        points[k], probed[k] = alone.points[0]._replace(work=seen.work), seen.probed
    rising = tuple(points[k] for k in sorted(points))
    parameters = dataclasses.replace(parameters, points=rising)
    far = _find_far(first)
    if far is None:
        return parameters
    guard = Strange(*_find_unsure(first, rising[0].threshold), far)
    parameters = dataclasses.replace(parameters, strange=guard)
    ks = [each.k for each in evaluators if not _can_compare_all(first.sizes, points[each.k])]
    shares = near = same = _SHARES if first.sizes.pieces else (1.0,)
    for k in ks:
        asked = strange.take(slice(None, None, _FEWER if k >= MANY else 1))
        evaluator = Evaluator(first.ask, first.metric, k, asked, first.length)
        tried = shares if k == ks[0] else near if k < MANY else same
        best = _find_best(evaluator, parameters, points[k], probed[k], tried)
        points[k] = best.point
        if k == ks[0]:
            place = shares.index(best.share)
            near, same = shares[max(0, place - 1) : place + 2], (best.share,)
    return dataclasses.replace(parameters, points=tuple(points[k] for k in sorted(points)))


def _can_compare_all(sizes: Sizes, point: OperatingPoint) -> bool:
    """Whether comparing a strange query with all items takes no more than it may."""
    return count_exact_work(sizes, sizes.items) <= (_STRANGE - 1) * point.work


class _Tried(NamedTuple):
    """What strange queries did: the root mean square of the misses of each kind, the most work."""

    share: float
    point: OperatingPoint
    misses: float
    work: float
    times: float  # the work that it was given, in that of the others


def _find_best(
    evaluator: Evaluator,
    parameters: SearchParameters,
    point: OperatingPoint,
    probed: float,
    shares: tuple[float, ...],
) -> _Tried:
    """Return the share of candidates with the fewest misses, or the middle one of equal ones."""
    tried, times = [], _STRANGE
    for share in shares:
        tried.append(_spend(evaluator, parameters, point, probed, share, times))
        times = tried[-1].times
    least = min(each.misses for each in tried)
    good = [each for each in tried if each.misses == least]
    return good[len(good) // 2]


def _spend(
    evaluator: Evaluator,
    parameters: SearchParameters,
    point: OperatingPoint,
    probed: float,
    share: float,
    times: float,
) -> _Tried:
    """Return the point whose strange queries take all the work that they may, but no more.

    What is left to spend is guessed by `times`, and then by the counted work.
    """
    sizes, limit = evaluator.sizes, _STRANGE * point.work
    coded = parameters.score == "codes" and point.candidates is not None
    best = _Tried(share, point, 1.0, math.inf, times)
    for _ in range(_ROUNDS):
        wider = _split_work(sizes, point, times * point.work, probed, coded, share)
        tried = _try(evaluator, parameters, share, wider, times)
        if best.work > limit or best.work < tried.work <= limit:
            best = tried
        if tried.work == 0.0 or _NEARLY * limit <= tried.work <= limit:  # none, or enough
            break
        times = max(times + (_SPARE * limit - tried.work) / point.work, _STRANGE / 2)
    return best


def _try(
    evaluator: Evaluator,
    parameters: SearchParameters,
    share: float,
    point: OperatingPoint,
    times: float,
) -> _Tried:
    recall, counts, work = evaluator.measure_each(dataclasses.replace(parameters, points=(point,)))
    strange = counts[:, WORK.index("strange")] > 0
    misses, most = [], 0.0
    for kind in range(KINDS):
        mine = strange[kind::KINDS]
        misses.append(1 - recall[kind::KINDS].mean())
        most = max(most, work[kind::KINDS][mine].mean() if mine.any() else 0.0)
    return _Tried(share, point, float(np.sqrt(np.mean(np.square(misses)))), float(most), times)


def _split_work(
    sizes: Sizes,
    point: OperatingPoint,
    work: float,
    probed: float,
    coded: bool,
    share: float,
) -> OperatingPoint:
    """Return the point with the buckets and candidates that a strange query has for so much work.

    First it is answered like the others. They probe so many buckets, and their candidates are
    chosen by codes if they are `coded`.
    """
    codes, all_buckets = sizes.pieces > 0, sizes.repetitions * sizes.buckets
    nothing, load = count_work(sizes, 0, 0, 0, codes), sizes.entries / all_buckets
    table = nothing - count_work(sizes, 0, 0, 0, coded)
    left = max(0.0, work - point.work - table - count_centroid_work(sizes))
    bucket = count_work(sizes, 1, load, 0 if codes else load, codes) - nothing
    picked = 0
    if codes:
        each = count_work(sizes, 0, 0, 1, codes) - nothing
        picked = int(share * load * left / (bucket + share * load * each))
        picked = min(max(picked, point.k), MOST_CANDIDATES)
        left -= picked * each
    wide = int(probed + max(0.0, left) / bucket)
    return point._replace(wide=max(1, min(wide, all_buckets - 1)), picked=picked)


def _find_far(evaluator: Evaluator) -> float | None:
    """Return how far its nearest item is if a query is strange, sure or not: see `Centroids`."""
    scales = np.stack(evaluator.ask("find_scales"))  # (P, 2, B)
    if not scales.size:
        return None
    times = np.empty(evaluator.nearest.shape)  # (n, P)
    for rows, logits in evaluator.route():
        best = logits[:, :, 0].argmax(axis=2)
        base, reach = scales[np.arange(len(scales)), :, best].transpose(2, 0, 1)
        times[rows] = (evaluator.nearest[rows] - base) / reach
    shares = []
    for kind in (evaluator.are_items, ~evaluator.are_items):
        known = times[kind][np.isfinite(times[kind])]
        if len(known) >= _FEWEST:
            shares.append(float(np.quantile(known, _USUAL)))
    return max(shares, default=None)


def _find_unsure(evaluator: Evaluator, threshold: float) -> tuple[float, float]:
    """Return the probability of a likely bucket, and that of all of them below which is strange.

    Likely is what has the threshold, or less if more than a few queries had no likely bucket.
    """
    kinds = [each for each in (evaluator.are_items, ~evaluator.are_items) if each.sum() >= _FEWEST]

    def find_least(values: NDArray[np.float64], method: Any = "linear") -> float:
        least = (np.quantile(values[kind], 1 - _USUAL, method=method) for kind in kinds)
        return min((float(each) for each in least), default=0.0)

    best, sure = np.empty((2, len(evaluator.queries), evaluator.parts))
    for rows, logits in evaluator.route():
        best[rows] = np.exp(logits.max(axis=(2, 3)))
    likely = min(threshold, find_least(best, "lower"))
    cut = math.log(max(likely, _TINY))
    for rows, logits in evaluator.route():
        sure[rows] = np.where(logits >= cut, np.exp(logits), 0).sum(axis=3).mean(axis=2)
    return likely, min(find_least(sure), 1.0)
