"""Loops over vector registers: the fast ones against plain twins, and all of them against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.base.recipe import MOST_PIECES
from irli.engine import simd as lanes
from irli.engine.jit import aligned, kth_largest, sort_down
from irli.engine.route import at_least, largest, multiply, sum_exps

SEEDS = st.integers(0, 2**32 - 1)
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e-45, 3e38], dtype=np.float32)


def floats(n: int, seed: int) -> NDArray[np.float32]:
    """Some floats with many ties, infinities and what is no number."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, size=n).astype(np.float32)
    odd = rng.random(n) < 0.2
    values[odd] = rng.choice(ODD, size=odd.sum())
    return values


# --- sums of codes ---------------------------------------------------------------------------


def codes_and_table(rows: int, seed: int, most: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    blocks = aligned(rng.integers(256, size=(3, rows, lanes.LANES), dtype=np.uint8))
    half = rng.integers(most + 1, size=(2, rows, lanes.WORDS), dtype=np.uint8)
    return blocks, aligned(np.concatenate([half, half], axis=2))


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
    st.sampled_from([0, 1, lanes.MOST]),
    st.sampled_from(["least", "median", "most", "one", 0, 65535]),
)
def test_block_sums(pairs: int, seed: int, block: int, most: int, cut: str | int) -> None:
    blocks, table = codes_and_table(lanes.ROWS * pairs, seed, most)
    right = sums_by_definition(blocks, block, table)
    marks = {"least": right.min(), "median": int(np.median(right)), "most": right.max()}
    marks["one"] = min(int(right.max()) + 1, 65535)
    edge = np.uint16(marks[cut] if isinstance(cut, str) else cut)
    reached = sum(1 << lane for lane in range(lanes.LANES) if right[lane] >= edge)
    for twin in (lanes.block_sums, lanes._plain):
        out = np.full(lanes.LANES, 9, dtype=np.uint16)
        assert twin(blocks, block, table, edge, out) == reached
        np.testing.assert_array_equal(out, right)


def test_the_largest_table_fits_into_16_bits() -> None:
    rows = MOST_PIECES // 2
    blocks = aligned(np.full((1, rows, lanes.LANES), 255, dtype=np.uint8))
    table = aligned(np.full((2, rows, lanes.LANES), lanes.MOST, dtype=np.uint8))
    for twin in (lanes.block_sums, lanes._plain):
        out = np.zeros(lanes.LANES, dtype=np.uint16)
        assert twin(blocks, 0, table, np.uint16(0), out) == 2**32 - 1
        assert (out == MOST_PIECES * lanes.MOST).all()


# --- products of bytes -----------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 70), st.integers(1, 3), SEEDS, st.booleans())
def test_byte_sums(fours: int, panels: int, seed: int, extreme: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(128, size=(2, 4 * fours), dtype=np.uint8)  # as routing rounds them
    shape = (2, panels, fours, lanes.PANEL, 4)
    weights = rng.integers(-127, 128, size=shape, dtype=np.int8)
    if extreme:  # where sums of pairs are as large as they get
        rows[:], weights[:, ..., :32, :], weights[..., 32:, :] = 127, 127, -127
    for i, r, panel in ((0, 0, 0), (1, 1, panels - 1)):
        matrix = weights[r, panel].transpose(0, 2, 1).reshape(4 * fours, lanes.PANEL)
        right = rows[i].astype(np.int64) @ matrix.astype(np.int64)
        for twin in (lanes.byte_sums, lanes._plain_bytes):
            out = np.full((2, panels * lanes.PANEL), 7, dtype=np.int32)
            twin(rows, i, weights, r, panel, out)
            part = slice(panel * lanes.PANEL, (panel + 1) * lanes.PANEL)
            np.testing.assert_array_equal(out[i, part], right)
            out[i, part] = 7
            assert (out == 7).all(), "wrote beside its place"


# --- products of floats ----------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2, 37])
def test_multiply_any_width(depth: int) -> None:
    rng = np.random.default_rng(depth)
    for width in range(1, 201):
        rows = rng.normal(size=(3, depth + 2)).astype(np.float32)[:, :depth]
        matrix = rng.normal(size=(depth, width)).astype(np.float32)
        start = rng.normal(size=width).astype(np.float32)
        wide = np.full((3, width + 4), 7, dtype=np.float32)
        multiply(rows, matrix, start, wide[:, :width])
        right = rows.astype(np.float64) @ matrix + start
        np.testing.assert_allclose(wide[:, :width], right, rtol=1e-4, atol=1e-4)
        assert (wide[:, width:] == 7).all(), "wrote beside its place"


def test_multiply_no_rows() -> None:
    multiply(
        np.empty((0, 4), dtype=np.float32)[:, :3],
        np.ones((3, 70), dtype=np.float32),
        np.ones(70, dtype=np.float32),
        np.empty((0, 71), dtype=np.float32)[:, :70],
    )


# --- comparisons -----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 140),
    SEEDS,
    st.one_of(st.integers(-4, 4).map(float), st.sampled_from(ODD.tolist())),
)
def test_at_least(n: int, seed: int, cut: float) -> None:
    values = floats(n, seed)
    places = np.full(n + 1, -1, dtype=np.int32)
    count = at_least(values, np.float32(cut), places)
    right = np.flatnonzero(~(values < np.float32(cut)))  # what is no number always counts
    np.testing.assert_array_equal(places[:count], right)
    assert (places[count:] == -1).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 140), SEEDS)
def test_largest(n: int, seed: int) -> None:
    values = floats(n, seed)
    numbers = values[~np.isnan(values)]
    assert largest(values) == (numbers.max() if len(numbers) else -np.inf)


@pytest.mark.parametrize("n", [1, 15, 16, 33, 500])
@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 30.0, 1e4])
def test_sum_of_exps(n: int, spread: float) -> None:
    logits = (np.random.default_rng(n).normal(size=n) * spread).astype(np.float32)
    top = logits.max()
    right = np.exp(logits.astype(np.float64) - top).sum()
    assert sum_exps(logits, top) == pytest.approx(right, rel=1e-4)


def test_sum_of_exps_passes_over_what_is_no_number() -> None:
    logits = np.array([0.0, np.nan, -np.inf, -1.0], dtype=np.float32)
    assert sum_exps(logits, np.float32(0.0)) == pytest.approx(1 + np.exp(-1.0), rel=1e-4)


# --- selection -------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-5, 2**40), min_size=1, max_size=80), st.data())
def test_kth_largest(numbers: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(numbers)))
    values = np.array(numbers, dtype=np.int64)
    right = sorted(numbers, reverse=True)
    assert kth_largest(values, k) == right[k - 1]
    assert sorted(values[:k].tolist(), reverse=True) == right[:k]
    assert sorted(values.tolist(), reverse=True) == right


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 900), SEEDS)
def test_shell_sort(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-50, 50, size=count + 3).astype(np.float32)
    others = np.arange(count + 3, dtype=np.int32)
    before = values.copy()
    sort_down(values, others, count)
    np.testing.assert_array_equal(values[:count], np.sort(before[:count])[::-1])
    np.testing.assert_array_equal(values, before[others])
    assert (others[count:] == np.arange(count, count + 3)).all()
