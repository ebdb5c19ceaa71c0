"""Near rows: which rows vote, and which of their labels are taken."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from plantedlabels import random_rows

import irli
from irli.labels import hard_negatives, tune
from irli.labels.hard_negatives import find_near_labels

LABELS, DIM = 50, 12
NEAREST, VOTED = 30, 300  # rows that vote, and labels that are returned, at most


def random_labels(rows: int, seed: int = 0, share: float = 0.1) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((rows, LABELS)) < share).astype(np.float32))


def slowly(row: int, rows: sp.csr_array, labels: sp.csr_array, among: list[int]) -> set[int]:
    """Return the labels by the definition: those of the most votes, which are cosines."""
    dense = rows.toarray().astype(np.float64)
    length = np.linalg.norm(dense, axis=1)
    unit = dense / np.where(length > 0, length, 1)[:, None]
    cosine = {other: unit[other] @ unit[row] for other in among if other != row}
    votes: dict[int, float] = defaultdict(float)
    for near in sorted(cosine, key=lambda other: -cosine[other])[:NEAREST]:
        if cosine[near] > 1e-7:
            for label in labels[[near]].indices:
                votes[int(label)] += cosine[near]
    return set(sorted(votes, key=lambda label: -votes[label])[:VOTED])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 60), share=st.floats(0.1, 1))
def test_the_labels_of_near_rows_are_found(seed: int, count: int, share: float) -> None:
    rows, labels = random_rows(count, DIM, seed=seed), random_labels(count, seed)
    some = np.flatnonzero(np.random.default_rng(seed).random(count) < share)
    found = find_near_labels(rows, labels, some)
    assert found.shape == labels.shape
    for row in range(count):
        assert set(found[[row]].indices.tolist()) == slowly(row, rows, labels, some.tolist())


def test_of_equal_votes_those_of_the_nearer_rows_are_taken() -> None:
    """A row and 400 labels of one vote each: 200 of them of the nearer of two others."""
    rows = sp.csr_array(np.array([[1, 0], [1, 0.1], [1, 2]], dtype=np.float32))
    labels = np.zeros((3, 400), dtype=np.float32)
    labels[1, 200:], labels[2, :200] = 1, 1
    found = find_near_labels(rows, sp.csr_array(labels), np.arange(3))[[0]].indices
    assert len(found) == VOTED
    assert set(range(200, 400)) <= set(found.tolist())


def test_threads_change_nothing() -> None:
    rows, labels = random_rows(3000, DIM, density=0.1), random_labels(3000, share=0.02)
    one, other = (find_near_labels(rows, labels, np.arange(0, 3000, 2), threads=t) for t in (1, 3))
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_common_features_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row reads no more than it may; two rows that share only what all have are not near."""
    dense = np.zeros((40, 21), dtype=np.float32)
    dense[:, 20] = 1
    dense[np.arange(40), np.arange(40) // 2] = 1
    rows, labels = sp.csr_array(dense), sp.csr_array(np.eye(40, dtype=np.float32))
    everyone = np.arange(40)
    assert find_near_labels(rows, labels, everyone).nnz == 40 * NEAREST
    monkeypatch.setattr(hard_negatives, "_READ", 39)
    found = find_near_labels(rows, labels, everyone)
    assert (found.indices == everyone ^ 1).all()
    monkeypatch.setattr(hard_negatives, "_READ", 0)
    assert find_near_labels(rows, labels, everyone).nnz == 0


@pytest.mark.parametrize("value", [0.0, 1e30, -1.0, 1e-30])
def test_extreme_rows_disturb_no_others(value: float) -> None:
    usual, labels = random_rows(30, DIM), random_labels(31)
    rows = sp.csr_array(sp.vstack([np.full((1, DIM), value, dtype=np.float32), usual]))
    right = find_near_labels(usual, labels[1:], np.arange(30))
    found = find_near_labels(rows, labels, np.arange(1, 31))[1:]
    np.testing.assert_array_equal(found.toarray(), right.toarray())


@pytest.mark.parametrize("each", [2, 12])
def test_near_rows_teach_where_rows_carry_many_labels(
    each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    carried = np.zeros((120, LABELS), dtype=np.float32)
    for row in carried:
        row[rng.permutation(LABELS)[:each]] = 1
    asked = []

    def watched(rows: sp.csr_array, labels: sp.csr_array, *rest: object) -> sp.csr_array:
        found = find_near_labels(rows, labels, *rest)
        asked.append(found.nnz)
        return found

    monkeypatch.setattr(tune, "find_near_labels", watched)
    recipe = irli.recipe("labels", buckets=8, choices=4, repetitions=1, hidden=8, epochs=1)
    index = irli.LabelIndex(recipe, ranker=True).fit(random_rows(120, DIM), sp.csr_array(carried))
    assert index.stats()["ranker_weights"] > 0
    assert len(asked) == (each == 12)
    assert all(count > 0 for count in asked)
