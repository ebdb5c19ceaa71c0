"""Weights and queries in 8 bits: how they are rounded, laid out and multiplied."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.engine import int8
from irli.engine.int8 import (
    HIGHEST,
    ZERO,
    balance,
    make_projection,
    multiply_bytes,
    no_projection,
    round_rows,
    round_to_bytes,
    tile,
    unround_rows,
    untile,
)
from irli.engine.simd import PANEL

SEEDS = st.integers(0, 2**32 - 1)
RANGES = {"signed": (ZERO, ZERO - 1), "unsigned": (0, 127)}  # zero, highest


def floats(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# --- tiles -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 200), SEEDS)
def test_tiles(rows: int, columns: int, seed: int) -> None:
    """Weight (i, c) lies in panel c / 64 and group i / 4; what is added is zero."""
    weights = np.random.default_rng(seed).integers(-127, 128, size=(rows, columns), dtype=np.int8)
    tiles = tile(weights)
    assert tiles.shape == (-(-columns // PANEL), -(-rows // 4), PANEL, 4)
    assert tiles.flags.c_contiguous
    for i, c in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3)]:
        assert tiles[c // PANEL, i // 4, c % PANEL, i % 4] == weights[i, c]
    assert np.abs(tiles.astype(int)).sum() == np.abs(weights.astype(int)).sum()
    np.testing.assert_array_equal(untile(tiles, rows, columns), weights)


@numba.njit
def multiply(rows: Any, n: int, weights: Any, r: int, sums: Any) -> None:
    multiply_bytes(rows, n, weights, r, sums)


@pytest.mark.parametrize(("n", "depth", "columns"), [(1, 4, 64), (3, 20, 130), (8, 7, 5)])
def test_multiply_bytes(n: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(n)
    weights = rng.integers(-127, 128, size=(2, depth, columns), dtype=np.int8)
    tiles = np.stack([tile(part) for part in weights])
    rows = np.zeros((n + 1, 4 * tiles.shape[2]), dtype=np.uint8)
    rows[:, :depth] = rng.integers(128, size=(n + 1, depth))
    sums = np.full((n + 1, PANEL * tiles.shape[1]), 7, dtype=np.int32)
    for r in range(2):
        multiply(rows, n, tiles, r, sums)
        right = rows[:n, :depth].astype(np.int64) @ weights[r].astype(np.int64)
        np.testing.assert_array_equal(sums[:n, :columns], right)
    assert (sums[n] == 7).all(), "wrote beside its place"


# --- rounding --------------------------------------------------------------------------------


def rounded(values: NDArray[np.float32], kind: str) -> tuple[NDArray[np.uint8], float]:
    """Return the bytes of some values, from a row between others, and the step."""
    zero, highest = RANGES[kind]
    out = np.full((3, len(values) + 2), 201, dtype=np.uint8)
    step = round_to_bytes(values, np.float32(zero), np.float32(highest), out, 1)
    assert (out[[0, 2]] == 201).all(), "wrote into another row"
    assert (out[1, len(values) :] == 201).all(), "wrote beyond the values"
    return out[1, : len(values)], float(step)


@pytest.mark.parametrize("kind", RANGES)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=70),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e30]),
)
def test_round_to_bytes(kind: str, values: list[float], scale: float) -> None:
    """Each byte stands for its value up to half a step; the largest lies at the end."""
    zero, highest = RANGES[kind]
    some = np.array(values, dtype=np.float32) * np.float32(scale)
    if kind == "unsigned":
        some = np.abs(some)  # as behind a ReLU
    most = np.abs(some).max()
    if not 0 < most / highest < np.inf or most < 1e-36:
        return  # what has no step, below
    found, step = rounded(some, kind)
    assert step == pytest.approx(float(most) / highest, rel=1e-5)
    off = (found.astype(np.float64) - zero) * step - some
    assert (np.abs(off) <= 0.501 * step).all()
    assert np.abs(found.astype(int) - zero).max() == highest
    assert (found[some == 0] == zero).all()


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("n", [0, 1, 5, 70])
def test_round_zeros_to_bytes(kind: str, n: int) -> None:
    found, step = rounded(np.zeros(n, dtype=np.float32), kind)
    assert (found == RANGES[kind][0]).all()
    assert step == 0.0


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize("odd", [np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40])
def test_infinite_values_become_zero(kind: str, odd: float, place: int) -> None:
    """All of them: beside an infinite value the others count for nothing."""
    values = np.abs(floats(41))
    values[place] = odd
    found, step = rounded(values, kind)
    assert (found == RANGES[kind][0]).all()
    assert step == 0.0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12), SEEDS, st.sampled_from([1, 4, 4096]))
def test_round_rows(n: int, dim: int, seed: int, block: int) -> None:
    """Off by half a step at most, whatever the blocks; rows of zeros stay zeros."""
    rows = floats(2, n, dim, seed=seed) * np.float32(10.0) ** np.arange(n)[:, None]
    rows = rows.astype(np.float32)
    rows[1, 0] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "_BLOCK", block)
        numbers, scale = round_rows(rows)
    assert numbers.shape == rows.shape
    assert scale.shape == (2, n)
    np.testing.assert_allclose(scale, np.abs(rows).max(axis=2) / HIGHEST, rtol=1e-6)
    assert (np.abs(unround_rows(numbers, scale) - rows) <= 0.501 * scale[..., None]).all()
    assert (numbers[1, 0] == 0).all()


# --- the projection --------------------------------------------------------------------------


def test_balance_moves_weight_between_both_sides() -> None:
    """Products stay the same; the columns of both sides become equally large."""
    rows, weights = floats(50, 6), floats(6, 9, seed=1)
    rows *= np.float32(10.0) ** np.arange(6, dtype=np.float32)
    rows[:, 4] = 0
    weights[2] = 0
    scale = balance(rows, weights)
    np.testing.assert_allclose(
        (rows / scale) @ (weights * scale[:, None]), rows @ weights, rtol=1e-3
    )
    told = [0, 1, 3, 5]
    typical = np.sqrt(np.square(rows / scale).mean(axis=0))[told]
    strength = np.sqrt(np.square(weights * scale[:, None]).mean(axis=1))[told]
    np.testing.assert_allclose(typical, strength, rtol=1e-4)
    assert (scale[[2, 4]] == 1).all()  # nothing to balance


def project(queries: NDArray[np.float32], made: int8.Projection) -> NDArray[np.float64]:
    """What a projection says of queries that are not rounded themselves."""
    weights = untile(made.bytes[0], queries.shape[1], len(made.step)) * made.step
    return (queries - made.centre) * made.scale @ weights + made.bias


@pytest.mark.parametrize("columns", [2, 64, 100])
def test_a_projection_is_nearly_the_product(columns: int) -> None:
    sample, matrix, shift = floats(200, 7) * 5 + 3, floats(7, columns), floats(columns, seed=2)
    sample[:, 5] *= 1e-6  # a column that counts for little
    matrix[:, -1] = 0  # a feature that tells nothing
    made = make_projection(sample, matrix, shift)
    right = sample @ matrix + shift
    np.testing.assert_allclose(project(sample, made)[:, -1], shift[-1], rtol=1e-5)
    assert np.abs(project(sample, made) - right).max() <= 0.03 * right.std()
    weights = untile(made.bytes[0], 7, columns)
    np.testing.assert_array_equal(made.zero, ZERO * weights.sum(axis=0, dtype=np.int64))


def test_no_projection_is_empty() -> None:
    assert no_projection().bytes.size == 0
    assert len(no_projection().step) == 0
