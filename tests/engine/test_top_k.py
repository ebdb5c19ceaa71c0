from __future__ import annotations

import numpy as np
import pytest
import torch

from irli.learning.torch_topk import largest, log_sums


@pytest.mark.parametrize("width", [5, 256, 1023, 1024, 1025, 1031, 4096, 5000])
@pytest.mark.parametrize("count", [1, 2, 5, 64, 128, 200])
def test_the_largest_of_each_row(width: int, count: int) -> None:
    count = min(count, width)
    scores = torch.from_numpy(
        np.random.default_rng(width).normal(size=(70, width)).astype(np.float32)
    )
    values, columns = largest(scores, count)
    expected = torch.sort(scores, dim=1, descending=True).values[:, :count]
    assert torch.equal(values, expected)
    assert torch.equal(torch.gather(scores, 1, columns), values)
    assert all(len(set(row.tolist())) == count for row in columns)


def test_equal_scores() -> None:
    """More than are asked for reach the bound: any of them will do, but each only once."""
    scores = torch.from_numpy(
        np.random.default_rng(0).integers(0, 3, size=(20, 2000)).astype(np.float32)
    )
    scores[3] = 1.0
    scores[4] = -torch.inf
    scores[5, 7:] = -torch.inf
    values, columns = largest(scores, 40)
    assert torch.equal(values, torch.sort(scores, dim=1, descending=True).values[:, :40])
    assert torch.equal(torch.gather(scores, 1, columns), values)
    assert all(len(set(row.tolist())) == 40 for row in columns)


def test_rows_that_are_not_contiguous() -> None:
    scores = torch.randn(3000, 9).T
    assert torch.equal(largest(scores, 10)[0], torch.topk(scores, 10, dim=1).values)


def test_no_rows() -> None:
    values, columns = largest(torch.empty(0, 2000), 3)
    assert values.shape == columns.shape == (0, 3)


@pytest.mark.parametrize("width", [1, 5, 255, 256, 257, 5000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e4])
def test_log_sums(width: int, spread: float) -> None:
    rng = np.random.default_rng(width)
    scores = torch.from_numpy(spread * rng.normal(size=(70, width)).astype(np.float32) + 5)
    expected = torch.logsumexp(scores.double(), dim=1, keepdim=True)
    np.testing.assert_allclose(log_sums(scores), expected, rtol=1e-5, atol=1e-5)
