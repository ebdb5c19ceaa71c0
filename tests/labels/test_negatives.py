"""Hard negatives: where they come from, and how many there are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from plantedlabels import labelled, random_ranker, random_rows, train

from irli.labels.ranking import negatives as module
from irli.labels.ranking.near_rows import find_near_labels
from irli.labels.ranking.negatives import as_pattern, gather_negatives, join, mine_negatives

LABELS = 30


def pattern(seed: int, rows: int = 12, share: float = 0.2) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((rows, LABELS)) < share).astype(np.int8))


def nothing(rows: int) -> sp.csr_array:
    return sp.csr_array((rows, LABELS), dtype=np.int8)


# --- patterns --------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 9), width=st.integers(1, 12))
def test_a_pattern_has_what_was_found(seed: int, rows: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    found = np.stack([rng.permutation(LABELS)[:width] for _ in range(rows)])
    found[rng.random(found.shape) < 0.3] = -1
    made = as_pattern(found, LABELS)
    right = np.zeros((rows, LABELS))
    for row, labels in enumerate(found):
        right[row, labels[labels >= 0]] = 1
    np.testing.assert_array_equal(made.toarray(), right)
    assert made.dtype == np.int8
    assert made.has_sorted_indices


def test_parts_are_joined() -> None:
    parts = [pattern(seed) for seed in range(3)]
    right = np.any([part.toarray() for part in parts], axis=0)
    np.testing.assert_array_equal(join(*parts).toarray(), right)
    assert join(parts[0]) is parts[0]


def test_sums_of_many_parts_do_not_overflow() -> None:
    """300 bytes of 1 are 44 if they are added up."""
    one = pattern(0)
    joined = join(*[one] * 300)
    np.testing.assert_array_equal(joined.toarray(), one.toarray())


# --- gathering -------------------------------------------------------------------------------


def test_negatives_come_from_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = labelled(90, LABELS, seed=1)
    proposed, among = pattern(5, rows=90, share=0.05), np.arange(0, 90, 2)
    near = find_near_labels(X, Y, among)
    found = gather_negatives(X, Y, proposed, among, seed=0, threads=1).toarray() > 0
    assert found[proposed.toarray() > 0].all()
    assert found[near.toarray() > 0].all()
    monkeypatch.setattr(module, "_RANDOM", 0)
    fewer = gather_negatives(X, Y, proposed, among, seed=0, threads=1).toarray() > 0
    np.testing.assert_array_equal(fewer, (proposed + near).toarray() > 0)
    assert (found & ~fewer).any()


def test_random_rows_are_drawn_for_each_label(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = sp.csr_array((400, 5), dtype=np.float32), pattern(0, rows=400)
    monkeypatch.setattr(module, "_RANDOM", 20)
    one, again, other = (
        gather_negatives(X, Y, nothing(400), np.arange(400), seed, 1).toarray()
        for seed in (0, 0, 1)
    )
    drawn = one.sum(axis=0)
    assert ((drawn > 10) & (drawn <= 20)).all()  # some are drawn twice
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_many_rows_have_fewer_negatives_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 500)
    assert module._limit(300, 10) == 50
    assert module._limit(300, 1) == 300
    assert module._limit(300, 10**9) == 10
    X, Y = labelled(100, LABELS, seed=1)
    found = gather_negatives(X, Y, nothing(100), np.arange(100), seed=0, threads=1)
    assert found.nnz <= 100 * 10 + LABELS * 16


# --- mining ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("width", [1, 4])
def test_what_the_ranker_puts_first_is_mined(
    threads: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MINED", width)
    monkeypatch.setattr(module, "_BLOCK", 16)
    X, known = random_rows(50, 20, seed=2), pattern(1, rows=50, share=0.1)
    ranker = random_ranker(LABELS, 20, density=1.0, seed=3)
    found = mine_negatives(ranker, X, known, threads).toarray() > 0
    margins = ranker.margins(X)
    right = known.toarray() > 0
    for row in np.flatnonzero(np.diff(X.indptr)):  # without features, no label is reached
        right[row, np.argsort(-margins[row])[:width]] = True
    np.testing.assert_array_equal(found, right)


def test_mining_mends_a_ranker_that_is_wrong_about_strangers() -> None:
    """Label 1 was never shown rows of label 0, and takes them for its own."""
    rng = np.random.default_rng(0)
    dense = np.zeros((60, 4), dtype=np.float32)
    carried = np.zeros((60, 3), dtype=np.float32)
    own = np.arange(60) % 3
    carried[np.arange(60), own] = 1
    dense[np.arange(60), own] = 1
    dense[own < 2, 3] = 1 + 0.1 * rng.random(40)  # a feature that labels 0 and 1 share
    X, Y = sp.csr_array(dense), sp.csr_array(carried)
    shown = np.zeros((60, 3))
    shown[own == 2, 1] = 1
    blind = train(X, Y, shown)
    assert (blind.margins(X)[own == 0, 1] > 0).all()
    mined = mine_negatives(blind, X, sp.csr_array(shown.astype(np.int8)), 1)
    assert mined.toarray()[own == 0, 1].all()
    taught = train(X, Y, mined.toarray())
    assert (taught.margins(X)[own == 0, 1] < 0).all()
    assert (taught.margins(X)[own == 1, 1] > 0).all()


def test_no_more_are_mined_than_there_are_labels() -> None:
    X, known = random_rows(9, 6, density=1.0), nothing(9)
    found = mine_negatives(random_ranker(LABELS, 6, density=1.0), X, known, 1)
    there = np.diff(X.indptr) > 0
    assert (np.diff(found.indptr)[there] == LABELS).all()
    assert (np.diff(found.indptr)[~there] == 0).all()
