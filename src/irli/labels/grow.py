"""New labels without learning anew: each goes to the bucket that its rows are routed to."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.engine.router import Router
from irli.labels.features import as_sparse, hash_features
from irli.labels.ranker import COST, LEAST_PRUNE, Ranker, train_ranker
from irli.learning.partition import Partition, assign_bounded, bucket_capacity
from irli.learning.repetition import Repetition

_BLOCK = 2048  # rows routed at once
_CHOICES = 32  # buckets that a new label looks at first
_OTHERS = 2000  # rows that a new label is trained against, at most


def add_to_partitions(
    repetitions: list[Repetition], rows: Rows, labels: Sparse, recipe: Recipe
) -> list[Repetition]:
    """Return the repetitions with new labels (n, m) of the rows in their buckets."""
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
    """Return the partition with new labels in it, within its bound.

    Parameters
    ----------
    rows : CSR of shape (n, d)
        As the routers see them.
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
    most = bucket_capacity(entries, partition.buckets, recipe.slack)
    chosen = assign_bounded(rank, labels.shape[1], most, min(_CHOICES, partition.buckets), loads)
    width = partition.assignment.shape[1]
    more = np.full((labels.shape[1], width), -1, dtype=np.int32)
    more[:, 0] = chosen
    return Partition(partition.buckets, np.concatenate([partition.assignment, more]))


def join_rankers(old: Ranker, new: Ranker) -> Ranker:
    """Return a ranker of the labels of both, those of `new` behind those of `old`."""
    both = sp.csr_array(sp.hstack([old.matrix(), new.matrix()], format="csr"))
    return Ranker.pack(both, np.concatenate([old.bias, new.bias]))


def train_new_labels(rows: Sparse, labels: Sparse, threads: int) -> Ranker:
    """Train the classifiers of new labels against rows that do not carry them."""
    count, new = labels.shape
    some = np.random.default_rng(0).permutation(count)[:_OTHERS]
    length = np.zeros(count, dtype=np.int64)
    length[some] = new
    columns = np.tile(np.arange(new, dtype=np.int32), len(some))
    ones = np.ones(len(columns), dtype=np.float32)
    others = sp.csr_array((ones, columns, np.concatenate([[0], np.cumsum(length)])), labels.shape)
    return train_ranker(
        rows,
        labels,
        others,
        cost=COST,
        importance=np.ones(new, dtype=np.float32),
        prune=LEAST_PRUNE,
        threads=threads,
    )
