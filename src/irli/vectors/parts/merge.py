"""Merge the search results and the explanations of parts, as if there were one index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irli.vectors.front import Answer
from irli.vectors.results import RangeResult
from irli.vectors.searcher import Explanation


def order_answers(parts: Sequence[Answer], k: int, metric: str) -> NDArray[np.int64]:
    """Return the columns of the k best results in all parts side by side. Ties go to earlier items.

    Examples
    --------
    >>> one = np.array([[1.0, 4.0]]), np.array([[7, 5]])
    >>> two = np.array([[1.0, np.inf]]), np.array([[9, -1]])
    >>> order_answers([one, two], 3, "l2")
    array([[0, 2, 1]])
    """
    distances, ids = _concatenate(parts)
    key = -distances if metric == "ip" else distances
    # Parts, and the results within each, are in the order of the items. A stable sort keeps it.
    return np.lexsort((key, ids < 0), axis=1)[:, :k]


def merge(parts: Sequence[Answer], k: int, metric: str) -> Answer:
    """Return the k best results of all parts, nearest first, padding last."""
    if len(parts) == 1:
        return parts[0]
    distances, ids = _concatenate(parts)
    column = order_answers(parts, k, metric)
    return np.take_along_axis(distances, column, axis=1), np.take_along_axis(ids, column, axis=1)


def merge_ranges(parts: Sequence[RangeResult], metric: str) -> RangeResult:
    """Return the results of all parts within a radius, nearest first.

    Examples
    --------
    >>> one = RangeResult(np.array([0, 1, 2]), np.array([3.0, 4.0]), np.array([7, 8]))
    >>> two = RangeResult(np.array([0, 2, 2]), np.array([1.0, 3.0]), np.array([5, 6]))
    >>> merge_ranges([one, two], "l2").ids
    array([5, 7, 6, 8])
    """
    query = np.concatenate([np.repeat(np.arange(len(p.counts)), p.counts) for p in parts])
    distances = np.concatenate([part.distances for part in parts])
    ids = np.concatenate([part.ids for part in parts])
    order = np.lexsort((-distances if metric == "ip" else distances, query))
    lims = np.sum([part.lims for part in parts], axis=0)
    return RangeResult(lims, distances[order], ids[order])


def merge_explanations(
    found: Sequence[Answer], explanations: Sequence[Explanation], k: int, metric: str
) -> Explanation:
    """Return one explanation: the summed work of all parts, and the seconds of the slowest."""
    column = order_answers(found, k, metric)
    votes = np.concatenate([part.votes for part in explanations], axis=1)
    return Explanation(
        ids=merge(found, k, metric)[1],
        votes=np.take_along_axis(votes, column, axis=1),
        probed=np.sum([part.probed for part in explanations], axis=0),
        scanned=np.sum([part.scanned for part in explanations], axis=0),
        candidates=np.sum([part.candidates for part in explanations], axis=0),
        exact=np.all([part.exact for part in explanations], axis=0),
        widened=np.max([part.widened for part in explanations], axis=0),
        strange=np.any([part.strange for part in explanations], axis=0),
        router_multiplications=sum(part.router_multiplications for part in explanations),
        seconds={
            stage: np.max([part.seconds[stage] for part in explanations], axis=0)
            for stage in explanations[0].seconds
        },
    )


def _concatenate(parts: Sequence[Answer]) -> Answer:
    distances, ids = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    return distances, ids
