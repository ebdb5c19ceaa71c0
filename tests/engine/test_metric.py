"""How vectors are kept for each metric."""

from __future__ import annotations

import numpy as np
import pytest

from irli.engine import metric
from irli.engine.metric import ANSWER_FORM, KERNEL_METRIC, prepare_vectors


def test_every_metric_has_a_kernel_and_a_form() -> None:
    assert set(KERNEL_METRIC) == set(ANSWER_FORM) == {"l2", "ip", "cosine"}


@pytest.mark.parametrize("name", ["l2", "ip"])
def test_vectors_stay_as_they_are(name: str) -> None:
    X = np.ones((4, 3), dtype=np.float32)
    assert prepare_vectors(X, name) is X


def test_cosine_keeps_directions_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    X[7] = 0
    before = X.copy()
    monkeypatch.setattr(metric, "_BLOCK", 6)
    unit = prepare_vectors(X, "cosine")
    np.testing.assert_array_equal(X, before)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, X / np.where(length > 0, length, 1), rtol=1e-5, atol=1e-7)
