"""Answers of shards, put together as if there were one index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irli.vectors.index import SearchResult
from irli.vectors.searcher import Explanation


def order_answers(parts: Sequence[SearchResult], k: int, metric: str) -> NDArray[np.int64]:
    """Return the places of the k best among all parts side by side; ties go to earlier items.

    Examples
    --------
    >>> one = SearchResult(np.array([[1.0, 4.0]]), np.array([[7, 5]]))
    >>> two = SearchResult(np.array([[1.0, np.inf]]), np.array([[9, -1]]))
    >>> order_answers([one, two], 3, "l2")
    array([[0, 2, 1]])
    """
    distances, ids = _concatenate(parts)
    far = -distances if metric == "ip" else distances
    # Shards hold their items in order, and their answers are in order: a stable sort keeps it.
    return np.lexsort((far, ids < 0), axis=1)[:, :k]


def merge(parts: Sequence[SearchResult], k: int, metric: str) -> SearchResult:
    """Return the k best answers of all parts: nearest first, padding last."""
    if len(parts) == 1:
        return parts[0]
    distances, ids = _concatenate(parts)
    place = order_answers(parts, k, metric)
    return SearchResult(
        np.take_along_axis(distances, place, axis=1), np.take_along_axis(ids, place, axis=1)
    )


def merge_explanations(
    parts: Sequence[tuple[SearchResult, Explanation]], k: int, metric: str
) -> Explanation:
    """Return what a search does in all shards: work is summed, seconds are of the slowest."""
    found, told = zip(*parts, strict=True)
    place = order_answers(found, k, metric)
    votes = np.concatenate([part.votes for part in told], axis=1)
    return Explanation(
        ids=merge(found, k, metric).ids,
        votes=np.take_along_axis(votes, place, axis=1),
        probed=sum(part.probed for part in told),
        scanned=sum(part.scanned for part in told),
        candidates=sum(part.candidates for part in told),
        router_multiplications=sum(part.router_multiplications for part in told),
        seconds={
            stage: np.max([part.seconds[stage] for part in told], axis=0)
            for stage in told[0].seconds
        },
    )


def _concatenate(
    parts: Sequence[SearchResult],
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    return (
        np.concatenate([part.distances for part in parts], axis=1),
        np.concatenate([part.ids for part in parts], axis=1),
    )
