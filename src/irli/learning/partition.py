"""`Partition`: the buckets of every item and their loads, and the two ways to re-partition.

Both ways take a function that ranks the buckets of a block of items. So the affinities of all items
to all buckets are never in memory at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from irli._native import place_bounded, place_least_loaded

_BLOCK = 4096  # items whose choices are full that are placed at a time


class Ranking(Protocol):
    """A function that ranks the buckets of items by affinity."""

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best buckets (n, count), best first, and the lead of the first (n,).

        Short rows are padded with -1. Buckets that are hardly ever probed may be left out. If
        `among` is given, only these buckets are ranked, and none of the best is left out.
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
        """Return the inverted lists: offsets (B + 1,) and items (entries,), bucket by bucket."""
        flat = self.assignment.ravel()
        entries = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]
        offsets = np.concatenate([[0], np.cumsum(self.loads())])
        return offsets, (entries // self.assignment.shape[1]).astype(np.int32)

    def moved_share(self, other: Partition) -> float:
        """Return the share of items whose buckets differ from those in `other`."""
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
    """Put the items, in random order, into the least loaded of their K best (section 3.2)."""
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
    """Put each item into its best bucket that holds fewer than `limit` items.

    Items whose best bucket leads by most go first. An item whose `choices` are full waits until all
    others are placed, and then takes its next best bucket with room.

    Parameters
    ----------
    loads : int64 array of shape (B,)
        The current loads of the buckets. They are updated.
    taken : int32 array of shape (N,), optional
        The bucket that already holds each item. The item must not go there again.

    Returns
    -------
    int32 array of shape (N,)
        The bucket of each item, or -1 if no bucket but `taken` had room.
    """
    if taken is None:
        taken = np.full(items, -1, dtype=np.int32)
    chosen = np.full(items, -1, dtype=np.int32)
    best, lead = rank(np.arange(items), choices)
    waiting = np.argsort(-lead, kind="stable")
    place_bounded(waiting, waiting, best, limit, loads, taken, chosen)
    for block in _cut_blocks(waiting[chosen[waiting] < 0]):
        tried = 0
        while len(block) != tried and (loads < limit).any():  # until no more items can be placed
            tried = len(block)
            best, _ = rank(block, max(2, choices), np.flatnonzero(loads < limit))
            place_bounded(block, np.arange(tried), best, limit, loads, taken, chosen)
            block = block[chosen[block] < 0]
    return chosen


def _cut_blocks(items: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(items), _BLOCK):
        yield items[start : start + _BLOCK]
