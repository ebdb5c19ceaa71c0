"""Loops over vector registers: the fast ones against plain twins, and all of them against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.base.memory import align
from irli.base.recipe import MOST_PIECES
from irli.engine import simd

SEEDS = st.integers(0, 2**32 - 1)


# --- sums of codes ---------------------------------------------------------------------------


def codes_and_table(rows: int, seed: int, most: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    blocks = align(rng.integers(256, size=(3, rows, simd.LANES), dtype=np.uint8))
    half = rng.integers(most + 1, size=(2, rows, simd.WORDS), dtype=np.uint8)
    return blocks, align(np.concatenate([half, half], axis=2))


def sums_by_definition(blocks: NDArray, block: int, table: NDArray) -> NDArray[np.int64]:
    """Byte 2 i belongs to lane i, byte 2 i + 1 to lane 16 + i."""
    bytes_ = blocks[block].astype(np.int64)
    rows = np.arange(len(bytes_))[:, None]
    by_byte = (
        table[0, rows, bytes_ & 15].astype(np.int64) + table[1, rows, bytes_ >> 4].astype(np.int64)
    ).sum(axis=0)
    return np.concatenate([by_byte[::2], by_byte[1::2]])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, MOST_PIECES // 4),
    SEEDS,
    st.integers(0, 2),
    st.sampled_from([0, 1, simd.MOST]),
    st.sampled_from(["least", "median", "most", "one", 0, 65535]),
)
def test_block_sums(pairs: int, seed: int, block: int, most: int, cut: str | int) -> None:
    blocks, table = codes_and_table(simd.ROWS * pairs, seed, most)
    right = sums_by_definition(blocks, block, table)
    marks = {"least": right.min(), "median": int(np.median(right)), "most": right.max()}
    marks["one"] = min(int(right.max()) + 1, 65535)
    edge = np.uint16(marks[cut] if isinstance(cut, str) else cut)
    reached = sum(1 << lane for lane in range(simd.LANES) if right[lane] >= edge)
    for twin in (simd.block_sums, simd._plain):
        out = np.full(simd.LANES, 9, dtype=np.uint16)
        assert twin(blocks, block, table, edge, out) == reached
        np.testing.assert_array_equal(out, right)


def test_the_largest_table_fits_into_16_bits() -> None:
    rows = MOST_PIECES // 2
    blocks = align(np.full((1, rows, simd.LANES), 255, dtype=np.uint8))
    table = align(np.full((2, rows, simd.LANES), simd.MOST, dtype=np.uint8))
    for twin in (simd.block_sums, simd._plain):
        out = np.zeros(simd.LANES, dtype=np.uint16)
        assert twin(blocks, 0, table, np.uint16(0), out) == 2**32 - 1
        assert (out == MOST_PIECES * simd.MOST).all()


# --- products of bytes -----------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 70), st.integers(1, 3), SEEDS, st.booleans())
def test_byte_sums(fours: int, panels: int, seed: int, extreme: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(128, size=(2, 4 * fours), dtype=np.uint8)  # as routing rounds them
    shape = (2, panels, fours, simd.PANEL, 4)
    weights = rng.integers(-127, 128, size=shape, dtype=np.int8)
    if extreme:  # where sums of pairs are as large as they get
        rows[:], weights[:, ..., :32, :], weights[..., 32:, :] = 127, 127, -127
    for i, r, panel in ((0, 0, 0), (1, 1, panels - 1)):
        matrix = weights[r, panel].transpose(0, 2, 1).reshape(4 * fours, simd.PANEL)
        right = rows[i].astype(np.int64) @ matrix.astype(np.int64)
        for twin in (simd.byte_sums, simd._plain_bytes):
            out = np.full((2, panels * simd.PANEL), 7, dtype=np.int32)
            twin(rows, i, weights, r, panel, out)
            part = slice(panel * simd.PANEL, (panel + 1) * simd.PANEL)
            np.testing.assert_array_equal(out[i, part], right)
            out[i, part] = 7
            assert (out == 7).all(), "wrote beside its place"
