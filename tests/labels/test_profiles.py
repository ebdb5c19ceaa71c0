"""Where rows and labels lie in a space of few dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from irli.labels.build.profiles import average_profiles, embed_rows, normalize


def test_profiles_are_mean_directions() -> None:
    rng = np.random.default_rng(0)
    places = rng.normal(size=(40, 6)).astype(np.float32)
    carried = (rng.random((40, 5)) < 0.3).astype(np.float32)
    carried[:, 3] = 0
    found = average_profiles(places, sp.csr_array(carried))
    assert (found[3] == 0).all()
    for label in (0, 1, 2, 4):
        rows = places[carried[:, label] > 0]
        mean = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).sum(axis=0)
        np.testing.assert_allclose(found[label], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


def test_an_embedding_keeps_the_leading_directions() -> None:
    """Of rows of low rank, all scalar products stay; of others, as much as an exact SVD keeps."""
    rng = np.random.default_rng(0)
    low = rng.normal(size=(60, 5)) @ rng.normal(size=(5, 80))
    found = embed_rows(sp.csr_array(low.astype(np.float32)), 8, seed=0)
    np.testing.assert_allclose(found @ found.T, low @ low.T, rtol=1e-2, atol=0.1)
    rows = low + 0.3 * rng.normal(size=low.shape)
    kept = np.square(embed_rows(sp.csr_array(rows.astype(np.float32)), 5, seed=0)).sum()
    best = np.square(np.linalg.svd(rows)[1][:5]).sum()
    assert 0.99 * best < kept <= 1.001 * best


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (3, 4)])
def test_an_embedding_of_few_rows_or_features(shape: tuple[int, int]) -> None:
    rows = sp.csr_array(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    found = embed_rows(rows, 128, seed=0)
    assert found.shape == (shape[0], min(shape))
    dense = rows.toarray()
    np.testing.assert_allclose(found @ found.T, dense @ dense.T, rtol=1e-3, atol=1e-3)


def test_an_embedding_of_empty_rows_is_nothing() -> None:
    found = embed_rows(sp.csr_array((6, 9), dtype=np.float32), 4, seed=0)
    assert found.shape == (6, 4)
    assert not found.any()
    assert not normalize(found).any()
