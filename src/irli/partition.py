"""Which bucket holds which item: assignments, loads, and the two ways to re-partition.

Both ways take the items' ranking of buckets as a function that is asked in blocks, so that the
affinities of all items to all buckets never exist at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096  # items that look for room at a time
_KEPT = 64  # best buckets kept of each f: the rest have next to no chance of being probed
_FEWER, _ROOM = 32, 160 << 20  # but down to so few where all of them would take more than 160 MB
_PLACE = 6  # bytes of a bucket and its chance


class Ranking(Protocol):
    """The affinity of items, seen as their best buckets."""

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best buckets, best first (n, count or fewer), and how decided each item is.

        Rows of fewer are padded with -1. The best of the buckets `among`, if given, are all
        there; of all buckets only those that are likely to be probed need to be.
        """
        ...


@dataclass(frozen=True)
class Partition:
    """The buckets of every item.

    Attributes
    ----------
    buckets : int
        B.
    assignment : int32 array of shape (N, S)
        The buckets of each item, -1 where it has fewer than S.

    Examples
    --------
    >>> partition = Partition(2, np.array([[0], [1], [0]], dtype=np.int32))
    >>> partition.loads()
    array([2, 1])
    >>> offsets, items = partition.inverted()
    >>> items[offsets[0]:offsets[1]]
    array([0, 2], dtype=int32)
    """

    buckets: int
    assignment: NDArray[np.int32]

    def loads(self) -> NDArray[np.int64]:
        """Count the items in each bucket."""
        held = self.assignment[self.assignment >= 0]
        return np.bincount(held, minlength=self.buckets)

    def inverted(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets (B + 1,) and the items (entries,) in bucket order."""
        flat = self.assignment.ravel()
        entries = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]
        offsets = np.concatenate([[0], np.cumsum(self.loads())])
        return offsets, (entries // self.assignment.shape[1]).astype(np.int32)

    def moved_from(self, other: Partition) -> float:
        """Return the share of items that are not in the same buckets as in `other`."""
        mine, theirs = np.sort(self.assignment, axis=1), np.sort(other.assignment, axis=1)
        return float((mine != theirs).any(axis=1).mean())


def capacity(entries: int, buckets: int, slack: float) -> int:
    """Return how many items a bucket may hold.

    Examples
    --------
    >>> capacity(entries=1000, buckets=64, slack=1.3)
    21
    """
    return math.ceil(slack * entries / buckets)


def least_loaded(
    rank: Ranking, items: int, buckets: int, choices: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Put each item into the least loaded of its best K buckets, in random order (section 3.2)."""
    loads = np.zeros(buckets, dtype=np.int64)
    chosen = np.empty(items, dtype=np.int32)
    best, _ = rank(np.arange(items), choices)
    _place_least_loaded(rng.permutation(items), best, loads, chosen)
    return chosen


def kept_buckets(askers: int, choices: int) -> int:
    """Return how many of the best buckets are kept of each f: as many as are chosen from, or more.

    Half of them take a few percent more scanning for the same recall on WordNet-MiniLM.

    Examples
    --------
    >>> kept_buckets(400_000, 32), kept_buckets(600_000, 32), kept_buckets(10_000_000, 32)
    (64, 46, 32)
    """
    return max(choices, min(_KEPT, max(_FEWER, _ROOM // (_PLACE * max(1, askers)))))


def bounded(
    rank: Ranking,
    items: int,
    limit: int,
    choices: int,
    loads: NDArray[np.int64],
    taken: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Put each item into the best of its buckets that holds fewer than `limit`.

    The most decided items choose first. Who finds all of its best `choices` full chooses after
    them, among the buckets that have room.

    Parameters
    ----------
    loads : int64 array of shape (B,)
        What the buckets hold already; counted up here.
    taken : int32 array of shape (N,), optional
        A bucket that each item must not choose (again): the one that already holds it.

    Returns
    -------
    int32 array of shape (N,)
        The bucket of each item; -1 if no other than `taken` had room.
    """
    if taken is None:
        taken = np.full(items, -1, dtype=np.int32)
    chosen = np.full(items, -1, dtype=np.int32)
    best, decided = rank(np.arange(items), choices)
    waiting = np.argsort(-decided, kind="stable")
    _place_bounded(waiting, waiting, best, limit, loads, taken, chosen)
    for block in _blocks(waiting[chosen[waiting] < 0]):
        asked = 0
        while len(block) != asked and (loads < limit).any():  # or nobody found a place any more
            asked = len(block)
            best, _ = rank(block, max(2, choices), np.flatnonzero(loads < limit))
            _place_bounded(block, np.arange(asked), best, limit, loads, taken, chosen)
            block = block[chosen[block] < 0]
    return chosen


def _blocks(items: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(items), _BLOCK):
        yield items[start : start + _BLOCK]


@numba.njit(nogil=True, cache=True)
def _place_least_loaded(order: Any, best: Any, loads: Any, chosen: Any) -> None:
    for item in order:
        lightest = best[item, 0]
        for bucket in best[item]:
            if bucket >= 0 and loads[bucket] < loads[lightest]:
                lightest = bucket
        loads[lightest] += 1
        chosen[item] = lightest


@numba.njit(nogil=True, cache=True)
def _place_bounded(
    order: Any, rows: Any, best: Any, limit: int, loads: Any, taken: Any, chosen: Any
) -> None:
    """Place items in this order; those of `best` are in these rows."""
    for n in range(len(order)):
        item, row = order[n], rows[n]
        for bucket in best[row]:
            if bucket >= 0 and bucket != taken[item] and loads[bucket] < limit:
                loads[bucket] += 1
                chosen[item] = bucket
                break
