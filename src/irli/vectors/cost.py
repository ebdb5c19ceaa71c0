"""The work of a search: what it costs in nanoseconds, by counting instead of timing.

`tune` compares searches by their work. A clock would choose other parameters on a busy machine, and
so two builds of the same data would answer differently. The constants are rounded medians of the
stages that `explain` reports, on one core of a server with AVX-512, for indexes of 16 to 784
dimensions. Only their ratios matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import COMPARED, COMPARED_LANES, LEAST_COMPARED, LEAST_ROUNDED
from irli.engine.vector_layout import VectorLayout

_MULTIPLICATION = {1: 0.018, 4: 0.06}  # of a router, by the bytes of its weights
_BUCKET = 60.0  # to begin a bucket
_ENTRY = 5.5  # to collect an item with its votes
_CODE, _PIECE = 1.0, 0.04  # to sum a code, and for each of its pieces
_TABLE = 30.0  # for each piece, to write the table of a query
_CANDIDATE, _FLOAT, _BYTE = 25.0, 0.5, 0.28  # to fetch a vector, and for each dimension
_MISS = 50.0  # more, if the vectors are not in the cache
_CACHE = 1 << 24  # bytes
_ROW, _STREAMED = 4.0, 0.08  # to compare an item when all are compared in order, by dimension
_PICKED, _GATHERED = 4.0, 0.055  # when all allowed items are
_GATHERED_BYTE = 0.03  # the same, by 8-bit copies
_PICKED_MISS = 8.0  # more, if the vectors are not in the cache
_SHARED = 0.021  # for each dimension, when many queries are compared with an item


class Sizes(NamedTuple):
    """The sizes of an index that decide what a search costs."""

    items: int
    dim: int
    entries: int
    repetitions: int
    buckets: int
    router_multiplications: int
    router_bytes: int  # of a weight
    pieces: int  # of a code, or 0 without codes
    has_int8: bool  # 8-bit copies of the vectors

    @classmethod
    def of(cls, layout: VectorLayout) -> Sizes:
        """Return the sizes of a layout."""
        items, dim = layout.vectors.shape
        repetitions, buckets = layout.bias.shape
        return cls(
            items=items,
            dim=dim,
            entries=len(layout.items),
            repetitions=repetitions,
            buckets=buckets,
            router_multiplications=layout.router_multiplications,
            router_bytes=1 if layout.bytes.size else 4,
            pieces=len(layout.codes.codewords),
            has_int8=len(layout.int8.bytes) > 0,
        )


def count_work(sizes: Sizes, probed: Any, scanned: Any, candidates: Any, codes: bool) -> Any:
    """Return the nanoseconds of queries that probe, scan and compare so much.

    The counts may be arrays, with one value for each query.
    """
    pieces = sizes.pieces
    entry, table = (_CODE + _PIECE * pieces, _TABLE * pieces) if codes else (_ENTRY, 0.0)
    each = _count_candidate(sizes, codes)
    return _route(sizes) + table + _BUCKET * probed + entry * scanned + each * candidates


def count_query_work(sizes: Sizes, work: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the nanoseconds of each query, from its columns of `WORK`. No query has a filter."""
    probed, scanned, _, exact, strange, coded, picked, plain = work.T.astype(np.float64)
    scanned = scanned - exact * sizes.items
    pieces = sizes.pieces
    routed = _route(sizes) + _BUCKET * probed + _ENTRY * (scanned - coded)
    routed += (coded > 0) * _TABLE * pieces + (_CODE + _PIECE * pieces) * coded
    routed += _count_candidate(sizes, True) * picked + _count_candidate(sizes, False) * plain
    routed += strange * count_centroid_work(sizes)
    all_items = count_exact_work(sizes, sizes.items)
    routed[(exact > 0) & (strange == 0)] = 0.0
    total: NDArray[np.float64] = routed + exact * all_items
    return total


def _route(sizes: Sizes) -> float:
    return _MULTIPLICATION[sizes.router_bytes] * sizes.router_multiplications


def _count_candidate(sizes: Sizes, codes: bool) -> float:
    """Return the nanoseconds to compare a candidate. Of those by codes, 8-bit copies drop most."""
    each = _CANDIDATE + (_BYTE if codes and sizes.has_int8 else _FLOAT) * sizes.dim
    return each + (_MISS if 4 * sizes.items * sizes.dim > _CACHE else 0.0)


def count_centroid_work(sizes: Sizes) -> float:
    """Return the nanoseconds to compare a query with the centroids of all buckets."""
    weight = _MULTIPLICATION[1 if sizes.dim >= LEAST_ROUNDED else 4]
    return weight * sizes.dim * sizes.buckets


def count_exact_work(sizes: Sizes, items: int, queries: int = 1) -> float:
    """Return the nanoseconds of a query that is compared with so many items.

    Many queries are compared with the items together.
    """
    dim = sizes.dim
    each = _ROW + _STREAMED * dim
    if items < sizes.items:
        each = _PICKED + (_GATHERED_BYTE if sizes.has_int8 else _GATHERED) * dim
        stored = (1 if sizes.has_int8 else 4) * sizes.items * dim
        each += _PICKED_MISS if stored > _CACHE else 0.0
    if queries >= LEAST_COMPARED:  # others one by one
        together = min(queries, COMPARED)
        lanes = -(-together // COMPARED_LANES) * COMPARED_LANES  # of vectors, used or not
        each = (each + _SHARED * dim * lanes) / together
    return items * each
