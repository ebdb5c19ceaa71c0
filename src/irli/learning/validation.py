"""Measure a router and its partition on held-out queries, and compare two partitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.learning.partition import Partition

_PROBES = 8  # probes of the recall in the history
_RECALL = 0.9  # partitions are compared at the work at which the old one has this recall


class Validation:
    """Measures of a router and a partition on held-out queries.

    Parameters
    ----------
    truth : int array of shape (v, j)
        The relevant items of each held-out query, padded with -1.
    """

    def __init__(self, truth: NDArray[np.int64]) -> None:
        self.truth = np.asarray(truth)
        self.wanted = self.truth >= 0

    def recall_at_probes(
        self, log_probabilities: NDArray[np.float32], partition: Partition
    ) -> float:
        """Return the share of relevant items that are in the best 8 buckets of their query.

        `log_probabilities` (v, B) are the router's scores of the held-out queries.
        """
        probes = min(_PROBES, partition.buckets)
        cut = np.partition(log_probabilities, -probes, axis=1)[:, -probes]
        best = self._score_best_buckets(log_probabilities, partition)
        return float((best >= cut[:, None])[self.wanted].mean())

    def affinity(self, log_scores: NDArray[np.float32], partition: Partition) -> float:
        """Return the mean affinity of relevant items, f(x) of their buckets. It grows (Theorem 1).

        `log_scores` (v, B) are the logarithms of f for the held-out queries.
        """
        best = self._score_best_buckets(log_scores, partition)
        return float(np.exp(best[self.wanted]).mean())

    def not_worse(
        self, log_probabilities: NDArray[np.float32], new: Partition, old: Partition
    ) -> bool:
        """Whether `new` has at least the recall of `old` when both scan as many items."""
        order = np.sort(log_probabilities, axis=None)[::-1]
        before = self._score_best_buckets(log_probabilities, old)[self.wanted]
        cut = float(np.quantile(before, 1 - _RECALL, method="lower"))
        budget = _count_scanned(log_probabilities, old, cut)
        low, high = 0, len(order) - 1  # bisection for the cut at which `new` scans as many
        while low < high:
            middle = (low + high + 1) // 2
            if _count_scanned(log_probabilities, new, float(order[middle])) <= budget:
                low = middle
            else:
                high = middle - 1
        after = self._score_best_buckets(log_probabilities, new)[self.wanted]
        return bool((after >= order[low]).mean() >= (before >= cut).mean())

    def _score_best_buckets(
        self, log_probabilities: NDArray[np.float32], partition: Partition
    ) -> NDArray[np.float32]:
        """Return the log-probability of the best bucket of each relevant item (v, j)."""
        buckets = partition.assignment[np.maximum(self.truth, 0)]  # (v, j, S)
        row = np.arange(len(self.truth))[:, None, None]
        values = log_probabilities[row, np.maximum(buckets, 0)]
        best: NDArray[np.float32] = np.where(buckets >= 0, values, -np.inf).max(axis=2)
        return best


def _count_scanned(
    log_probabilities: NDArray[np.float32], partition: Partition, cut: float
) -> float:
    """Return the items scanned per query if all buckets of at least `cut` are probed."""
    probed = (log_probabilities >= cut).sum(axis=0)
    return float((probed * partition.loads()).sum() / len(log_probabilities))
