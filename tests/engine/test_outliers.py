"""Outliers: what is far from the middle of its bucket, whatever else is far away."""

from __future__ import annotations

import numpy as np
import pytest

from irli.engine import outliers as module
from irli.engine.outliers import is_usual, measure_from_middle


def test_distances_are_those_from_the_median() -> None:
    """Of the buckets 0, 1, 2, 3, 1000 and 50, 52, which begin anywhere in the entries."""
    X = np.array([0, 1, 2, 3, 1000, 50, 52], dtype=np.float32)[:, None]
    items = np.array([6, 0, 1, 2, 3, 4, 5, 6], dtype=np.int32)
    far = measure_from_middle(X, np.array([1, 6, 6, 8]), items)
    np.testing.assert_allclose(far, [4, 1, 0, 1, 998**2, 1, 1])


def test_who_is_alone_is_far() -> None:
    far = measure_from_middle(
        np.ones((3, 2), dtype=np.float32), np.array([0, 1, 3]), np.arange(3, dtype=np.int32)
    )
    assert far.tolist() == [np.inf, 0, 0]


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    offsets, items = np.array([0, 10, 10, 200, 300]), np.arange(300, dtype=np.int32)
    whole = measure_from_middle(X, offsets, items)
    monkeypatch.setattr(module, "_BLOCK", block)
    np.testing.assert_array_equal(measure_from_middle(X, offsets, items), whole)


def test_usual_is_up_to_ten_times_as_far() -> None:
    far = np.array([1.0, 100.0, 100.1, np.inf])
    assert is_usual(far, 1.0).tolist() == [True, True, False, False]
    assert is_usual(far, 0.0).all()  # most are copies
    assert is_usual(far, np.inf).all()
