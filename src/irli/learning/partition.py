"""Which bucket holds which item: assignments, loads, and the two ways to re-partition.

Both ways take a ranking of the buckets as a function that works block by block, so that the
affinities of all items to all buckets never exist at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from irli.engine.placement import place_bounded, place_least_loaded

_BLOCK = 4096  # items that look for room at a time


class Ranking(Protocol):
    """The affinity of items, seen as their best buckets."""

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best buckets, best first (n, count), and how far the best one leads.

        Short rows are padded with -1. Of all buckets, only those that are likely to be probed need
        to be ranked. Of the buckets `among`, if given, the best are always ranked.
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
    >>> offsets, items = partition.invert()
    >>> items[offsets[0]:offsets[1]]
    array([0, 2], dtype=int32)
    """

    buckets: int
    assignment: NDArray[np.int32]

    def loads(self) -> NDArray[np.int64]:
        """Count the items in each bucket."""
        held = self.assignment[self.assignment >= 0]
        return np.bincount(held, minlength=self.buckets)

    def invert(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets (B + 1,) and the items (entries,) in bucket order."""
        flat = self.assignment.ravel()
        entries = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]
        offsets = np.concatenate([[0], np.cumsum(self.loads())])
        return offsets, (entries // self.assignment.shape[1]).astype(np.int32)

    def moved_share(self, other: Partition) -> float:
        """Return the share of items that are not in the same buckets as in `other`."""
        mine, theirs = np.sort(self.assignment, axis=1), np.sort(other.assignment, axis=1)
        return float((mine != theirs).any(axis=1).mean())


def bucket_capacity(entries: int, buckets: int, slack: float) -> int:
    """Return how many items a bucket may hold.

    Examples
    --------
    >>> bucket_capacity(entries=1000, buckets=64, slack=1.3)
    21
    """
    return math.ceil(slack * entries / buckets)


def assign_least_loaded(
    rank: Ranking, items: int, buckets: int, choices: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Put each item into the least loaded of its best K buckets, in random order (section 3.2)."""
    loads = np.zeros(buckets, dtype=np.int64)
    chosen = np.empty(items, dtype=np.int32)
    best, _ = rank(np.arange(items), choices)
    place_least_loaded(rng.permutation(items), best, loads, chosen)
    return chosen


def assign_bounded(
    rank: Ranking,
    items: int,
    limit: int,
    choices: int,
    loads: NDArray[np.int64],
    taken: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Put each item into the best of its buckets that holds fewer than `limit`.

    Items whose best bucket leads by most go first. An item whose `choices` are full goes after
    all others, to its next best bucket with room.

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
    best, lead = rank(np.arange(items), choices)
    waiting = np.argsort(-lead, kind="stable")
    place_bounded(waiting, waiting, best, limit, loads, taken, chosen)
    for block in _cut_blocks(waiting[chosen[waiting] < 0]):
        asked = 0
        while len(block) != asked and (loads < limit).any():  # until no item finds a place any more
            asked = len(block)
            best, _ = rank(block, max(2, choices), np.flatnonzero(loads < limit))
            place_bounded(block, np.arange(asked), best, limit, loads, taken, chosen)
            block = block[chosen[block] < 0]
    return chosen


def _cut_blocks(items: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(items), _BLOCK):
        yield items[start : start + _BLOCK]
