"""The largest scores of each row, and the sums of exponentials, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from irli.engine.top_k import LEAST_COLUMNS, MOST_LARGEST, find_top_k, log_sum_exps


def scores_of(rows: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(width).normal(size=(rows, width)).astype(np.float32)


def check(scores: NDArray[np.float32], count: int, threads: int = 1) -> None:
    """The right values, largest first, each from a place of its own; of equals the first."""
    values, columns = find_top_k(scores, count, threads)
    np.testing.assert_array_equal(values, -np.sort(-scores, axis=1)[:, :count])
    np.testing.assert_array_equal(columns, np.argsort(-scores, axis=1, kind="stable")[:, :count])


@pytest.mark.parametrize("width", [LEAST_COLUMNS, 1025, 1031, 4096, 5000])
@pytest.mark.parametrize("count", [1, 2, 5, 64, MOST_LARGEST])
def test_the_largest_of_each_row(width: int, count: int) -> None:
    check(scores_of(70, width), count)
    check(scores_of(70, width), count, threads=2)


@pytest.mark.parametrize("count", [1, 40])
def test_equal_scores(count: int) -> None:
    """More than are asked for reach the bound."""
    scores = np.random.default_rng(0).integers(0, 3, size=(20, 2000)).astype(np.float32)
    scores[3] = 1.0
    scores[4] = -np.inf
    scores[5, 7:] = -np.inf
    check(scores, count)


def test_no_rows() -> None:
    values, columns = find_top_k(np.empty((0, 2000), dtype=np.float32), 3, 1)
    assert values.shape == columns.shape == (0, 3)


@pytest.mark.parametrize("width", [1, 5, 255, 256, 257, 5000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e4])
def test_log_sum_exps(width: int, spread: float) -> None:
    scores = np.float32(spread) * scores_of(70, width) + 5
    exact = scores.astype(np.float64)
    top = exact.max(axis=1, keepdims=True)
    right = top + np.log(np.exp(exact - top).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(log_sum_exps(scores, 1), right, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(log_sum_exps(scores, 2), log_sum_exps(scores, 1))
