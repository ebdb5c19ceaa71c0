"""The largest scores of each row, and the sums of exponentials, with each back-end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli import _native
from irli.engine.top_k import log_sum_exps, top_k

pytestmark = pytest.mark.usefixtures("simd")


def scores_of(rows: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(width).normal(size=(rows, width)).astype(np.float32)


def check(scores: NDArray[np.float32], count: int, threads: int = 1) -> None:
    """The right values, largest first, each from a place of its own; of equals the first."""
    values, columns = top_k(scores, count, threads)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    np.testing.assert_array_equal(values, -np.sort(-scores, axis=1)[:, :count])
    np.testing.assert_array_equal(columns, np.argsort(-scores, axis=1, kind="stable")[:, :count])


@pytest.mark.parametrize("width", [1024, 1025, 1031, 4096, 5000])
@pytest.mark.parametrize("count", [1, 2, 5, 64, 128, 256, 257, 1000])
def test_the_largest_of_each_row(width: int, count: int) -> None:
    check(scores_of(70, width), count)
    check(scores_of(70, width), count, threads=2)


@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257])
def test_few_columns(width: int) -> None:
    for count in {1, (width + 1) // 2, min(width, 256)}:
        check(scores_of(5, width), count)


@pytest.mark.parametrize("count", [1, 40, 256])
def test_equal_scores(count: int) -> None:
    """More than are asked for reach the bound."""
    scores = np.random.default_rng(0).integers(0, 3, size=(20, 2000)).astype(np.float32)
    scores[3] = 1.0
    scores[4] = -np.inf
    scores[5, 7:] = -np.inf
    scores[6, ::2] = -0.0
    check(scores, count)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 1500), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_what_is_no_number_comes_last(width: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(4, width)).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf):
        scores[rng.random(scores.shape) < rng.random()] = value
    check(scores, min(count, width))


def test_no_rows() -> None:
    values, columns = top_k(np.empty((0, 2000), dtype=np.float32), 3, 1)
    assert values.shape == columns.shape == (0, 3)
    assert log_sum_exps(np.empty((0, 5), dtype=np.float32), 1).shape == (0, 1)


@pytest.mark.parametrize(("width", "count"), [(5, 6), (5, 0), (0, 1)])
def test_too_many_are_refused(width: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 256 columns.*Got {count} instead"):
        top_k(scores_of(2, width), count, 1)


def test_wrong_arrays_are_refused() -> None:
    scores, values = scores_of(3, 20), np.empty((3, 2), dtype=np.float32)
    for columns in (np.empty((2, 2), dtype=np.int64), np.empty((3, 3), dtype=np.int64)):
        with pytest.raises(ValueError, match="'columns' must have the shape"):
            _native.find_top_k(scores, values, columns)
    with pytest.raises(TypeError):
        _native.find_top_k(scores, values, np.empty((3, 2), dtype=np.int32))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _native.find_top_k(scores.T, values, np.empty((3, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="'sums' must have the shape"):
        _native.log_sum_exps(scores, np.empty(4, dtype=np.float32))


@pytest.mark.parametrize("width", [1, 5, 15, 16, 17, 255, 256, 257, 5000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e4])
def test_log_sum_exps(width: int, spread: float) -> None:
    scores = np.float32(spread) * scores_of(70, width) + 5
    exact = scores.astype(np.float64)
    top = exact.max(axis=1, keepdims=True)
    right = top + np.log(np.exp(exact - top).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(log_sum_exps(scores, 1), right, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(log_sum_exps(scores, 2), log_sum_exps(scores, 1))


def test_sums_pass_over_what_is_no_number() -> None:
    rows = np.full((3, 20), -np.inf, dtype=np.float32)
    rows[0, 3], rows[0, 17] = 1.0, np.nan
    rows[1, 18] = np.inf
    np.testing.assert_allclose(log_sum_exps(rows, 1)[:, 0], [1.0, np.inf, -np.inf], rtol=1e-6)


@pytest.mark.parametrize("width", [7, 100, 3000])
def test_all_back_ends_agree(simd: str, width: int) -> None:
    scores = scores_of(20, width)
    mine = log_sum_exps(scores, 1)
    _native.use_simd(_native.available_simd()[-1])
    other = log_sum_exps(scores, 1)
    _native.use_simd(simd)
    np.testing.assert_allclose(mine, other, rtol=1e-6 if simd == "plain" else 0, atol=0)
