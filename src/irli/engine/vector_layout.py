"""The arrays of a vector index as the kernels read them (`VectorLayout`), and their constants."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import SearchPlan

__all__ = [
    "Codes",
    "Int8Vectors",
    "Projection",
    "SearchPlan",
    "VectorLayout",
    "count_multiplications",
]

L2, DOT = 0, 1  # how a distance is computed; cosine is DOT on normalized vectors
PLAIN, COSINE, IP = 0, 1, 2  # a distance x becomes x, 1 + x or -x; COSINE normalizes the queries
VOTES, PROBABILITY, LOG_PROBABILITY, CODES = 0, 1, 2, 3  # the score that chooses the candidates

MOST_CANDIDATES = 16_384  # that a code scan can choose
LANES = 32  # items in a block of codes
PANEL = 64  # columns of 8-bit weights that are summed together
WORDS = 16  # codewords of a piece: as many as 4 bits can number
ROWS = 2  # the rows of a block of codes are a multiple of this
BLOCK = 8  # queries routed together, so that each weight is read once for all of them


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

    bytes: NDArray[np.int8]  # (N, d): in steps from the middle of each dimension
    shift: NDArray[np.float32]  # (d,): subtracted from the query; the mean for l2
    step: NDArray[np.float32]  # (d,)
    lengths: NDArray[np.float32]  # (N,) for l2: half the squared distance from the mean


class VectorLayout(NamedTuple):
    """R routers (see `irli.engine.router`), R partitions, and the vectors."""

    projection: Projection  # its columns: R x G features, then p coordinates
    project: NDArray[np.float32]  # (R, d, G)
    shift: NDArray[np.float32]  # (R, G)
    linear: int
    rotation: NDArray[np.float32]  # (R, G, F), or (R, 0, 0)
    rotation_shift: NDArray[np.float32]  # (R, F), or (R, 0)
    coarse: NDArray[np.float32]  # (R, D, B)
    fine: NDArray[np.float32]  # (R, B, F - D)
    bytes: NDArray[np.int8]  # (R, B / 64, G / 4, 64, 4), or (R, 0, 0, 64, 4)
    step: NDArray[np.float32]  # (R, 1)
    zero: NDArray[np.int32]  # (R, B), or (R, 0)
    bias: NDArray[np.float32]  # (R, B)
    depths: NDArray[np.int64]  # (stages,)
    keeps: NDArray[np.int64]  # (stages,)
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `items`
    items: NDArray[np.int32]  # (entries,): bucket 0 of repetition 0, its bucket 1, ...
    vectors: NDArray[np.float32]  # (N, d)
    codes: Codes
    int8: Int8Vectors
    metric: int  # L2 or DOT

    @property
    def router_multiplications(self) -> int:
        """The multiplications that route one query in all repetitions."""
        return count_multiplications(
            self.project, self.rotation, len(self.bias), self.depths, self.keeps
        )


def count_multiplications(
    project: NDArray[Any],
    rotation: NDArray[Any],
    repetitions: int,
    depths: NDArray[np.int64],
    keeps: NDArray[np.int64],
) -> int:
    """Return the multiplications that score the buckets of all repetitions for one query."""
    scoring = int((np.diff(depths, prepend=0) * keeps).sum())
    return project.size + rotation.size + repetitions * scoring
