"""What held-out queries say of a router and a partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import random_partition

from irli.learning.partition import Partition
from irli.learning.validation import Validation


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    queries=st.integers(1, 15),
    wanted=st.integers(1, 10),
    buckets=st.integers(1, 12),
    padding=st.floats(0, 0.8),
)
def test_a_partition_is_not_worse_than_itself(
    seed: int, queries: int, wanted: int, buckets: int, padding: float
) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 40, size=(queries, wanted))
    truth[rng.random(truth.shape) < padding] = -1
    truth[0, 0] = 0
    logits = rng.normal(size=(queries, buckets)) * 3
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    partition = random_partition(40, buckets, seed=seed)
    held = Validation(truth)
    assert held.not_worse(logs.astype(np.float32), partition, partition)


def test_a_partition_that_finds_less_for_the_same_work_is_worse() -> None:
    """20 queries, each sure of one bucket, which holds what it wants; or its neighbour does."""
    p = np.full((20, 20), 0.01) + 0.7 * np.eye(20)
    logs = np.log(p / p.sum(axis=1, keepdims=True)).astype(np.float32)
    right = Partition(20, np.arange(20, dtype=np.int32)[:, None])
    wrong = Partition(20, np.roll(right.assignment, 1, axis=0))
    held = Validation(np.arange(20)[:, None])
    assert held.not_worse(logs, right, wrong)
    assert not held.not_worse(logs, wrong, right)


def test_measures() -> None:
    p = np.full((2, 20), 0.01)
    p[0, 3], p[1, 4] = 0.5, 0.6
    p[:, 10:19] = 0.001
    logs = np.log(p).astype(np.float32)
    partition = Partition(20, np.array([[3, 10], [4, -1], [19, -1], [15, 16]], dtype=np.int32))
    held = Validation(np.array([[0, 1, -1], [1, 3, 0]]))
    # Query 0 has bucket 3, query 1 bucket 4 of probability .5 and .6, the rest .01 or .001.
    right = np.mean([0.5, 0.01, 0.6, 0.001, 0.01])
    assert held.affinity(logs, partition) == pytest.approx(right, rel=1e-4)
    assert held.recall_at_probes(logs, partition) == pytest.approx(4 / 5)
