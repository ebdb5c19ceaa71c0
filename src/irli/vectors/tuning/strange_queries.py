"""What strange queries may do, for about four times the work of the others.

A query is strange if the routers do not know it: see `SearchPlan` in `native/layout.h`. It reads
more buckets, and codes choose its candidates. The more it reads, the fewer candidates it can
compare for the same work. What is best depends on how much centroids and codes tell about the data.
So it is measured, on strange queries that are made from the items.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import MOST_CANDIDATES
from irli.base.checks import LONGEST
from irli.engine.metric import prepare_vectors
from irli.engine.vector_layout import VectorLayout
from irli.vectors.build.held_out import hold_out
from irli.vectors.cost import count_centroid_work, count_exact_work, count_work
from irli.vectors.parameters import OperatingPoint, SearchParameters
from irli.vectors.searcher import WORK
from irli.vectors.tuning.measure import ROUTED, Trial, make_trials, require_finite

_STRANGE = 4.0  # times the work of the others for a strange query
_SHARES = tuple(4.0**-j for j in range(6))  # its candidates, of the entries that it reads
_ROUNDS = 3  # after each, the counted work tells how much more may be done
_SPARE = 0.98  # of the work, at which they aim
_QUERIES, _KINDS = 64, 3  # of each kind
_SAMPLE = 10_000  # items that tell the mean and the deviation
_FAR = 10.0  # deviations
_SEED = 86_028_157
_USUAL = 0.99  # of the others, a strange query is farther from its best bucket, or less sure, than
_TINY = 5e-324  # stands for a threshold of 0
_FEWEST = 20  # held-out queries that can tell what is far


def allow_strange(trials: list[Trial], parameters: SearchParameters) -> SearchParameters:
    """Set the work of each point, which queries are strange, and what they may do.

    The first trial counts most: for other k, what is best for it is tried, and the like.
    """
    first = trials[0]
    points, probed = {}, {}
    for trial in trials:
        alone = trial.choose_point(parameters)
        seen = trial.measure(alone)
        points[trial.k], probed[trial.k] = alone.points[0]._replace(work=seen.work), seen.probed
    rising = tuple(points[k] for k in sorted(points))
    parameters = dataclasses.replace(parameters, points=rising, far=_find_far(first))
    if parameters.far is None:
        return parameters
    parameters = _find_unsure(first, parameters)
    layout = first.searcher.layout
    points = {point.k: point for point in parameters.points}
    ks = [trial.k for trial in trials if not _can_compare_all(layout, points[trial.k])]
    queries = make_strange_queries(layout.vectors, first.metric)
    shares = _SHARES if layout.codes.blocks.size else (1.0,)
    for trial in make_trials(first.searcher, hold_out(queries), first.metric, ks, first.length):
        best = _find_best(trial, parameters, points[trial.k], probed[trial.k], shares)
        points[trial.k] = best.point
        if shares is _SHARES:
            place = _SHARES.index(best.share)
            shares = _SHARES[max(0, place - 1) : place + 2]
    return dataclasses.replace(parameters, points=tuple(points[k] for k in sorted(points)))


def make_strange_queries(vectors: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Make queries (n, d) unlike the items: between two of them, noise, noise far away, and so on.

    Examples
    --------
    >>> between, noise, far = make_strange_queries(np.eye(3, dtype=np.float32), "l2")[:3]
    >>> between.tolist(), bool(np.linalg.norm(far) > np.linalg.norm(noise))
    ([0.0, 0.5, 0.5], True)
    """
    rng = np.random.default_rng(_SEED)
    pairs = vectors[rng.integers(len(vectors), size=(_QUERIES, 2))].astype(np.float64)
    sample = vectors[:: max(1, len(vectors) // _SAMPLE)].astype(np.float64)
    require_finite(pairs)
    require_finite(sample)
    noise = sample.std(axis=0) * rng.normal(size=(_QUERIES, 2, vectors.shape[1]))
    kinds = np.empty((_QUERIES, _KINDS, vectors.shape[1]))
    kinds[:, 0] = pairs.mean(axis=1)
    kinds[:, 1:] = sample.mean(axis=0) + [[1.0], [_FAR]] * noise
    lengths = np.linalg.norm(kinds, axis=2, keepdims=True)
    kinds *= LONGEST / np.maximum(lengths, LONGEST)
    return prepare_vectors(kinds.reshape(-1, vectors.shape[1]).astype(np.float32), metric)


def _can_compare_all(layout: VectorLayout, point: OperatingPoint) -> bool:
    """Whether comparing a strange query with all items takes no more than it may."""
    return count_exact_work(layout, len(layout.vectors)) <= (_STRANGE - 1) * point.work


class _Tried(NamedTuple):
    """What strange queries did: the root mean square of the misses of each kind, the most work."""

    share: float
    point: OperatingPoint
    misses: float
    work: float


def _find_best(
    trial: Trial,
    parameters: SearchParameters,
    point: OperatingPoint,
    probed: float,
    shares: tuple[float, ...],
) -> _Tried:
    """Return the share of candidates with the fewest misses, or the middle one of equal ones."""
    tried = [_spend(trial, parameters, point, probed, share) for share in shares]
    least = min(each.misses for each in tried)
    good = [each for each in tried if each.misses == least]
    return good[len(good) // 2]


def _spend(
    trial: Trial,
    parameters: SearchParameters,
    point: OperatingPoint,
    probed: float,
    share: float,
) -> _Tried:
    """Return the point whose strange queries take all the work that they may, but no more."""
    layout, limit, times = trial.searcher.layout, _STRANGE * point.work, _STRANGE
    coded = parameters.score == "codes" and point.candidates is not None
    best = _Tried(share, point, 1.0, math.inf)
    for _ in range(_ROUNDS):
        wider = _split_work(layout, point, times * point.work, probed, coded, share)
        tried = _try(trial, parameters, share, wider)
        if best.work > limit or best.work < tried.work <= limit:
            best = tried
        if tried.work == 0.0:  # no query was strange
            break
        times = max(times + (_SPARE * limit - tried.work) / point.work, _STRANGE / 2)
    return best


def _try(trial: Trial, parameters: SearchParameters, share: float, point: OperatingPoint) -> _Tried:
    recall, counts, work = trial.measure_each(dataclasses.replace(parameters, points=(point,)))
    strange = counts[:, WORK.index("strange")] > 0
    misses, most = [], 0.0
    for kind in range(_KINDS):
        mine = strange[kind::_KINDS]
        misses.append(1 - recall[kind::_KINDS].mean())
        most = max(most, work[kind::_KINDS][mine].mean() if mine.any() else 0.0)
    return _Tried(share, point, float(np.sqrt(np.mean(np.square(misses)))), float(most))


def _split_work(
    layout: VectorLayout,
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
    codes = layout.codes.blocks.size > 0
    nothing, load = count_work(layout, 0, 0, 0, codes), len(layout.items) / layout.bias.size
    table = nothing - count_work(layout, 0, 0, 0, coded)
    left = max(0.0, work - point.work - table - count_centroid_work(layout))
    bucket = count_work(layout, 1, load, 0 if codes else load, codes) - nothing
    picked = 0
    if codes:
        each = count_work(layout, 0, 0, 1, codes) - nothing
        picked = int(share * load * left / (bucket + share * load * each))
        picked = min(max(picked, point.k), MOST_CANDIDATES)
        left -= picked * each
    wide = int(probed + max(0.0, left) / bucket)
    return point._replace(wide=max(1, min(wide, layout.bias.size - 1)), picked=picked)


def _find_far(trial: Trial) -> float | None:
    """Return how far its nearest item is if a query is strange, sure or not: see `Centroids`."""
    centroids = trial.searcher.layout.centroids
    if not centroids.centre.size:
        return None
    best = np.concatenate([logits[:, 0].argmax(axis=1) for logits in trial.route()])
    times = (trial.nearest - centroids.base[best]) / centroids.reach[best]
    shares = []
    for kind in (trial.rows >= 0, trial.rows < 0):
        if (kind & np.isfinite(times)).sum() >= _FEWEST:
            shares.append(float(np.quantile(times[kind & np.isfinite(times)], _USUAL)))
    return max(shares, default=None)


def _find_unsure(trial: Trial, parameters: SearchParameters) -> SearchParameters:
    """Set the probability of all probed buckets, for each point, below which a query is strange."""
    cuts = np.log([max(point.threshold, _TINY) for point in parameters.points])
    sure = np.empty((len(trial.queries), len(cuts)))
    for start, logits in zip(range(0, len(sure), ROUTED), trial.route(), strict=True):
        part = slice(start, start + ROUTED)
        for j, cut in enumerate(cuts):
            probed = (logits >= cut) | (logits >= logits.max(axis=2, keepdims=True))
            sure[part, j] = np.where(probed, np.exp(logits), 0).sum(axis=2).mean(axis=1)
    kinds = [kind for kind in (trial.rows >= 0, trial.rows < 0) if kind.sum() >= _FEWEST]
    if not kinds:
        return parameters
    unsure = np.min([np.quantile(sure[kind], 1 - _USUAL, axis=0) for kind in kinds], axis=0)
    points = zip(parameters.points, np.minimum(unsure, 1.0), strict=True)
    return dataclasses.replace(
        parameters, points=tuple(point._replace(unsure=float(least)) for point, least in points)
    )
