"""Queries as the networks take them, dense and sparse."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from irli.learning.batches import Bag, Inputs, with_noise
from irli.learning.network import Bagged


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


def test_sparse_batches_are_the_dense_ones() -> None:
    """The bag of features is the matrix product, empty rows and blocks included."""
    torch.manual_seed(0)
    rows = sp.random_array((30, 9), density=0.3, rng=np.random.default_rng(0), format="csr")
    rows = sp.csr_array(rows.astype(np.float32))
    rows.data[rows.indptr[4] : rows.indptr[5]] = 0
    rows.eliminate_zeros()
    layer = Bagged(9, 6)
    inputs = Inputs(rows)
    picked = np.array([7, 4, 4, 29])
    with torch.no_grad():
        found = layer(inputs.take(picked)).numpy()
    table, bias = layer.table.weight.detach().numpy(), layer.bias.detach().numpy()
    np.testing.assert_allclose(found, rows.toarray()[picked] @ table + bias, rtol=1e-4, atol=1e-5)
    assert [part for part, _ in inputs.blocks(20)] == [slice(0, 20), slice(20, 30)]


def test_noise_moves_each_query_by_its_own_length() -> None:
    torch.manual_seed(0)
    batch, lengths = torch.ones(2, 20_000), np.array([1e-3, 1e3], dtype=np.float32)
    off = (with_noise(batch.double(), lengths) - batch) / torch.from_numpy(lengths)[:, None]
    assert (off.mean(dim=1) * 20_000**0.5).abs().max() < 0.05
    torch.testing.assert_close(off.norm(dim=1), torch.ones(2).double(), rtol=0.03, atol=0)


def test_what_is_sparse_or_without_noise_stays_as_it_is() -> None:
    batch = torch.randn(3, 4)
    assert with_noise(batch, np.zeros(3, dtype=np.float32)) is batch
    bag = Bag(torch.tensor([0]), torch.tensor([1.0]), torch.tensor([0]))
    assert with_noise(bag, np.ones(1, dtype=np.float32)) is bag
