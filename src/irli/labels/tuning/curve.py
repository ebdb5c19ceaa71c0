"""The curve from blended scores to log-odds: straight pieces, each steeper than nothing.

One logistic curve for all labels is right where most candidates are, and those are unlikely ones.
So the curve bends: its knots lie where labels are uncertain, and its slopes are fitted on held-out
rows by likelihood. Each slope is above 0, so the order of labels stays as it was.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Curve = tuple[tuple[float, float], ...]  # points: a score, and its log-odds; both ascend
STRAIGHT: Curve = ()  # scores are log-odds

_STEP = 0.5  # least distance of knots: their odds differ by a factor of 1.6
_ENOUGH = 25.0  # least sum of p (1 - p) between knots: log-odds are known to 1 / sqrt(25)
_LEAST_SLOPE = 0.02  # so that different scores stay different
_STIFF = 0.5  # slopes of neighbouring pieces differ by about 1, before anything is known
_WIDTH = 0.02  # scores that differ by less are taken together
_LIMIT = 40.0  # log-odds beyond this are certain


def bend(curve: Curve, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-odds of scores. The first and the last piece go on for ever.

    Examples
    --------
    >>> bend(((0.0, 0.0), (1.0, 2.0), (2.0, 2.5)), np.array([-1.0, 0.5, 1.5, 4.0]))
    array([-2.  ,  1.  ,  2.25,  3.5 ])
    >>> bend(STRAIGHT, np.array([0.5]))
    array([0.5])
    """
    if not curve:
        return scores
    x, y, slope = _list_pieces(curve)
    piece = x[1:-1].searchsorted(scores, side="right")
    with np.errstate(invalid="ignore"):
        odds: NDArray[np.float64] = y[piece] + (scores - x[piece]) * slope[piece]
    return odds


@functools.lru_cache(maxsize=16)  # it would take a tenth of the prediction of a single row
def _list_pieces(curve: Curve) -> tuple[NDArray[np.float64], ...]:
    """Return the scores and log-odds of the points, and the slopes between them."""
    x, y = np.array(curve).T
    return x, y, np.diff(y) / np.diff(x)


def fit_curve(scores: NDArray[np.float64], correct: NDArray[np.bool_]) -> Curve:
    """Return the curve of greatest likelihood for scores (n,) that are log-odds already, roughly.

    With little evidence it is straight.

    Examples
    --------
    >>> scores = np.linspace(-6, 6, 4000)
    >>> likely = 1 / (1 + np.exp(-np.minimum(scores, 0)))  # never more than one half
    >>> curve = fit_curve(scores, np.random.default_rng(0).random(4000) < likely)
    >>> bend(curve, np.array([-3.0, 5.0])).round()
    array([-3.,  0.])
    """
    x, count, right = _group(np.clip(scores, -_LIMIT, _LIMIT), correct)
    knots = _place_knots(x, count)
    return _fit_slopes(x, count, right, knots) if len(knots) else STRAIGHT


def _group(
    scores: NDArray[np.float64], correct: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return distinct scores, ascending, how many have them, and how many of these are correct."""
    place = np.floor(scores / _WIDTH).astype(np.int64)
    place -= place.min(initial=0)
    count, total, right = (
        np.bincount(place, weights=each).astype(np.float64) for each in (None, scores, correct)
    )
    there = count > 0
    return total[there] / count[there], count[there], right[there]


def _place_knots(x: NDArray[np.float64], count: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return knots with enough evidence between them, and beyond the first and the last.

    They are placed from the top down: users read the most probable labels.
    """
    likely = 1 / (1 + np.exp(-x))
    known = np.cumsum(count * likely * (1 - likely))
    knots: list[float] = []
    left, lowest = known[-1:].sum() - _ENOUGH, np.inf
    for place in range(len(x) - 1, -1, -1):
        if _ENOUGH <= known[place] <= left and x[place] <= lowest:
            knots.append(float(x[place]))
            left, lowest = known[place] - _ENOUGH, x[place] - _STEP
    return np.array(knots[::-1])


def _fit_slopes(
    x: NDArray[np.float64],
    count: NDArray[np.float64],
    right: NDArray[np.float64],
    knots: NDArray[np.float64],
) -> Curve:
    """Fit the slopes of the pieces between knots, and the log-odds of the first knot."""
    edges = np.concatenate([[-np.inf], knots, [np.inf]])
    ramps = np.stack(
        [
            np.minimum(x - knots[0], 0),
            *(np.clip(x - low, 0, high - low) for low, high in zip(knots, edges[2:], strict=True)),
        ],
        axis=1,
    )

    def loss(v: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds, steps = v[0] + ramps @ v[1:], np.diff(v[1:])
        cost = (count * np.logaddexp(0, odds) - right * odds).sum() + _STIFF * steps @ steps
        pull = count / (1 + np.exp(-np.clip(odds, -500, 500))) - right
        slopes = ramps.T @ pull
        slopes[1:] += 2 * _STIFF * steps
        slopes[:-1] -= 2 * _STIFF * steps
        return float(cost), np.concatenate([[pull.sum()], slopes])

    start = np.concatenate([[knots[0]], np.ones(ramps.shape[1])])
    bounds = [(None, None)] + [(_LEAST_SLOPE, None)] * ramps.shape[1]
    best = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    places = np.concatenate([[knots[0] - 1], knots, [knots[-1] + 1]])
    lengths = np.diff(places)
    odds = best[0] - best[1] + np.concatenate([[0], np.cumsum(best[1:] * lengths)])
    return tuple(zip(places.tolist(), odds.tolist(), strict=True))
