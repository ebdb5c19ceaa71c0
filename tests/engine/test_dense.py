"""Dense loops against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli.engine.dense import dot, multiply, normalize_rows, squared_distance, sum_exps

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("depth", [0, 1, 2, 37])
def test_multiply_any_width(depth: int) -> None:
    rng = np.random.default_rng(depth)
    for width in range(1, 201):
        rows = rng.normal(size=(3, depth + 2)).astype(np.float32)[:, :depth]
        matrix = rng.normal(size=(depth, width)).astype(np.float32)
        bias = rng.normal(size=width).astype(np.float32)
        wide = np.full((3, width + 4), 7, dtype=np.float32)
        multiply(rows, matrix, bias, wide[:, :width])
        right = rows.astype(np.float64) @ matrix + bias
        np.testing.assert_allclose(wide[:, :width], right, rtol=1e-4, atol=1e-4)
        assert (wide[:, width:] == 7).all(), "wrote beside its place"


@pytest.mark.parametrize("width", [3, 16, 70])
def test_multiply_no_rows(width: int) -> None:
    """Nothing is written, not even where a first row would lie."""
    rows, wide = np.ones((2, 4), dtype=np.float32), np.full((2, width + 1), 7, dtype=np.float32)
    matrix, bias = np.ones((3, width), dtype=np.float32), np.ones(width, dtype=np.float32)
    multiply(rows[:0, :3], matrix, bias, wide[:0, :width])
    assert (wide == 7).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), SEEDS, st.sampled_from([1e-15, 1.0, 1e15]))
def test_products_and_distances(dim: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = (scale * rng.normal(size=(2, dim))).astype(np.float32)
    exact_a, exact_b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(exact_a) * np.linalg.norm(exact_b)
    assert dot(a, b) == pytest.approx(exact_a @ exact_b, rel=1e-5, abs=1e-5 * lengths)
    right = np.square(exact_a - exact_b).sum()
    assert squared_distance(a, b) == pytest.approx(right, rel=1e-4, abs=0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(1, 40), SEEDS, st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_normalize_rows(n: int, dim: int, seed: int, scale: float) -> None:
    """Of any length: squares of 1e30 overflow in float32."""
    rows = (scale * np.random.default_rng(seed).normal(size=(n, dim))).astype(np.float32)
    out = np.full((n, dim), 7, dtype=np.float32)
    normalize_rows(rows, out)
    exact = rows.astype(np.float64)
    right = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    np.testing.assert_allclose(out, right, rtol=1e-5, atol=1e-6)


def test_rows_of_zeros_stay_zeros() -> None:
    out = np.full((2, 3), 7, dtype=np.float32)
    normalize_rows(np.array([[0, 0, 0], [0, 3, 4]], dtype=np.float32), out)
    np.testing.assert_allclose(out, [[0, 0, 0], [0, 0.6, 0.8]], rtol=1e-6)


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
