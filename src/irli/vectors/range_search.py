"""Range search: find all items within a radius, by searches with a growing k."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from irli.errors import InvalidParameter
from irli.vectors.parameters import SearchArguments
from irli.vectors.results import RangeResult, SearchResult, join_ranges

Search = Callable[[NDArray[np.int64], int], tuple[NDArray[np.float32], NDArray[np.int64]]]

_FIRST = 16  # items searched first
_GROWTH = 4
_CELLS = 1 << 22  # numbers in the result of one search; more would take more memory


def find_within(
    search: Search, queries: int, radius: float, *, metric: str, items: int
) -> RangeResult:
    """Search for more and more items, until the last one found is beyond the radius.

    Parameters
    ----------
    search : function
        Takes the rows of some queries and k, and returns distances and ids of shape (rows, k).
    queries : int
        The number of queries.
    items : int
        The largest k.
    """
    parts: dict[int, SearchResult] = {}
    left, k = np.arange(queries), min(_FIRST, items)
    while len(left):
        more = []
        for rows in np.array_split(left, -(-len(left) * k // _CELLS)):
            distances, ids = search(rows, k)
            counts = _is_within(distances, radius, metric).sum(axis=1)
            for row, count, *line in zip(rows.tolist(), counts, distances, ids, strict=True):
                parts[row] = SearchResult(*(values[:count].copy() for values in line))
            more.append(rows[counts == k])
        left = np.concatenate(more) if k < items else left[:0]
        k = min(k * _GROWTH, items)
    return join_ranges([parts[row] for row in range(queries)], metric)


def rank_by_distance(given: SearchArguments) -> SearchArguments:
    """Return the arguments of a range search, whose results must be in order of distance."""
    if given.get("rank") not in (None, "distance"):
        raise InvalidParameter(
            "The 'rank' parameter of search_range must be 'distance': a radius is one. "
            f"Got {given['rank']!r} instead. Leave it out, or use search."
        )
    return given | {"rank": "distance"}


def _is_within(distances: NDArray[np.float32], radius: float, metric: str) -> NDArray[np.bool_]:
    within: NDArray[np.bool_] = distances >= radius if metric == "ip" else distances <= radius
    return within
