"""Growth: what is added to a fit, on the writer's side.

An added item is routed by its own vector and goes into the best buckets with room, as in the
paper's K-choices, so that buckets stay balanced. Its entries lie in a *run* beside those of the
fit. A run has the same form as the entries of a fit, and a search reads all runs of a bucket. So an
index that has grown answers as if its entries were packed.

Runs are immutable. A new one takes in the one before it, if that is not much larger: so there are
few of them, and each item is packed again only a few times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import place_bounded
from irli.base.growing import Chunks, Growing
from irli.engine.pq import Codebook, pack_blocks
from irli.engine.prefilter import round_more
from irli.engine.top_k import top_k
from irli.engine.vector_layout import Added, Run
from irli.learning.partition import Partition
from irli.vectors.searcher import Searcher

_RATIO = 8  # a run takes in the one before if that is not so many times as large
_ANY = 1 << 40  # items: no bound
_TRIES = 8  # buckets that an item tries
_SLACK = 1.3  # a bucket that holds so many times the mean load gets no more items, as a rule
_MOST = 1.4  # the same, for the best bucket of an item
_ROUTED = 1024  # items routed at a time


class _Packed(NamedTuple):
    """A run, and the added items that it holds: from number `start` to `stop`."""

    start: int
    stop: int
    run: Run


class Growth:
    """The items that were added to a fit: their places, codes and 8-bit copies.

    Parameters
    ----------
    searcher : Searcher
        Of the fit.
    codebook : Codebook or None
        That of the fit, if it has codes.
    copies : int
        Buckets that an item goes to in each repetition.
    bounded : bool
        Whether buckets have a bound, as they had when routers learned.

    Attributes
    ----------
    loads : int64 array of shape (R, B)
        How many items each bucket holds, without those that are removed.
    """

    def __init__(
        self, searcher: Searcher, codebook: Codebook | None, copies: int, bounded: bool
    ) -> None:
        layout = searcher.layout
        self._searcher, self._codebook = searcher, codebook
        self._l2 = bool(layout.metric == 0)
        self._bounded = bounded
        repetitions, buckets = layout.bias.shape
        self._copies = min(copies, buckets)
        self.loads: NDArray[np.int64] = np.diff(layout.offsets, axis=1)
        self._places = Growing((repetitions, self._copies), np.int32)
        self._codes = Growing((len(layout.codes.codewords),), np.uint8)
        self._int8 = Chunks((layout.vectors.shape[1],), np.int8)
        self._lengths = Chunks((), np.float32)
        self._packed: list[_Packed] = []
        self._homes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def place(self, vectors: NDArray[np.float32]) -> NDArray[np.int32]:
        """Choose the buckets (n, R, c) of prepared vectors (n, d), -1 where fewer have room.

        It does not add them: the same vectors may be refused by the disk.
        """
        repetitions, buckets = self.loads.shape
        chosen = np.full((len(vectors), repetitions, self._copies), -1, dtype=np.int32)
        loads = self.loads.copy()
        entries = loads.sum(axis=1) + len(vectors) * self._copies
        for start in range(0, len(vectors), _ROUTED):
            part = slice(start, start + _ROUTED)
            logits = self._searcher.route(vectors[part])
            for r in range(repetitions):
                _choose(
                    np.ascontiguousarray(logits[:, r]),
                    entries[r] / buckets,
                    self._bounded,
                    loads[r],
                    chosen[part, r],
                )
        return chosen

    def append(
        self,
        vectors: NDArray[np.float32],
        places: NDArray[np.int32],
        removed: NDArray[np.bool_] | None,
    ) -> None:
        """Add vectors (n, d), which go to places (n, R, c). `removed` (m,) are those of before."""
        if self._codebook is not None:
            self._codes.append(self._codebook.encode(vectors))
        else:
            self._codes.append(np.empty((len(vectors), 0), dtype=np.uint8))
        int8 = self._searcher.layout.int8
        if len(int8.bytes):
            rounded, lengths = round_more(vectors, int8, self._l2, seed=len(self))
            self._int8.append(rounded)
            self._lengths.append(lengths)
        self._places.append(places)
        self._count(places, +1)
        start = len(self) - len(vectors)
        while self._packed and self._packed[-1].stop - self._packed[-1].start < _RATIO * (
            len(self) - start
        ):
            start = self._packed.pop().start
        self._packed.append(_Packed(start, len(self), self._pack(start, len(self), removed)))

    def skip(self, count: int) -> None:
        """Add rows that are in no bucket, and are never found."""
        dim = self._searcher.layout.vectors.shape[1]
        self._codes.append(np.zeros((count, len(self._searcher.layout.codes.codewords)), np.uint8))
        if len(self._searcher.layout.int8.bytes):
            self._int8.append(np.zeros((count, dim), dtype=np.int8))
            self._lengths.append(np.zeros(count, dtype=np.float32))
        self._places.append(np.full((count, *self._places.array.shape[1:]), -1, dtype=np.int32))

    def remove(self, items: NDArray[np.int64]) -> None:
        """Count items that are removed out of their buckets. Searches leave them out by a mask."""
        fitted = self._searcher.items
        self._count(self._places.array[items[items >= fitted] - fitted], -1)
        old = items[items < fitted]
        if len(old):
            starts, buckets = self._find_homes()
            held = np.concatenate([buckets[starts[item] : starts[item + 1]] for item in old])
            np.subtract.at(self.loads.reshape(-1), held, 1)

    def show(self, vectors: list[NDArray[np.float32]]) -> Added | None:
        """Return all that was added as a search sees it, with the chunks of vectors."""
        if len(self) == 0:
            return None
        return Added(
            self._searcher.items + len(self),
            [packed.run for packed in self._packed],
            list(vectors),
            list(self._int8.chunks),
            list(self._lengths.chunks),
        )

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The codes of all added items (n, M)."""
        return self._codes.array

    @property
    def places(self) -> NDArray[np.int32]:
        """The buckets of all added items (n, R, c), padded with -1."""
        return self._places.array

    def _pack(self, start: int, stop: int, removed: NDArray[np.bool_] | None) -> Run:
        """Return a run of added items, without those that are removed."""
        repetitions, buckets = self.loads.shape
        fitted = self._searcher.items
        places = self._places.array[start:stop].copy()
        if removed is not None:
            gone = removed[fitted + start : fitted + stop]
            places[: len(gone)][gone] = -1
        offsets = np.empty((repetitions, buckets + 1), dtype=np.int64)
        lists, before = [], 0
        for r in range(repetitions):
            offsets[r], items = Partition(buckets, places[:, r]).invert()
            offsets[r] += before
            before += len(items)
            lists.append(items)
        items = np.concatenate(lists)
        codes = self._codes.array[start:stop]
        if codes.shape[1]:
            blocks, block_offsets = pack_blocks(codes, offsets, items)
        else:
            blocks = np.empty((0, 0, 1), dtype=np.uint8)
            block_offsets = np.empty((0, 0), dtype=np.int64)
        return Run(offsets, items + np.int32(fitted + start), block_offsets, blocks)

    def _count(self, places: NDArray[np.int32], more: int) -> None:
        for r in range(len(self.loads)):
            held = places[:, r][places[:, r] >= 0]
            self.loads[r] += more * np.bincount(held, minlength=self.loads.shape[1])

    def _find_homes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the buckets of each item of the fit start, and the buckets: r B + bucket."""
        if self._homes is None:
            layout = self._searcher.layout
            loads = np.diff(layout.offsets, axis=1).ravel()
            bucket = np.repeat(np.arange(loads.size), loads)
            order = np.argsort(layout.items, kind="stable")
            counts = np.bincount(layout.items, minlength=self._searcher.items)
            self._homes = np.concatenate([[0], counts.cumsum()]), bucket[order]
        return self._homes


def limit_loads(mean: float) -> tuple[int, int]:
    """Return how many items a bucket takes in whose best one it is, and how many of others."""
    least = int(-(-mean // 1))  # then some bucket always has room
    return max(least, int(_MOST * mean)), max(least, int(_SLACK * mean))


def rank_best(logits: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the buckets that items try (n, t), for their log-probabilities (n, B)."""
    return top_k(logits, min(logits.shape[1], _TRIES), 1)[1].astype(np.int32)


def _choose(
    logits: NDArray[np.float32],
    mean: float,
    bounded: bool,
    loads: NDArray[np.int64],
    chosen: NDArray[np.int32],
) -> None:
    """Give each row (n, B) its best buckets with room, as many as `chosen` (n, c) has columns.

    The best one may hold more than others: there, a search for the item itself looks first.
    """
    count = len(logits)
    most, limit = limit_loads(mean) if bounded else (_ANY, _ANY)
    best = rank_best(logits)
    rows, taken = np.arange(count), np.full(count, -1, dtype=np.int32)
    for column in range(chosen.shape[1]):
        placed = np.full(count, -1, dtype=np.int32)
        if column == 0:
            first = np.ascontiguousarray(best[:, :1])
            place_bounded(rows, rows, first, most, loads, taken, placed)
        left = np.flatnonzero(placed < 0)
        place_bounded(left, left, best, limit, loads, taken, placed)
        if column == 0:
            for row in np.flatnonzero(placed < 0):  # some bucket has room: the mean counts them
                ranked = np.argsort(-logits[row], kind="stable")
                placed[row] = ranked[loads[ranked] < limit][0]
                loads[placed[row]] += 1
        chosen[:, column] = taken = placed
