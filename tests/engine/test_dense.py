"""Products of rows with a matrix, and normalizing, with each back-end against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli import _native
from irli._native import multiply_rows, normalize_rows

pytestmark = pytest.mark.usefixtures("simd")
SEEDS = st.integers(0, 2**32 - 1)


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def product(
    rows: NDArray[np.float32], matrix: NDArray[np.float32], bias: NDArray[np.float32]
) -> NDArray[np.float32]:
    out = np.full((len(rows), matrix.shape[1]), 7, dtype=np.float32)
    multiply_rows(rows, matrix, bias, out)
    return out


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.full(rows.shape, 7, dtype=np.float32)
    normalize_rows(rows, out)
    return out


@pytest.mark.parametrize("depth", [0, 1, 2, 37])
def test_multiply_any_width(depth: int) -> None:
    for width in range(1, 201):
        rows, matrix, bias = normal(3, depth), normal(depth, width, seed=1), normal(width, seed=2)
        right = rows.astype(np.float64) @ matrix + bias
        np.testing.assert_allclose(product(rows, matrix, bias), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [3, 16, 70])
def test_multiply_no_rows(width: int) -> None:
    assert product(normal(0, 3), normal(3, width), normal(width)).shape == (0, width)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(1, 40), SEEDS, st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_normalize_rows(n: int, dim: int, seed: int, scale: float) -> None:
    """Of any length: squares of 1e30 overflow in float32."""
    rows = (scale * normal(n, dim, seed=seed).astype(np.float64)).astype(np.float32)
    exact = rows.astype(np.float64)
    right = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    np.testing.assert_allclose(unit(rows), right, rtol=1e-5, atol=1e-6)


def test_rows_of_zeros_stay_zeros() -> None:
    found = unit(np.array([[0, 0, 0], [0, 3, 4]], dtype=np.float32))
    np.testing.assert_allclose(found, [[0, 0, 0], [0, 0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_become_nan(value: float) -> None:
    """And no others."""
    rows = normal(3, 20)
    right = unit(rows)
    rows[1, 4] = value
    found = unit(rows)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[[0, 2]], right[[0, 2]])


@pytest.mark.parametrize("width", [5, 16, 57, 64, 130])
def test_all_back_ends_agree(simd: str, width: int) -> None:
    arrays = normal(9, 50), normal(50, width, seed=1), normal(width, seed=2)
    mine = product(*arrays), unit(arrays[0])
    _native.use_simd(_native.available_simd()[-1])
    other = product(*arrays), unit(arrays[0])
    _native.use_simd(simd)
    np.testing.assert_array_equal(mine[1], other[1])
    if simd == "plain":
        np.testing.assert_allclose(mine[0], other[0], rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(mine[0], other[0])


REFUSED: dict[str, Callable[[], Any]] = {
    "depth": lambda: multiply_rows(normal(2, 3), normal(4, 5), normal(5), normal(2, 5)),
    "bias": lambda: multiply_rows(normal(2, 3), normal(3, 5), normal(4), normal(2, 5)),
    "out": lambda: multiply_rows(normal(2, 3), normal(3, 5), normal(5), normal(3, 5)),
    "columns": lambda: multiply_rows(normal(2, 3), normal(3, 5), normal(5), normal(2, 6)),
    "type": lambda: multiply_rows(normal(2, 3), np.ones((3, 5)), normal(5), normal(2, 5)),
    "strided": lambda: multiply_rows(normal(2, 6)[:, ::2], normal(3, 5), normal(5), normal(2, 5)),
    "unit": lambda: normalize_rows(normal(2, 3), normal(3, 2)),
    "unit type": lambda: normalize_rows(normal(2, 3), np.ones((2, 3))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arrays_are_refused(case: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        REFUSED[case]()
