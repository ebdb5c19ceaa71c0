"""Place new labels in the buckets of a learned index, without retraining."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.router import Router
from irli.labels.build.features import as_sparse, hash_features
from irli.learning.partition import Partition, assign_bounded, bucket_capacity
from irli.learning.repetition import Repetition

_BLOCK = 2048  # rows routed at once
_CHOICES = 32  # best buckets of a new label that are tried first


def add_to_partitions(
    repetitions: list[Repetition], rows: Rows, labels: Sparse, recipe: Recipe
) -> list[Repetition]:
    """Return the repetitions with the m new labels, a CSR (n, m), placed in their buckets."""
    if labels.shape[1] == 0:
        return repetitions
    routed = as_sparse(hash_features(rows, recipe))
    return [
        Repetition(one.router, place_labels(one.router, one.partition, routed, labels, recipe), [])
        for one in repetitions
    ]


def place_labels(
    router: Router, partition: Partition, rows: Sparse, labels: Sparse, recipe: Recipe
) -> Partition:
    """Return the partition with new labels in the buckets to which their rows are routed.

    No bucket exceeds its capacity. A label whose best bucket is full takes the next best with room.

    Parameters
    ----------
    rows : CSR of shape (n, d)
        With the routers' features: see `hash_features`.
    labels : CSR of shape (n, m)
        Which of the m new labels each row carries.
    """
    affinity = np.zeros((labels.shape[1], partition.buckets), dtype=np.float32)
    for start in range(0, rows.shape[0], _BLOCK):
        part = slice(start, start + _BLOCK)
        affinity += labels[part].T @ np.exp(router.log_probabilities(rows[part]))

    def rank(
        items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        buckets = np.arange(partition.buckets) if among is None else among
        table = affinity[np.ix_(items, buckets)]
        order = np.argsort(-table, axis=1, kind="stable")[:, :count]
        values = np.take_along_axis(table, order[:, :2], axis=1)
        return buckets[order].astype(np.int32), values[:, 0] - values[:, -1]

    loads = partition.loads()
    entries = int(loads.sum()) + labels.shape[1]
    capacity = bucket_capacity(entries, partition.buckets, recipe.slack)
    chosen = assign_bounded(
        rank, labels.shape[1], capacity, min(_CHOICES, partition.buckets), loads
    )
    width = partition.assignment.shape[1]
    more = np.full((labels.shape[1], width), -1, dtype=np.int32)
    more[:, 0] = chosen
    return Partition(partition.buckets, np.concatenate([partition.assignment, more]))
