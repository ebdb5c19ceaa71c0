"""Exact nearest neighbours by exhaustive search, for ground truth and training relevance."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli import _native
from irli.base.checks import check_int
from irli.base.progress import Progress, track
from irli.base.threads import limit_blas, run_all, thread_count

# The size of a tile. Its scores stay in the cache between the product and the selection.
_QUERIES, _ITEMS = 512, 2048
_SAMPLE, _NEAREST = 256, 10  # queries and their neighbours that tell whether float32 will do
_ERROR = 0.01  # of a squared distance; larger errors would mix up neighbours
# Dimensions and share of the items from which on it pays to search all items, each pair once.
_LONG, _MOST = 256, 0.6


def exact_neighbors(
    queries: NDArray[np.float32],
    base: NDArray[np.float32],
    k: int,
    metric: str = "l2",
    *,
    rows: NDArray[np.int64] | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    progress: Progress = False,
) -> NDArray[Any]:
    """Return the k nearest rows of `base` for each query, nearest first.

    Parameters
    ----------
    queries : float32 array of shape (n, d)
    base : float32 array of shape (N, d)
    metric : {"l2", "ip", "cosine"}
        For "cosine", both queries and base must be normalized.
    rows : int64 array of shape (n,), optional
        The row of `base` that is the query itself, or -1. It is left out.
    out : int array of shape (n, k), optional
        Where to write the result, such as a mapped file.
    threads : int, optional
        How many blocks of queries run at the same time.

    Returns
    -------
    int64 array of shape (n, k), or `out`
        Rows of `base`, padded with -1 if there are fewer than k.

    Examples
    --------
    >>> base = np.array([[0.0], [1.0], [3.0]], dtype=np.float32)
    >>> exact_neighbors(base, base, k=1, rows=np.arange(3))
    array([[1],
           [0],
           [1]])
    """
    shape = len(queries), check_int("k", k, at_least=1)
    found = np.empty(shape, dtype=np.int64) if out is None else out
    if rows is None:
        rows = np.full(len(queries), -1, dtype=np.int64)
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    threads = thread_count(threads)
    with limit_blas():  # each thread has its own block
        tiles = _Tiles(base, metric == "l2", np.float32)
        if metric == "l2" and not is_precise(queries, base, rows):
            tiles = _Tiles(base, True, np.float64)
        elif base.shape[1] >= _LONG and len(rows) > _MOST * len(base) and (rows >= 0).all():
            return _search_pairs(tiles, k, threads, progress)[rows]
        parts = [slice(start, start + _QUERIES) for start in range(0, len(queries), _QUERIES)]
        for first in track(range(0, len(parts), threads), progress, "exact neighbours"):
            jobs = [
                partial(_fill, tiles, queries[part], rows[part], found[part])
                for part in parts[first : first + threads]
            ]
            run_all(jobs, threads)
    return found


def _fill(
    tiles: _Tiles,
    queries: NDArray[np.float32],
    skip: NDArray[np.int64],
    found: NDArray[Any],
) -> None:
    """Write the nearest rows for a block of queries."""
    near = np.full(found.shape, -1, dtype=np.int64)
    tiles.search(queries, skip, near)
    found[:] = near


class _Tiles:
    """The base, one tile at a time, to multiply with queries.

    The largest q x - |x|^2 / 2 is the smallest |q - x|^2. This difference of large numbers loses
    digits, so for l2 the mean of the base is the origin.
    """

    def __init__(self, base: NDArray[np.float32], l2: bool, dtype: type) -> None:
        self.base, self.dtype, self.l2 = base, dtype, l2 and len(base) > 0
        self.centre = _find_centre(base) if self.l2 else np.zeros(1)
        self.offset: NDArray[Any] = np.zeros(len(base), dtype=dtype)
        for low in range(0, len(base) if self.l2 else 0, _ITEMS):
            part = self.move(base[low : low + _ITEMS])
            self.offset[low : low + _ITEMS] = np.einsum("ij,ij->i", part, part) / -2

    def move(self, vectors: NDArray[np.float32]) -> NDArray[Any]:
        """Return the vectors as they are multiplied: around the mean for l2."""
        return (vectors - self.centre).astype(self.dtype, copy=False) if self.l2 else vectors

    def search(
        self,
        queries: NDArray[np.float32],
        skip: NDArray[np.int64],
        found: NDArray[np.int64],
    ) -> None:
        """Fill `found` with the nearest rows for a block of queries."""
        block, value = self.move(queries), np.full(found.shape, -np.inf, dtype=np.float32)
        # In float64, |q|^2 / 2 is added. So the scores of near items are small numbers, which
        # float32 can tell apart.
        half: Any = 0.0
        if self.dtype is np.float64:
            half = np.einsum("ij,ij->i", block, block)[:, None] / 2
        buffer: NDArray[Any] = np.empty(len(block) * min(_ITEMS, len(self.base)), dtype=self.dtype)
        for low in range(0, len(self.base), _ITEMS):
            tile = self.move(self.base[low : low + _ITEMS])
            scores = buffer[: len(block) * len(tile)].reshape(len(block), len(tile))
            np.matmul(block, tile.T, out=scores)
            if self.l2:
                scores += self.offset[low : low + _ITEMS]
                scores -= half
            _native.merge_best(scores.astype(np.float32, copy=False), low, skip, value, found)

    def search_pair(
        self, one: int, other: int, value: NDArray[np.float32], found: NDArray[np.int64]
    ) -> None:
        """Look for the nearest rows of all items (N, k) in two tiles, each in the other."""
        rows = np.arange(len(self.base))
        columns = slice(other, other + _ITEMS)
        tile = self.move(self.base[columns])
        for low in range(one, min(one + _ITEMS, len(rows)), _QUERIES):
            part = slice(low, min(low + _QUERIES, one + _ITEMS))
            scores = self.move(self.base[part]) @ tile.T
            turned = np.ascontiguousarray(scores.T) if other != one else None
            if self.l2:
                scores += self.offset[columns]
            _native.merge_best(scores, other, rows[part], value[part], found[part])
            if turned is not None:
                if self.l2:
                    turned += self.offset[part]
                _native.merge_best(turned, low, rows[columns], value[columns], found[columns])


def _search_pairs(tiles: _Tiles, k: int, threads: int, progress: Progress) -> NDArray[np.int64]:
    """Return the k nearest other rows of all items. Each product of two items is computed once."""
    found = np.full((len(tiles.base), k), -1, dtype=np.int64)
    value = np.full(found.shape, -np.inf, dtype=np.float32)
    starts = range(0, len(found), _ITEMS)
    for pairs in track(_list_rounds(len(starts)), progress, "exact neighbours"):
        jobs = [
            partial(tiles.search_pair, starts[one], starts[other], value, found)
            for one, other in pairs
        ]
        run_all(jobs, threads)
    return found


def _list_rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return all pairs of tiles, and each with itself, in rounds. No two of a round share a tile.

    Examples
    --------
    >>> _list_rounds(3)
    [[(0, 0), (1, 2)], [(0, 1), (2, 2)], [(0, 2), (1, 1)]]
    """
    odd = count | 1  # then i + j = r modulo it pairs each i with one j
    return [
        [(i, (r - i) % odd) for i in range(count) if i <= (r - i) % odd < count] for r in range(odd)
    ]


def _find_centre(base: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of the base, rounded to the power of two below the standard deviation.

    So the differences of integers are integers, and ties stay ties. Data around the origin is not
    moved.
    """
    dim = base.shape[1]
    total, squares = np.zeros(dim), np.zeros(dim)
    first = base[0].astype(np.float64)  # near the mean, so that the squares are small
    for low in range(0, len(base), _ITEMS):
        part = base[low : low + _ITEMS] - first
        total += part.sum(axis=0)
        squares += np.einsum("ij,ij->j", part, part)
    variance = float((squares / len(base) - (total / len(base)) ** 2).max())
    unit = 2.0 ** np.floor(np.log2(variance) / 2) if variance > 0 else 1.0
    centre: NDArray[np.float32] = (np.rint((first + total / len(base)) / unit) * unit).astype("f4")
    return centre


def is_precise(
    queries: NDArray[np.float32], base: NDArray[np.float32], rows: NDArray[np.int64]
) -> bool:
    """Whether float32 can tell the neighbours of most queries from items that are a bit farther.

    For l2, where a sample of the queries tells. `rows` are those of `base` that queries are.
    """
    queries, rows = queries[:_SAMPLE], rows[:_SAMPLE]
    tiles = _Tiles(base, True, np.float32)
    if len(base) == 0:
        return True
    found = np.full((len(queries), _NEAREST), -1, dtype=np.int64)
    tiles.search(queries, rows, found)
    last = found[np.arange(len(found)), np.maximum((found >= 0).sum(axis=1) - 1, 0)]
    near = base[np.maximum(last, 0)].astype(np.float64) - queries
    distance = np.einsum("ij,ij->i", near, near)
    centred = queries - tiles.centre
    error = 4 * np.finfo(np.float32).eps * np.einsum("ij,ij->i", centred, centred)
    known = (last >= 0) & (distance > 0)
    return bool(np.mean(error[known] > _ERROR * distance[known]) < 0.01) if known.any() else True
