"""Top-k and log-sum-exp of every row of a torch tensor of scores."""

from __future__ import annotations

import torch
from torch import Tensor

from irli.engine.top_k import LEAST_COLUMNS, MOST_LARGEST, find_top_k, log_sum_exps
from irli.learning.threads import current_threads


def top_k(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row (n, count), largest first, and their columns.

    Examples
    --------
    >>> values, columns = top_k(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    >>> columns
    tensor([[1, 2]])
    """
    few = count > MOST_LARGEST or scores.shape[1] < LEAST_COLUMNS
    if scores.device.type != "cpu" or few:
        return torch.topk(scores, count, dim=1)
    values, columns = find_top_k(scores.contiguous().numpy(), count, current_threads())
    return torch.from_numpy(values), torch.from_numpy(columns)


def log_sums(scores: Tensor) -> Tensor:
    """Return the log-sum-exp of each row (n, 1).

    Examples
    --------
    >>> log_sums(torch.zeros(1, 4)).exp()
    tensor([[4.]])
    """
    if scores.device.type != "cpu":
        return torch.logsumexp(scores, dim=1, keepdim=True)
    return torch.from_numpy(log_sum_exps(scores.contiguous().numpy(), current_threads()))
