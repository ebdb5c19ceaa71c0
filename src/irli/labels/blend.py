"""choose_weights: how much each source of scores counts, judged by the best labels of rows.

A likelihood is the usual thing to fit. But it is decided by true labels that no source puts near
the top, and these say little about the order of the best: such blends were worse than the ranker
alone. Only the ratios of the weights matter, and these are few. So a grid of them is tried on
held-out rows. Neighbours in the grid order nearly alike: the mean over them depends less on chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Sparse
from irli.labels.objective import DEPTHS, Objective

_RATIOS = np.array([0.0, *2.0 ** np.arange(-6, 7)])  # of the weight of a source to the first one's
_KEPT = 20  # candidates of a row by each source: the best labels are among these
_ROWS = 3000  # rows that are tried, at most


class Scored(NamedTuple):
    """Candidates of rows, in no order.

    Attributes
    ----------
    labels : int64 array of shape (n, C)
        Padded with -1.
    correct : bool array of shape (n, C)
        Whether the row carries the label.
    scores : float64 array of shape (n, C, S)
        By each of the S sources.
    """

    labels: NDArray[np.int64]
    correct: NDArray[np.bool_]
    scores: NDArray[np.float64]

    def keep_best(self) -> Scored:
        """Return the candidates that any source, or their sum, puts near the top."""
        there = self.labels >= 0
        if self.labels.shape[1] <= _KEPT:
            return self
        kept = np.zeros_like(there)
        orders = [*np.moveaxis(self.scores, -1, 0), self.scores.sum(axis=-1)]
        for order in orders:
            odds = np.where(there, order, -np.inf)
            best = np.argpartition(-odds, _KEPT, axis=1)[:, :_KEPT]
            np.put_along_axis(kept, best, True, axis=1)
        width = int((kept & there).sum(axis=1).max(initial=1))
        first = np.argsort(~(kept & there), axis=1, kind="stable")[:, :width]
        return Scored(
            np.where(
                np.take_along_axis(kept, first, axis=1),
                np.take_along_axis(self.labels, first, axis=1),
                -1,
            ),
            np.take_along_axis(self.correct & kept, first, axis=1),
            np.take_along_axis(self.scores, first[..., None], axis=1),
        )


def choose_weights(given: Scored, truth: Sparse, goal: Objective) -> NDArray[np.float64]:
    """Return the weight of each source (S,), that of the first one 1.

    Parameters
    ----------
    truth : CSR of shape (n, L)
        The labels of the rows.

    Examples
    --------
    The second source is right:

    >>> import scipy.sparse as sp
    >>> truth = sp.csr_array(np.eye(8, dtype="f4"))
    >>> noise = np.random.default_rng(0).random((8, 8))
    >>> scores = np.stack([noise, np.eye(8)], axis=-1)
    >>> given = Scored(np.tile(np.arange(8), (8, 1)), np.eye(8) > 0, scores)
    >>> bool(choose_weights(given, truth, Objective.of("precision", truth))[1] > 1)
    True
    """
    some = slice(_ROWS)
    best = Scored(given.labels[some], given.correct[some], given.scores[some]).keep_best()
    ideal = _sum_ideal(truth[some], goal.propensity)
    worth = np.where(best.correct, goal.propensity[np.maximum(best.labels, 0)], 0.0)
    there = best.labels >= 0
    shape = (len(_RATIOS),) * (best.scores.shape[2] - 1)
    plain, rare = np.zeros(shape), np.zeros(shape)
    for place in np.ndindex(shape):
        odds = np.where(there, best.scores @ np.array([1, *_RATIOS[list(place)]]), -np.inf)
        first = _find_first(odds)
        hits = np.take_along_axis(best.correct, first, axis=1).sum(axis=0).cumsum()
        gains = np.take_along_axis(worth, first, axis=1).sum(axis=0).cumsum()
        depths = [k for k in DEPTHS if k <= first.shape[1]]
        plain[place] = np.mean([hits[k - 1] / (k * len(odds)) for k in depths])
        rare[place] = np.mean([gains[k - 1] / ideal[k] for k in depths])
    chosen = goal.choose(_smooth(plain).ravel(), _smooth(rare).ravel())
    place = np.unravel_index(chosen, shape) if shape else ()
    return np.array([1, *_RATIOS[list(place)]])


def _find_first(odds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the places of the best candidates of each row (n, up to 5), best first."""
    count = min(max(DEPTHS), odds.shape[1])
    some = np.argpartition(-odds, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(odds, some, axis=1), axis=1, kind="stable")
    first: NDArray[np.int64] = np.take_along_axis(some, order, axis=1)
    return first


def _sum_ideal(truth: Sparse, worth: NDArray[np.float64]) -> dict[int, float]:
    """Return the most that labels of the rows can be worth within each depth, summed up."""
    row = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    order = np.lexsort((-worth[truth.indices], row))
    place = np.arange(len(order)) - truth.indptr[row]
    sorted_worth = worth[truth.indices][order]
    return {k: max(float(sorted_worth[place < k].sum()), 1e-300) for k in DEPTHS}


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each value and its neighbours along all axes, diagonal ones, too.

    Examples
    --------
    >>> _smooth(np.array([0.0, 3.0, 0.0, 0.0]))
    array([1., 1., 1., 0.])
    """
    for axis in range(values.ndim):
        last = values.shape[axis] - 1
        near = [np.clip(np.arange(last + 1) + step, 0, last) for step in (-1, 0, 1)]
        values = np.mean([np.take(values, places, axis=axis) for places in near], axis=0)
    return values
