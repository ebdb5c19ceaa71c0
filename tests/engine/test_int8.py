"""Weights in 8 bits: how they are rounded and laid out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli._native import PANEL, ZERO
from irli.engine import int8
from irli.engine.int8 import (
    HIGHEST,
    balance,
    make_projection,
    no_projection,
    round_rows,
    tile,
    unround_rows,
    untile,
)

SEEDS = st.integers(0, 2**32 - 1)


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


# --- rounding --------------------------------------------------------------------------------


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
