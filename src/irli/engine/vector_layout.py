"""The arrays of a vector index as the kernels read them (`VectorLayout`), and their constants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import L2, LANES, MOST, PANEL, WORDS, ZERO
from irli.base.arrays import array_error, check_array, check_buckets, check_range, damage_error

ROWS = 2  # the rows of a block of codes are a multiple of this


class Projection(NamedTuple):
    """The 8-bit projection of a query (see `irli.engine.int8`). Empty if there is none."""

    centre: NDArray[np.float32]  # (d,): subtracted from the query
    scale: NDArray[np.float32]  # (d,): then multiplied with it
    bytes: NDArray[np.int8]  # (1, columns / 64, d / 4, 64, 4)
    step: NDArray[np.float32]  # (columns,): the value of one step of a column
    zero: NDArray[np.int32]  # (columns,): the sums for a query of zeros
    bias: NDArray[np.float32]  # (columns,): the projection of the centre


class Codes(NamedTuple):
    """The 4-bit codes of an index (see `irli.engine.pq`). M = 0 if it has none."""

    rotation: NDArray[np.float32]  # (d, p): from vectors to coordinates
    shift: NDArray[np.float32]  # (p,)
    codewords: NDArray[np.float32]  # (M, s, 16), M s = p
    bias: NDArray[np.float32]  # (M, 16): what a codeword adds to the score of any query
    blocks: NDArray[np.uint8]  # (blocks, M / 2, 32), in the order of the buckets
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `blocks`


class Int8Vectors(NamedTuple):
    """8-bit copies of the vectors (see `irli.engine.prefilter`). N = 0 without a prefilter."""

    bytes: NDArray[np.int8]  # (N, d): in steps from the centre
    centre: NDArray[np.float32]  # (d,): the middle of each dimension
    shift: NDArray[np.float32]  # (d,): subtracted from the query; the mean for l2
    step: NDArray[np.float32]  # (d,)
    lengths: NDArray[np.float32]  # (N,) for l2: half the squared distance from the mean


class Centroids(NamedTuple):
    """What is known of each bucket (see `irli.engine.centroids`). Empty arrays if nothing is."""

    centre: NDArray[np.float32]  # (d,): subtracted from the query
    columns: NDArray[np.float32]  # (d, B): the mean of each bucket, less the centre
    bias: NDArray[np.float32]  # (B,)
    spread: NDArray[np.float32]  # (B,): the deviation of its items from the mean, along one axis
    base: NDArray[np.float32]  # (B,): a query is far from a bucket beyond base + far * reach
    reach: NDArray[np.float32]  # (B,): how far apart its items are


_NONE = np.empty(0, dtype=np.float32)
NO_CENTROIDS = Centroids(_NONE, _NONE.reshape(0, 0), _NONE, _NONE, _NONE, _NONE)


class Run(NamedTuple):
    """Items that were added after a fit, bucket by bucket."""

    offsets: NDArray[np.int64]  # (R, B + 1)
    items: NDArray[np.int32]  # (entries,)
    block_offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `blocks`
    blocks: NDArray[np.uint8]  # (blocks, M / 2, 32)


class Added(NamedTuple):
    """All that was added to a layout since the fit. Chunks hold 2^j rows each, in order."""

    items: int  # with those of the fit
    runs: list[Run]
    vectors: list[NDArray[np.float32]]  # chunks (2^j, d)
    int8: list[NDArray[np.int8]]  # chunks (2^j, d), or none without 8-bit copies
    lengths: list[NDArray[np.float32]]  # chunks (2^j,), or none without 8-bit copies


class VectorLayout(NamedTuple):
    """R routers (see `irli.engine.router`), R partitions, and the vectors."""

    projection: Projection  # its columns: R x G features, then p coordinates
    project: NDArray[np.float32]  # (R, d, G)
    shift: NDArray[np.float32]  # (R, G)
    linear: int
    weights: NDArray[np.float32]  # (R, G, B), or (R, 0, B) with 8-bit weights
    bytes: NDArray[np.int8]  # (R, B / 64, G / 4, 64, 4), or (R, 0, 0, 64, 4)
    step: NDArray[np.float32]  # (R, B)
    zero: NDArray[np.int32]  # (R, B), or (R, 0)
    bias: NDArray[np.float32]  # (R, B)
    centre: NDArray[np.float32]  # (R, d)
    soften: NDArray[np.float32]  # (R, 3)
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `items`
    items: NDArray[np.int32]  # (entries,): bucket 0 of repetition 0, its bucket 1, ...
    vectors: NDArray[np.float32]  # (N, d)
    codes: Codes
    int8: Int8Vectors
    metric: int  # L2 or DOT
    centroids: Centroids = NO_CENTROIDS  # of the first repetition

    @property
    def router_multiplications(self) -> int:
        """The multiplications that route one query in all repetitions."""
        repetitions, buckets = self.bias.shape
        return int(self.project.size + repetitions * self.shift.shape[1] * buckets)


# --- checks of what comes from a file --------------------------------------------------------


def check_layout(layout: VectorLayout) -> None:
    """Raise `FormatError` unless all arrays agree: then no kernel leaves their bounds.

    The projection is left out. It is computed from the other arrays and never read from a file.
    """
    items, dim = check_array("vectors", layout.vectors, np.float32, None, None)
    if dim == 0:
        raise array_error("vectors", "have at least one dimension", "none")
    shape = check_array("bias", layout.bias, np.float32, None, None, filled=True)
    check_buckets(layout.offsets, layout.items, shape, items)
    _check_routers(layout, dim)
    _check_codes(layout.codes, layout.offsets, dim)
    _check_int8(layout.int8, items, dim, layout.metric == L2)
    _check_centroids(layout.centroids, dim, shape[1])


def _check_routers(layout: VectorLayout, dim: int) -> None:
    repetitions, buckets = layout.bias.shape
    _, width = check_array("shift", layout.shift, np.float32, repetitions, None, filled=True)
    check_array("project", layout.project, np.float32, repetitions, dim, width)
    check_array("step", layout.step, np.float32, repetitions, buckets)
    check_array("centre", layout.centre, np.float32, repetitions, dim)
    check_array("soften", layout.soften, np.float32, repetitions, 3)
    if type(layout.linear) is not int or not 0 <= layout.linear <= width:
        raise damage_error("field 'linear'", f"be in [0, {width}]", repr(layout.linear))
    if layout.bytes.size:  # routers of 8 bits have no other weights
        panels, fours = -(-buckets // PANEL), -(-width // 4)
        check_array("bytes", layout.bytes, np.int8, repetitions, panels, fours, PANEL, 4)
        check_array("zero", layout.zero, np.int32, repetitions, buckets)
        most = ZERO * 128 * 4 * fours  # so no sum overflows
        check_range("zero", layout.zero, -most, most)
        check_array("weights", layout.weights, np.float32, repetitions, 0, buckets)
    else:
        check_array("bytes", layout.bytes, np.int8, repetitions, 0, 0, PANEL, 4)
        check_array("zero", layout.zero, np.int32, repetitions, 0)
        check_array("weights", layout.weights, np.float32, repetitions, width, buckets)


def _check_codes(codes: Codes, offsets: NDArray[np.int64], dim: int) -> None:
    pieces, size, _ = check_array("code_codewords", codes.codewords, np.float32, None, None, WORDS)
    if pieces % (2 * ROWS) or MOST * pieces > np.iinfo(np.uint16).max:
        must = f"have a multiple of {2 * ROWS} pieces, whose sums fit into 16 bits"
        raise array_error("code_codewords", must, f"{pieces} pieces")
    check_array("code_rotation", codes.rotation, np.float32, dim, pieces * size)
    check_array("code_shift", codes.shift, np.float32, pieces * size)
    check_array("code_bias", codes.bias, np.float32, pieces, WORDS)
    starts = place_blocks(offsets) if pieces else np.empty((0, 0), dtype=np.int64)
    check_array("code_offsets", codes.offsets, np.int64, *starts.shape)
    if not np.array_equal(codes.offsets, starts):
        must = f"count {LANES} items a block, bucket by bucket"
        raise array_error("code_offsets", must, "other numbers of blocks")
    blocks = int(starts.max(initial=0))
    check_array("code_blocks", codes.blocks, np.uint8, blocks, pieces // 2, LANES)


def place_blocks(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each bucket starts in the blocks of codes (R, B + 1). Each has whole blocks.

    Examples
    --------
    >>> place_blocks(np.array([[0, 33, 40], [40, 40, 72]]))
    array([[0, 2, 3],
           [3, 3, 4]])
    """
    counts = -(-np.diff(offsets, axis=1) // LANES)
    starts = np.zeros(offsets.shape, dtype=np.int64)
    starts[:, 1:] = counts.cumsum().reshape(counts.shape)
    starts[1:, 0] = starts[:-1, -1]
    return starts


def _check_int8(int8: Int8Vectors, items: int, dim: int, l2: bool) -> None:
    if int8.bytes.size == 0:
        items = columns = 0
    else:
        columns = dim
    check_array("int8_bytes", int8.bytes, np.int8, items, dim)
    check_array("int8_centre", int8.centre, np.float32, columns)
    check_array("int8_shift", int8.shift, np.float32, columns)
    check_array("int8_step", int8.step, np.float32, columns)
    check_array("int8_lengths", int8.lengths, np.float32, items if l2 else 0)


def _check_centroids(centroids: Centroids, dim: int, buckets: int) -> None:
    if centroids.centre.size == 0:
        dim = buckets = 0
    check_array("centroid_centre", centroids.centre, np.float32, dim)
    check_array("centroid_columns", centroids.columns, np.float32, dim, buckets)
    for name in ("bias", "spread", "base", "reach"):
        check_array(f"centroid_{name}", getattr(centroids, name), np.float32, buckets)
