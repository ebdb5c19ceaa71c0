"""New labels without learning anew: each goes where its rows would look for it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.config import Recipe
from irli.labelbytes import as_floats
from irli.labelkernels import FrozenLabels
from irli.lens import untiled
from irli.partition import Partition, bounded, capacity
from irli.problem import Sparse
from irli.ranker import Ranker
from irli.router import Router, plain

_BLOCK = 2048


def routers_of(frozen: FrozenLabels) -> list[Router]:
    """Return the routers of a frozen index; those on one trunk share its arrays."""
    project = as_floats(frozen.project, frozen.project_scale)
    shape = frozen.shift.shape[1], frozen.bias.shape[1]
    out = np.stack([untiled(weights, *shape).T for weights in frozen.out])
    heads = as_floats(out, frozen.out_scale)
    trunks = list(zip(project, frozen.shift, strict=True))  # `freeze` knows them by identity
    return [
        plain(*trunks[min(r, len(trunks) - 1)], 0, out.T, frozen.bias[r])
        for r, out in enumerate(heads)
    ]


def partitions_of(frozen: FrozenLabels) -> list[Partition]:
    """Return the partitions of a frozen index."""
    found = []
    for offsets in frozen.offsets:
        labels = frozen.items[offsets[0] : offsets[-1]]
        bucket = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
        order = np.argsort(labels, kind="stable")
        label = labels[order]
        column = np.arange(len(label)) - np.searchsorted(label, label)
        assignment = np.full((len(frozen.prior), int(column.max()) + 1), -1, dtype=np.int32)
        assignment[label, column] = bucket[order]
        found.append(Partition(len(offsets) - 1, assignment))
    return found


def placed(
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
    most = capacity(entries, partition.buckets, recipe.slack)
    chosen = bounded(rank, labels.shape[1], most, min(32, partition.buckets), loads)
    width = partition.assignment.shape[1]
    more = np.full((labels.shape[1], width), -1, dtype=np.int32)
    more[:, 0] = chosen
    return Partition(partition.buckets, np.concatenate([partition.assignment, more]))


def joined(old: Ranker, new: Ranker) -> Ranker:
    """Return a ranker of the labels of both, those of `new` behind those of `old`."""
    both = sp.csr_array(sp.hstack([old.matrix(), new.matrix()], format="csr"))
    return Ranker.of(both, np.concatenate([old.bias, new.bias]))


def ranker_of(frozen: FrozenLabels) -> Ranker:
    """Return the ranker of a frozen index that has one."""
    return Ranker(frozen.starts, frozen.gaps, frozen.weights, frozen.scale, frozen.constant)
