"""SearchResult and RangeResult: what searches return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.distance import MEANING, to_similarities
from irli.base.ids import TextIds, is_item

MakeResult = Callable[[NDArray[np.float32], NDArray[np.int64]], "SearchResult"]


class _Pair(NamedTuple):
    distances: NDArray[np.float32]
    ids: NDArray[Any]


class SearchResult(_Pair):
    """Distances and ids, nearest first, in the order in which FAISS returns them.

    It is a tuple: `distances, ids = index.search(queries)`.

    Attributes
    ----------
    distances : float32 array of shape (n, k), or (k,) for a single query
        Squared distances for l2, inner products for ip, 1 - cos for cosine.
    ids : int64 array of the same shape, or an object array of str if the ids are strings
        Padding has id -1, or None.
    payloads : list of lists of dict or None, or a list of them for a single query
        With ``with_payload=True``: the payload of each item, or None if it has none. Else None.
    metric : str
    """

    __slots__ = ()
    metric: str = "l2"
    payloads: list[Any] | None = None

    @property
    def counts(self) -> Any:
        """How many items were found for each query. The other columns are padding."""
        return is_item(self.ids).sum(axis=-1)

    @property
    def similarities(self) -> NDArray[np.float32]:
        """Inner products for ip, cosines for cosine, negative squared distances for l2.

        Larger is nearer, whatever the metric. Padding has -inf.
        """
        return to_similarities(self.distances, self.metric)

    def __repr__(self) -> str:
        return _describe("SearchResult", self)


# A class for each metric: an attribute of each result would slow down single queries.
class _IpResult(SearchResult):
    __slots__ = ()
    metric = "ip"


class _CosineResult(SearchResult):
    __slots__ = ()
    metric = "cosine"


class PayloadResult(SearchResult):
    """A result with payloads, which has room for attributes."""


RESULTS: dict[str, type[SearchResult]] = {
    kind.metric: kind for kind in (SearchResult, _IpResult, _CosineResult)
}


def choose_result(metric: str, names: TextIds | None) -> MakeResult:
    """Return the function that makes a result from distances and what kernels return as ids."""
    kind = RESULTS[metric]
    return kind if names is None else partial(_name_items, kind, names)


def _name_items(
    kind: type[SearchResult],
    names: TextIds,
    distances: NDArray[np.float32],
    rows: NDArray[np.int64],
) -> SearchResult:
    return kind(distances, names.names(rows))


class _Triple(NamedTuple):
    lims: NDArray[np.int64]
    distances: NDArray[np.float32]
    ids: NDArray[Any]


class RangeResult(_Triple):
    """All items that were found within a radius, in the order in which FAISS returns them.

    It is a tuple: `lims, distances, ids = index.search_range(queries, radius)`.

    Attributes
    ----------
    lims : int64 array of shape (n + 1,)
        The items of query i are those from `lims[i]` to `lims[i + 1]`, nearest first.
    distances : float32 array of shape (lims[n],)
    ids : int64 array of shape (lims[n],), or an object array of str if the ids are strings
    payloads : list of dict or None
        With ``with_payload=True``: the payload of each item, or None if it has none. Else None.
    metric : str

    Examples
    --------
    >>> distances = np.array([0.5, 0.25, 0.75], dtype=np.float32)
    >>> found = RangeResult(np.array([0, 1, 3]), distances, np.array([7, 9, 8]))
    >>> found.counts
    array([1, 2])
    >>> [part.ids.tolist() for part in found.split()]
    [[7], [9, 8]]
    """

    metric: str = "l2"
    payloads: list[Any] | None = None

    def __repr__(self) -> str:
        return _describe("RangeResult", self)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many items were found for each query."""
        return np.diff(self.lims)

    @property
    def similarities(self) -> NDArray[np.float32]:
        """As in `SearchResult`."""
        return to_similarities(self.distances, self.metric)

    def split(self) -> list[SearchResult]:
        """Return the results of the single queries."""
        kind, payloads = RESULTS[self.metric], self.payloads
        parts = []
        for start, stop in pairwise(self.lims.tolist()):
            part = kind(self.distances[start:stop], self.ids[start:stop])
            parts.append(part if payloads is None else add_payloads(part, payloads[start:stop]))
        return parts


def add_payloads(found: SearchResult, payloads: list[Any]) -> SearchResult:
    """Return a result with the payloads of its items."""
    result = PayloadResult(*found)
    vars(result).update(metric=found.metric, payloads=payloads)
    return result


def _describe(name: str, result: SearchResult | RangeResult) -> str:
    """Return the `repr` of a result, which says what its distances are."""
    values = result._asdict()
    if result.payloads is not None:
        values["payloads"] = result.payloads
    fields = ", ".join(f"{field}={value!r}" for field, value in values.items())
    return f"{name}({fields})  # {result.metric}: {MEANING[result.metric]}"


def join_ranges(parts: Sequence[SearchResult], metric: str) -> RangeResult:
    """Return the results of single queries as one."""
    lims = np.cumsum([0, *(len(part.ids) for part in parts)], dtype=np.int64)
    none = SearchResult(np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64))
    distances, ids = (np.concatenate(a) for a in zip(*(parts or [none]), strict=True))
    result = RangeResult(lims, distances, ids)
    result.metric = metric
    return result
