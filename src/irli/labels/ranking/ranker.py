"""Ranker: train, pack and prune a linear classifier per label, to rerank what the index finds.

Each classifier is trained against hard negatives (see `irli.labels.ranking.negatives`). Small
weights are dropped. The rest is stored by feature, in
three bytes each, so scoring a row reads only the weights of the row's own features.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.progress import Progress, ticking
from irli.base.threads import run_all
from irli.base.types import Sparse
from irli.engine.linear import (
    PackedWeights,
    RowLists,
    StartWeights,
    TrainedWeights,
    TrainingRows,
    pack_weights,
    train_classifiers,
    unpack_labels,
)
from irli.labels.build.features import to_arrays

_PIECES = 16  # pieces of work for each thread

COST = 0.25  # of a violated margin, relative to the squared norm of the weights
PASSES = 12  # over the rows of a label, at most
LEAST_PRUNE = 0.02  # smallest pruning threshold: see `Ranker.prune`


class Ranker(NamedTuple):
    """The weights of all classifiers, by feature, in three bytes each.

    Attributes
    ----------
    starts : int64 array of shape (D + 1,)
        Where the weights of each feature start.
    gaps : uint16 array of shape (weights,)
        The label of each weight, minus the label before it; for the first weight of a feature,
        minus 0. Weights of 0 bridge gaps that do not fit into 16 bits.
    weights : int8 array of shape (weights,)
        Multiples of the label's `scale`.
    scale, bias : float32 arrays of shape (L,)
    """

    starts: NDArray[np.int64]
    gaps: NDArray[np.uint16]
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def pack(cls, matrix: Sparse, bias: NDArray[np.float32]) -> Ranker:
        """Return the ranker with these weights, a CSR of shape (D, L) with ascending columns.

        Examples
        --------
        >>> matrix = sp.csr_array(np.array([[0, 0.5, -2.0]], dtype="f4"))
        >>> ranker = Ranker.pack(matrix, np.zeros(3, dtype="f4"))
        >>> ranker.gaps, ranker.weights
        (array([1, 1], dtype=uint16), array([ 127, -127], dtype=int8))
        >>> ranker.matrix().toarray()
        array([[ 0. ,  0.5, -2. ]], dtype=float32)
        """
        return cls(*pack_weights(*to_arrays(matrix), len(bias)), bias)

    @property
    def packed(self) -> PackedWeights:
        """The weights without the bias."""
        return PackedWeights(self.starts, self.gaps, self.weights, self.scale)

    def matrix(self) -> Sparse:
        """Return the weights as a CSR of shape (D, L)."""
        labels = unpack_labels(self.starts, self.gaps)
        weights = self.weights * self.scale[labels]
        shape = (len(self.starts) - 1, len(self.bias))
        starts = self.starts.copy()  # `eliminate_zeros` writes, which a mapped array refuses
        matrix: Sparse = sp.csr_array((weights, labels, starts), shape=shape)
        matrix.eliminate_zeros()
        return matrix

    def prune(self, least: float, usual: NDArray[np.float32]) -> Ranker:
        """Return the ranker without weights that add less than `least` to a usual row's margin.

        `usual` has the value of each feature in such a row (D,): see `usual_values`.
        """
        matrix = self.matrix()
        values = np.repeat(usual, np.diff(matrix.indptr))
        matrix.data[np.abs(matrix.data) * values < least] = 0
        matrix.eliminate_zeros()
        return Ranker.pack(matrix, self.bias)

    def update(self, other: Ranker, labels: NDArray[np.bool_]) -> Ranker:
        """Return the ranker with the classifiers of another for some labels, a mask (L,).

        Examples
        --------
        >>> one = Ranker.pack(sp.csr_array(np.array([[1.0, 2.0]])), np.zeros(2, dtype="f4"))
        >>> two = Ranker.pack(sp.csr_array(np.array([[3.0, 4.0]])), np.ones(2, dtype="f4"))
        >>> mixed = one.update(two, np.array([False, True]))
        >>> mixed.matrix().toarray(), mixed.bias
        (array([[1., 4.]], dtype=float32), array([0., 1.], dtype=float32))
        """
        mine, theirs = self.matrix(), other.matrix()
        mine.data[labels[mine.indices]] = 0
        theirs.data[~labels[theirs.indices]] = 0
        together = sp.csr_array(mine + theirs)
        together.eliminate_zeros()
        together.sort_indices()
        return Ranker.pack(together, np.where(labels, other.bias, self.bias))

    def margins(self, rows: Sparse) -> NDArray[np.float32]:
        """Return the margins of all labels (n, L). This is for tests and small data."""
        margins: NDArray[np.float32] = (rows @ self.matrix()).toarray() + self.bias
        return margins


def train_ranker(
    rows: Sparse,
    labels: Sparse,
    negatives: Sparse,
    *,
    cost: float,
    importance: NDArray[np.float32],
    prune: float,
    threads: int,
    seed: int = 0,
    passes: int = PASSES,
    progress: Progress = False,
    start: Ranker | None = None,
) -> Ranker:
    """Train a classifier for each label.

    Parameters
    ----------
    rows : CSR of shape (n, D)
    labels : CSR of shape (n, L)
        The labels of each row.
    negatives : CSR of shape (n, L)
        The labels proposed for each row. Those that the row carries are skipped.
    cost : float
        The cost of a violated margin, relative to the squared norm of the weights.
    importance : float32 array of shape (L,)
        A factor on the cost of a label's positive rows.
    prune : float
        Weights that add less than this to the margin of a usual row are dropped: see
        `usual_values`.
    passes : int
        Passes over the rows of a label, at most.
    start : Ranker, optional
        Classifiers that are changed as little as the rows allow: min ||w - start||^2 + loss.

    Examples
    --------
    >>> rows = sp.csr_array(np.eye(4, dtype="f4"))
    >>> labels = sp.csr_array(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype="f4"))
    >>> everything = sp.csr_array(np.ones((4, 2), dtype="f4"))
    >>> ranker = train_ranker(rows, labels, everything, cost=1.0, importance=np.ones(2, "f4"),
    ...                       prune=0.0, threads=1)
    >>> ranker.margins(rows).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    positive, negative = labels.T.tocsr(), negatives.T.tocsr()
    count, dim = positive.shape[0], rows.shape[1]
    bias, known, usual = np.zeros(count, dtype=np.float32), None, usual_values(rows)
    if start is not None:
        bias, known = start.bias.copy(), StartWeights(*to_arrays(start.matrix().T.tocsr()))
        usual = np.maximum(usual, _find_usual(start, prune))
    pieces = np.linspace(0, count, min(count, threads * _PIECES) + 1).astype(np.int64)
    found: dict[int, TrainedWeights] = {}
    data = TrainingRows(*to_arrays(rows), _square_lengths(rows), usual)
    with_label, without = _list_rows(positive), _list_rows(negative)

    def train_piece(number: int) -> None:
        found[number] = train_classifiers(
            pieces[number],
            pieces[number + 1],
            data,
            with_label,
            without,
            start=known,
            cost=cost,
            importance=importance,
            prune=prune,
            bias=bias,
            seed=seed,
            passes=passes,
        )
        tick()

    count_pieces = len(pieces) - 1
    with ticking(count_pieces, progress, "ranker") as tick:
        run_all([partial(train_piece, number) for number in range(count_pieces)], threads)
    trained = zip(*(found[number] for number in range(count_pieces)), strict=True)
    sizes, features, weights = (np.concatenate(part) for part in trained)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    by_label = sp.csr_array((weights, features, starts), shape=(count, dim))
    return Ranker.pack(by_label.T.tocsr(), bias)


def usual_values(rows: Sparse) -> NDArray[np.float32]:
    """Return the root mean square of each feature's values (D,), over the rows that have it.

    Examples
    --------
    >>> usual_values(sp.csr_array(np.array([[3.0, 0.0], [4.0, 0.0]], dtype="f4"))).round(2)
    array([3.54, 0.  ], dtype=float32)
    """
    count = np.bincount(rows.indices, minlength=rows.shape[1])
    total = np.bincount(rows.indices, weights=rows.data**2, minlength=rows.shape[1])
    usual: NDArray[np.float32] = np.sqrt(total / np.maximum(count, 1)).astype(np.float32)
    return usual


def _find_usual(ranker: Ranker, prune: float) -> NDArray[np.float32]:
    """Return values (D,) with which none of a ranker's weights would be pruned."""
    matrix = ranker.matrix()
    feature = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    least = np.full(matrix.shape[0], np.inf, dtype=np.float32)
    np.minimum.at(least, feature, np.abs(matrix.data))
    return np.float32(1.001 * prune) / least


def _list_rows(by_label: Sparse) -> RowLists:
    """Return the rows of each label. The values, which are all 1, are not converted for nothing."""
    return RowLists(
        by_label.indptr.astype(np.int64, copy=False), by_label.indices.astype(np.int32, copy=False)
    )


def _square_lengths(rows: Sparse) -> NDArray[np.float32]:
    """Return the squared norm of each row (n,), with the bias as a feature of value 1."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    total = 1 + np.bincount(row, weights=rows.data**2, minlength=rows.shape[0])
    lengths: NDArray[np.float32] = total.astype(np.float32)
    return lengths
