"""NearRows: the training rows nearest to a row, and the labels that they vote for.

A row that is known stands where the ranker has a label: its features, scaled to unit length, are
its weights. So near rows are found as the ranker finds labels, through an inverted index in three
bytes a number. The most common features are left out: they take the most time and say the least.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.threads import run_all
from irli.base.types import Sparse
from irli.engine.linear import PackedWeights, find_best_outputs, pack_weights, unpack_labels
from irli.labels.build.features import to_arrays

MOST_READ = 20_000  # numbers read for a row, on average, at most
NEAREST = 30  # nearest rows whose labels are hard negatives
_BLOCK = 8192  # rows compared at once


class NearRows(NamedTuple):
    """Rows that are known, by feature, and their labels.

    Attributes
    ----------
    starts : int64 array of shape (D + 1,)
    gaps : uint16 array
    weights : int8 array
    scale : float32 array of shape (rows,)
        As in `irli.labels.ranking.ranker.Ranker`, with rows in the place of labels.
    label_starts : int64 array of shape (rows + 1,)
    labels : int32 array
        The labels of each row.
    """

    starts: NDArray[np.int64]
    gaps: NDArray[np.uint16]
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]
    label_starts: NDArray[np.int64]
    labels: NDArray[np.int32]

    @classmethod
    def pack(cls, rows: Sparse, labels: Sparse) -> NearRows:
        """Return the rows (n, D) with their labels (n, L) as an inverted index.

        Examples
        --------
        >>> rows = sp.csr_array(np.array([[3.0, 4.0], [0.0, 2.0]], dtype="f4"))
        >>> known = NearRows.pack(rows, sp.csr_array(np.eye(2, dtype="f4")))
        >>> known.starts.tolist(), known.labels.tolist()
        ([0, 1, 3], [0, 1])
        """
        return cls._pack_unit(scale_to_unit(rows), labels)

    @classmethod
    def _pack_unit(cls, unit: Sparse, labels: Sparse) -> NearRows:
        packed = pack_weights(*to_arrays(_invert(unit)), unit.shape[0])
        return cls(*packed, *to_arrays(labels)[:2])

    def unpack(self, labels: int) -> tuple[Sparse, Sparse]:
        """Return the rows (n, D), of unit length, and which of so many labels they carry (n, L).

        The numbers are rounded, and the most common features are gone.

        Examples
        --------
        >>> rows = sp.csr_array(np.array([[3.0, 4.0], [0.0, 2.0]], dtype="f4"))
        >>> known = NearRows.pack(rows, sp.csr_array(np.eye(2, dtype="f4")))
        >>> unit, carried = known.unpack(2)
        >>> unit.toarray().round(2).tolist(), carried.indices.tolist()
        ([[0.6000000238418579, 0.800000011920929], [0.0, 1.0]], [0, 1])
        """
        row = unpack_labels(self.starts, self.gaps)
        values = (self.weights * self.scale[row]).astype(np.float32)
        shape = (len(self.starts) - 1, len(self.scale))
        inverted = sp.csr_array((values, row, self.starts.copy()), shape=shape)
        inverted.eliminate_zeros()  # bridges between far rows
        ones = np.ones(len(self.labels), dtype=np.float32)
        carried = sp.csr_array(
            (ones, self.labels.copy(), self.label_starts.copy()), shape=(shape[1], labels)
        )
        return sp.csr_array(inverted.T.tocsr()), carried

    def extend(self, rows: Sparse, labels: Sparse, left_out: NDArray[np.bool_]) -> NearRows:
        """Return the known rows and then others (n, D) with labels (n, L), which may be more.

        `left_out` tells which features the known rows do not have any more (D,).

        Examples
        --------
        >>> rows = sp.csr_array(np.array([[3.0, 4.0], [0.0, 2.0]], dtype="f4"))
        >>> known = NearRows.pack(rows, sp.csr_array(np.eye(2, dtype="f4")))
        >>> more = known.extend(rows[:1], sp.csr_array(np.eye(1, 3, 2)), np.zeros(2, dtype=bool))
        >>> more.labels, more.scale.shape
        (array([0, 1, 2], dtype=int32), (3,))
        """
        old, carried = self.unpack(labels.shape[1])
        new = scale_to_unit(rows)
        new.data[left_out[new.indices]] = 0
        new.eliminate_zeros()
        unit = sp.csr_array(sp.vstack([old, new], format="csr"))
        return self._pack_unit(unit, sp.csr_array(sp.vstack([carried, labels], format="csr")))

    @property
    def packed(self) -> PackedWeights:
        """The inverted index alone."""
        return PackedWeights(self.starts, self.gaps, self.weights, self.scale)


NO_ROWS = NearRows(
    starts=np.zeros(1, dtype=np.int64),
    gaps=np.empty(0, dtype=np.uint16),
    weights=np.empty(0, dtype=np.int8),
    scale=np.empty(0, dtype=np.float32),
    label_starts=np.zeros(1, dtype=np.int64),
    labels=np.empty(0, dtype=np.int32),
)


def find_near_labels(
    rows: Sparse, labels: Sparse, among: NDArray[np.int64], most: int = 300, threads: int = 1
) -> Sparse:
    """Return the labels of the nearest rows, by cosine, of each row: a CSR of shape (n, L).

    Parameters
    ----------
    rows : CSR of shape (n, D)
    labels : CSR of shape (n, L)
    among : int64 array
        The rows that count as neighbours. A row is never its own neighbour.
    most : int
        Labels returned for a row, at most: those with the most votes. Votes are cosines.

    Examples
    --------
    >>> rows = sp.csr_array(np.array([[1, 1, 0], [2, 1, 0], [0, 0, 1]], dtype="f4"))
    >>> labels = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> find_near_labels(rows, labels, np.arange(3)).toarray()
    array([[0, 1],
           [1, 0],
           [0, 0]], dtype=int8)
    """
    n = rows.shape[0]
    position = np.full(n, -1, dtype=np.int64)
    position[among] = np.arange(len(among))
    known = NearRows.pack(rows[among], labels[among]).packed
    arrays, carried = to_arrays(rows), sp.csr_array(labels[among].astype(np.float32))
    found: list[Any] = [None] * -(-n // _BLOCK)

    def find_block(number: int) -> None:
        first = number * _BLOCK
        last = min(first + _BLOCK, n)
        cosines, near = find_best_outputs(first, last, arrays, known, NEAREST, itself=position)
        there = (near >= 0) & (cosines > 0) & (cosines < np.inf)
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        shape = (last - first, len(among))
        votes = sp.csr_array((cosines[there], near[there], starts), shape=shape) @ carried
        found[number] = keep_largest(sp.csr_array(votes), most)

    run_all([partial(find_block, number) for number in range(len(found))], threads)
    joined = sp.csr_array(sp.vstack(found))
    joined.data = np.ones(joined.nnz, dtype=np.int8)
    return joined


def keep_largest(matrix: Sparse, count: int) -> Sparse:
    """Return a CSR with the `count` largest numbers of each row. Of equal ones the first are kept.

    Examples
    --------
    >>> keep_largest(sp.csr_array(np.array([[1, 3, 3, 2], [0, 1, 0, 0]])), 2).toarray()
    array([[0, 3, 3, 0],
           [0, 1, 0, 0]])
    """
    lengths = np.diff(matrix.indptr)
    if lengths.max(initial=0) <= count:
        return matrix
    row = np.repeat(np.arange(matrix.shape[0]), lengths)
    order = np.lexsort((matrix.indices, -matrix.data, row))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    kept = place - matrix.indptr[row] < count
    starts = np.concatenate([[0], np.cumsum(np.minimum(lengths, count))])
    return sp.csr_array((matrix.data[kept], matrix.indices[kept], starts), shape=matrix.shape)


def scale_to_unit(rows: Sparse) -> Sparse:
    """Return rows (n, D) scaled to unit length. Rows of zeros stay zeros."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    values = rows.data.astype(np.float64)
    length = np.sqrt(np.bincount(row, weights=values**2, minlength=rows.shape[0]))
    unit = (values / np.where(length > 0, length, 1)[row]).astype(np.float32)
    return sp.csr_array((unit, rows.indices.copy(), rows.indptr.copy()), shape=rows.shape)


def _invert(unit: Sparse) -> Sparse:
    """Return rows feature by feature (D, n), without the most common features."""
    row = np.repeat(np.arange(unit.shape[0]), np.diff(unit.indptr))
    kept = _find_rare_features(unit)[unit.indices]
    places = (unit.indices[kept], row[kept])
    inverted: Sparse = sp.csr_array((unit.data[kept], places), shape=unit.shape[::-1])
    return inverted


def _find_rare_features(rows: Sparse) -> NDArray[np.bool_]:
    """Return a mask (D,) of the features that are rare enough to be read."""
    count = np.bincount(rows.indices, minlength=rows.shape[1]).astype(np.float64)
    order = np.argsort(count, kind="stable")
    read = np.cumsum(count[order] ** 2) / max(rows.shape[0], 1)
    rare = np.zeros(len(count), dtype=np.bool_)
    rare[order[read <= MOST_READ]] = True
    return rare
