"""Objective: what is weighed when rare labels compete with common ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.types import Sparse
from irli.labels.metrics import (
    inverse_propensity_of_counts,
    precision,
    propensity_scored_precision,
)

OBJECTIVES = ("precision", "balanced", "propensity")
DEPTHS = (1, 3, 5)
BEST = max(DEPTHS)  # labels that are measured


class Objective(NamedTuple):
    """What choices are measured by, and how much the labels count in training.

    Attributes
    ----------
    name : {"precision", "balanced", "propensity"}
        The mean of P@1, P@3 and P@5, the same of propensity-scored precision, or the mean of both.
    propensity : float64 array of shape (L,)
        The inverse propensity of each label: rare labels have more.
    importance : float32 array of shape (L,)
        How much a label's rows count in training: 1 for the most common label.
    """

    name: str
    propensity: NDArray[np.float64]
    importance: NDArray[np.float32]

    @classmethod
    def of(cls, name: str, labels: Sparse) -> Objective:
        """Return the objective for rows with these labels, a CSR of shape (n, L)."""
        counts = np.bincount(labels.indices, minlength=labels.shape[1])
        return cls.of_counts(name, counts, labels.shape[0])

    @classmethod
    def of_counts(cls, name: str, counts: NDArray[np.int64], rows: int) -> Objective:
        """Return the objective for so many rows, of which `counts` (L,) carry each label."""
        ones = np.ones(len(counts))
        weights = ones if rows < 3 else inverse_propensity_of_counts(counts, rows)
        rare = weights / weights.min()
        importance = ones if name == "precision" else rare
        return cls(name, weights, importance.astype(np.float32))

    def measure(self, found: NDArray[np.int64], truth: Sparse) -> float:
        """Return the quality of the labels found (n, k), best first."""
        plain = mean_precision(found, truth)
        if self.name == "precision":
            return plain
        rare = float(
            np.mean(
                [
                    propensity_scored_precision(found, truth, self.propensity, k)
                    for k in list_depths(found)
                ]
            )
        )
        return rare if self.name == "propensity" else (plain + rare) / 2


def mean_precision(found: NDArray[np.int64], truth: Sparse) -> float:
    """Return the mean of P@1, P@3 and P@5."""
    return float(np.mean([precision(found, truth, k) for k in list_depths(found)]))


def list_depths(found: NDArray[np.int64]) -> list[int]:
    """Return those of 1, 3 and 5 for which enough labels were found."""
    return [k for k in DEPTHS if k <= found.shape[1]]
