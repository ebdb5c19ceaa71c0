"""Held-out queries while learning: recall at fixed probes, recall at equal work, affinity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.learning.partition import Partition

_PROBES = 8  # buckets probed for the recall that the history shows
_RECALL = 0.9  # partitions are compared at the work that the old one needs for this recall


class Validation:
    """What the held-out queries say of a router and a partition.

    Parameters
    ----------
    truth : int array of shape (v, j)
        The items that each query wants, -1 as padding.
    """

    def __init__(self, truth: NDArray[np.int64]) -> None:
        self.truth = np.asarray(truth)
        self.wanted = self.truth >= 0

    def recall_at_probes(
        self, log_probabilities: NDArray[np.float32], partition: Partition
    ) -> float:
        """Return the share of wanted items in the best few buckets (v, B) of each query."""
        probes = min(_PROBES, partition.buckets)
        cut = np.partition(log_probabilities, -probes, axis=1)[:, -probes]
        best = self._best(log_probabilities, partition)
        return float((best >= cut[:, None])[self.wanted].mean())

    def affinity(self, log_probabilities: NDArray[np.float32], partition: Partition) -> float:
        """Return the mean probability of the buckets of wanted items (Theorem 1: it grows)."""
        best = self._best(log_probabilities, partition)
        return float(np.exp(best[self.wanted]).mean())

    def not_worse(
        self, log_probabilities: NDArray[np.float32], new: Partition, old: Partition
    ) -> bool:
        """Tell whether `new` finds at least as much as `old` when as many items are scanned."""
        order = np.sort(log_probabilities, axis=None)[::-1]
        before = self._best(log_probabilities, old)[self.wanted]
        cut = float(np.quantile(before, 1 - _RECALL, method="lower"))
        budget = _scanned(log_probabilities, old, cut)
        low, high = 0, len(order) - 1  # bisect for the cut at which `new` scans as much
        while low < high:
            middle = (low + high + 1) // 2
            if _scanned(log_probabilities, new, float(order[middle])) <= budget:
                low = middle
            else:
                high = middle - 1
        after = self._best(log_probabilities, new)[self.wanted]
        return bool((after >= order[low]).mean() >= (before >= cut).mean())

    def _best(
        self, log_probabilities: NDArray[np.float32], partition: Partition
    ) -> NDArray[np.float32]:
        """Return the log-probability of the best bucket of each wanted item (v, j)."""
        buckets = partition.assignment[np.maximum(self.truth, 0)]  # (v, j, S)
        row = np.arange(len(self.truth))[:, None, None]
        values = log_probabilities[row, np.maximum(buckets, 0)]
        best: NDArray[np.float32] = np.where(buckets >= 0, values, -np.inf).max(axis=2)
        return best


def _scanned(log_probabilities: NDArray[np.float32], partition: Partition, cut: float) -> float:
    """Return the items scanned per query when every bucket above `cut` is probed."""
    probed = (log_probabilities >= cut).sum(axis=0)
    return float((probed * partition.loads()).sum() / len(log_probabilities))
