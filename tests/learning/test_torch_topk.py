"""Tensors of scores of any width, against torch itself."""

from __future__ import annotations

import pytest
import torch

from irli.engine.top_k import LEAST_COLUMNS, MOST_LARGEST
from irli.learning.torch_topk import log_sums, top_k


@pytest.mark.parametrize("width", [5, LEAST_COLUMNS - 1, LEAST_COLUMNS, 3000])
@pytest.mark.parametrize("count", [1, 5, MOST_LARGEST, MOST_LARGEST + 1])
def test_the_largest_of_each_row(width: int, count: int) -> None:
    """By our own loops where there are many columns, and by torch where there are few."""
    scores = torch.randn(10, width, generator=torch.Generator().manual_seed(width))
    count = min(count, width)
    values, columns = top_k(scores, count)
    assert torch.equal(values, torch.sort(scores, dim=1, descending=True).values[:, :count])
    assert torch.equal(torch.gather(scores, 1, columns), values)


@pytest.mark.parametrize("width", [9, 3000])
def test_rows_that_are_not_contiguous(width: int) -> None:
    scores = torch.randn(width, 9, generator=torch.Generator().manual_seed(0)).T
    assert torch.equal(top_k(scores, 5)[0], torch.topk(scores, 5, dim=1).values)
    torch.testing.assert_close(log_sums(scores), torch.logsumexp(scores, dim=1, keepdim=True))
