"""choose_weights: how much each source of scores counts, judged by the best labels of rows.

A likelihood is the usual thing to fit. But it is decided by true labels that no source puts near
the top, and these say little about the order of the best: such blends were worse than the ranker
alone. Only the ratios of the weights matter, and these are few. So a grid of them is tried on
held-out rows. The best of it is best by chance: many others are as good. Each counts by how likely
it is the best one, and the mean of their logarithms is taken. If that is worse than a source alone
by more than a standard error, this one decides alone.

What is compared is precision, or the propensity-scored one if the objective is "propensity". Where
it is balanced, precision comes first, and the propensity-scored one decides between the blends that
are within a standard error of the best. A few other rows would put a blend on the other side of
that limit, and move all labels. So the rows are drawn again many times, and the mean over all draws
is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Sparse
from irli.labels.tuning.objective import DEPTHS, Objective

_POWERS = np.arange(-5, 3)
# Of the weight of a source to that of the first one. The smallest stands for none.
_RATIOS = np.array([0.0, *2.0 ** _POWERS[1:]])
_ALONE = 2.0**-10  # the ratio of the others to a source that decides alone
_KEPT = 20  # candidates of a row by each source: the best labels are among these
_ROWS = 3000  # rows that are tried, at most
_DRAWS = 50  # of the rows, with replacement


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
    """Return the weight of each source (S,).

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
    >>> first, second = choose_weights(given, truth, Objective.of("precision", truth))
    >>> bool(second > first)
    True
    """
    some = slice(_ROWS)
    best = Scored(given.labels[some], given.correct[some], given.scores[some]).keep_best()
    count = best.scores.shape[2]
    places = np.array(list(np.ndindex((len(_RATIOS),) * (count - 1))), dtype=np.int64)
    grid = np.concatenate([np.ones((len(places), 1)), _RATIOS[places]], axis=1)
    parts = np.where(np.eye(count) > 0, 1, _ALONE)
    worths = _list_worths(goal, truth[some])
    likely = _find_likely(_measure(best, worths, grid))
    blend = np.array([1, *2.0 ** (likely @ _POWERS[places] / likely.sum())])
    tried = np.concatenate([blend[None], parts])
    (gains,) = _measure(best, worths[:1], tried)
    chosen: NDArray[np.float64] = tried[0 if _doubt(gains)[0] <= 1 else gains.mean(axis=1).argmax()]
    return chosen


class _Worth(NamedTuple):
    """What finding a label is worth (L,), and the most that a row can gain within each depth."""

    of_label: NDArray[np.float64]
    most: dict[int, float]


def _list_worths(goal: Objective, truth: Sparse) -> list[_Worth]:
    """Return by what blends are compared."""
    plain = _Worth(np.ones(truth.shape[1]), {k: float(k) for k in DEPTHS})
    if goal.name == "precision":
        return [plain]
    scored = _Worth(goal.propensity, _find_most(truth, goal.propensity))
    return [scored] if goal.name == "propensity" else [plain, scored]


def _measure(
    best: Scored, worths: list[_Worth], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what blends (g, S) gain in each row by each of m measures (m, g, n)."""
    labels, there = np.maximum(best.labels, 0), best.labels >= 0
    gains = [np.where(best.correct, worth.of_label[labels], 0.0) for worth in worths]
    found = np.empty((len(worths), len(weights), len(labels)))
    for place, each in enumerate(weights):
        first = _find_first(np.where(there, best.scores @ each, -np.inf))
        depths = [k for k in DEPTHS if k <= first.shape[1]]
        for values, gain, worth in zip(found, gains, worths, strict=True):
            sums = np.take_along_axis(gain, first, axis=1).cumsum(axis=1)
            values[place] = np.mean([sums[:, k - 1] / worth.most[k] for k in depths], axis=0)
    return found


def _find_likely(measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much each blend (g,) counts: by how likely it is the best one.

    Of several measures (m, g, n), the last one tells. Blends that are more than a standard error
    worse by one before it count nothing. That is so in each draw of the rows.

    Examples
    --------
    The second measure prefers the last blend, which is much worse by the first one.

    >>> plain = np.array([[1.0, 1.0, 0.9, 1.0], [1.0, 0.9, 1.0, 1.0], [0.0, 0.1, 0.0, 0.1]])
    >>> scored = np.array([[0.1, 0.1, 0.2, 0.1], [0.8, 0.9, 0.7, 0.8], [1.0, 1.0, 1.0, 1.0]])
    >>> int(_find_likely(np.stack([plain, scored])).argmax())
    1
    """
    n = measured.shape[2]
    drawn = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), size=_DRAWS) / n
    left = np.ones((_DRAWS, measured.shape[1]), dtype=np.bool_)
    for values in measured:
        means, errors = np.where(left, drawn @ values.T, -np.inf), _list_errors(values)
        best = means.argmax(axis=1)
        doubt = (means.max(axis=1, keepdims=True) - means) / errors[best]
        left = doubt <= 1
    likely = np.exp(-(doubt**2) / 2)
    mean: NDArray[np.float64] = (likely / likely.sum(axis=1, keepdims=True)).mean(axis=0)
    return mean


def _list_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the difference between each two ways (g, g).

    `values` are those of the same rows (g, n).
    """
    cov = np.atleast_2d(np.cov(values, bias=True)) / values.shape[1]
    own = np.diag(cov)
    errors: NDArray[np.float64] = np.sqrt(np.maximum(own[:, None] + own - 2 * cov, 1e-24))
    return errors


def _doubt(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how many standard errors each way (g,) is worse than the best.

    `values` are those of the same rows (g, n).
    """
    worse = values[np.argmax(values.mean(axis=1))] - values
    error = worse.std(axis=1) / max(values.shape[1], 1) ** 0.5
    doubt: NDArray[np.float64] = worse.mean(axis=1) / np.maximum(error, 1e-12)
    return doubt


def _find_first(odds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the places of the best candidates of each row (n, up to 5), best first."""
    count = min(max(DEPTHS), odds.shape[1])
    some = np.argpartition(-odds, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(odds, some, axis=1), axis=1, kind="stable")
    first: NDArray[np.int64] = np.take_along_axis(some, order, axis=1)
    return first


def _find_most(truth: Sparse, worth: NDArray[np.float64]) -> dict[int, float]:
    """Return the most that the labels of a row can be worth within each depth, on average."""
    row = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    each = worth[truth.indices]
    each = each[np.lexsort((-each, row))]
    place = np.arange(len(each)) - truth.indptr[row]
    count = max(truth.shape[0], 1)
    return {k: float(each[place < k].sum()) / count or 1.0 for k in DEPTHS}
