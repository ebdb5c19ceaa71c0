"""Queries as the networks take them, dense and sparse."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from irli.learning.batches import Inputs


def test_rows_of_two_arrays_follow_each_other() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.normal(size=(n, 3)).astype(np.float32) for n in (7, 4))
    first.flags.writeable = False  # as a mapped file
    both = np.concatenate([first, second])
    inputs = Inputs(first, second)
    assert len(inputs) == 11
    picked = np.array([9, 0, 6, 7, 7, 10, 3])
    np.testing.assert_array_equal(np.asarray(inputs.take(picked)), both[picked])
    blocks = [(part, np.asarray(block)) for part, block in inputs.blocks(4)]
    assert [part for part, _ in blocks] == [slice(0, 4), slice(4, 8), slice(8, 11)]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), both)


def test_sparse_rows_stay_sparse() -> None:
    rows = sp.random_array((30, 9), density=0.3, rng=np.random.default_rng(0), format="csr")
    inputs = Inputs(rows)
    picked = np.array([7, 4, 4, 29])
    taken = inputs.take(picked)
    assert sp.issparse(taken)
    np.testing.assert_array_equal(taken.toarray(), rows.toarray()[picked])
    assert [part for part, _ in inputs.blocks(20)] == [slice(0, 20), slice(20, 30)]
