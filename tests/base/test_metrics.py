from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irli.base import metrics
from irli.base.metrics import imbalance, load_summary, recall, recall_with_ties
from irli.errors import InvalidParameter


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_recall_matches_sets(n: int, k: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = np.array([rng.permutation(20)[:12] for _ in range(n)])
    found = rng.integers(-1, 20, size=(n, width))
    expected = sum(len(set(f[:k]) & set(t[:k])) for f, t in zip(found, true, strict=True))
    assert recall(found, true, k) == pytest.approx(expected / (n * k))


def test_recall_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    true, found = rng.integers(0, 50, (2, 101, 10))
    whole = recall(found, true, 10)
    monkeypatch.setattr(metrics, "_BLOCK", 700)
    assert recall(found, true, 10) == whole


def test_recall_never_counts_padding() -> None:
    assert recall([[1, -1, -1]], [[1, -1, -1]], k=3) == 1.0
    assert recall([[-1, -1, -1]], [[1, 2, -1]], k=3) == 0.0
    assert recall([[1, 1, 1]], [[1, 2, 3]], k=3) == pytest.approx(1 / 3)


def test_recall_looks_at_the_first_k_only() -> None:
    assert recall([[9, 1]], [[1, 2]], k=1) == 0.0


def test_ties_count_as_right() -> None:
    true = [[0.0, 1.0, 1.0]]
    assert recall_with_ties([[0.0, 1.0005]], true, k=2) == 1.0
    assert recall_with_ties([[0.0, 1.0005]], true, k=2, tolerance=0) == 0.5
    assert recall_with_ties([[0.0, np.inf]], true, k=2) == 0.5
    assert recall_with_ties([[0.0, np.nan]], true, k=2) == 0.5


def test_ties_with_fewer_true_than_k() -> None:
    assert recall_with_ties([[0.0, np.inf]], [[0.0, np.inf]], k=2) == 1.0
    assert recall_with_ties([[0.0, 5.0]], [[0.0, np.inf]], k=2) == 1.0


@pytest.mark.parametrize("measure", [recall, recall_with_ties])
def test_refuses_answers_that_do_not_belong_together(measure: Callable[..., float]) -> None:
    with pytest.raises(InvalidParameter, match=r"\(1, 2\) and \(2, 2\)"):
        measure([[1, 2]], [[1, 2], [3, 4]], 2)
    with pytest.raises(InvalidParameter, match="at least k = 3 columns"):
        measure([[1, 2, 3]], [[1, 2]], 3)
    with pytest.raises(InvalidParameter, match="'k' parameter"):
        measure([[1]], [[1]], 0)


def test_refuses_truth_that_is_all_padding() -> None:
    with pytest.raises(InvalidParameter, match="'true_ids'"):
        recall([[1]], [[-1]], 1)
    with pytest.raises(InvalidParameter, match="'true_distances'"):
        recall_with_ties([[1.0]], [[np.inf]], 1)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_imbalance_bounds(loads: list[int]) -> None:
    value = imbalance(loads)
    assert 1 - 1e-9 <= value <= len(loads) + 1e-9


def test_load_summary() -> None:
    summary = load_summary(np.array([4, 0, 2, 2], dtype=np.int32))
    assert summary == {
        "mean": 2.0,
        "std": pytest.approx(np.sqrt(2)),
        "max": 4,
        "max_over_mean": 2.0,
        "empty": 1,
        "imbalance": pytest.approx(1.5),
    }


def test_loads_without_items_or_buckets() -> None:
    assert load_summary([0, 0])["imbalance"] == 1.0
    with pytest.raises(InvalidParameter, match="'loads'"):
        imbalance([])
