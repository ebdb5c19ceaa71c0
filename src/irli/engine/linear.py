"""Linear classifiers: training, packing weights, finding the largest margins.

`irli.labels.ranking` calls them: the ranker, and near rows, where rows take the place of labels.
The loops are in `native/linear.cpp`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli import _native


class TrainingRows(NamedTuple):
    """Rows as a CSR, their squared lengths, and the usual value of each feature."""

    indptr: NDArray[np.int64]  # (n + 1,)
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    lengths: NDArray[np.float32]  # (n,)
    usual: NDArray[np.float32]  # (D,)


class RowLists(NamedTuple):
    """A list of rows for each label, as the first two arrays of a CSR."""

    indptr: NDArray[np.int64]  # (L + 1,)
    rows: NDArray[np.int32]


class StartWeights(NamedTuple):
    """The weights that the classifiers start from: a CSR of shape (L, D)."""

    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    values: NDArray[np.float32]


class TrainedWeights(NamedTuple):
    """The number of weights of each label, and the features and values of all weights."""

    sizes: NDArray[np.int64]  # (labels,)
    features: NDArray[np.int32]
    values: NDArray[np.float32]


class PackedWeights(NamedTuple):
    """Weights by feature, in three bytes each: see `irli.labels.ranking.ranker.Ranker`."""

    starts: NDArray[np.int64]  # (D + 1,)
    gaps: NDArray[np.uint16]
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]  # (L,)


def train_classifiers(
    first: int,
    last: int,
    rows: TrainingRows,
    positive: RowLists,
    negative: RowLists,
    *,
    start: StartWeights | None = None,
    cost: float,
    importance: NDArray[np.float32],
    prune: float,
    bias: NDArray[np.float32],
    seed: int,
    passes: int,
) -> TrainedWeights:
    """Train the classifiers of the labels from `first` to `last`.

    They start from `bias` (L,), which is written, too.

    Each minimizes the squared hinge loss by dual coordinate descent. The result for a label does
    not depend on `first` and `last`.

    Parameters
    ----------
    positive, negative : RowLists
        The rows that carry each label, and its hard negatives. A row in both is positive.
    start : StartWeights, optional
        Weights that are changed as little as the rows allow. Without them, all start at 0.
    cost : float
        The cost of a violated margin, relative to the squared norm of the weights.
    importance : float32 array of shape (L,)
        A factor on the cost of a label's positive rows.
    prune : float
        Weights that add less than this to the margin of a usual row are dropped.
    passes : int
        Passes over the rows of a label, at most.
    """
    nothing = np.zeros(len(bias) + 1, dtype=np.int64)
    begin = start or StartWeights(nothing, np.empty(0, np.int32), np.empty(0, np.float32))
    return TrainedWeights(
        *_native.train_classifiers(
            first,
            last,
            *rows,
            *positive,
            *negative,
            begin.indptr,
            begin.features,
            begin.values,
            cost,
            importance,
            prune,
            bias,
            seed,
            passes,
        )
    )


def pack_weights(
    indptr: NDArray[np.int64], labels: NDArray[np.int32], data: NDArray[np.float32], count: int
) -> PackedWeights:
    """Pack a CSR of weights (features, count labels) into three bytes each.

    The labels of each feature must ascend. A weight is stored as the gap to the label before it,
    and as a multiple of the label's scale. Weights of 0 bridge gaps that do not fit into 16 bits.

    Examples
    --------
    >>> labels, data = np.array([1, 70_000], dtype="i4"), np.array([0.5, -2], dtype="f4")
    >>> packed = pack_weights(np.array([0, 2]), labels, data, 70_001)
    >>> packed.gaps, packed.weights
    (array([    1, 65535,  4464], dtype=uint16), array([ 127,    0, -127], dtype=int8))
    """
    return PackedWeights(*_native.pack_weights(indptr, labels, data, count))


def unpack_labels(starts: NDArray[np.int64], gaps: NDArray[np.uint16]) -> NDArray[np.int32]:
    """Return the label of each packed weight, bridges included.

    Examples
    --------
    >>> gaps = np.array([1, 65535, 4464, 3], dtype=np.uint16)
    >>> unpack_labels(np.array([0, 3, 3, 4]), gaps)
    array([    1, 65536, 70000,     3], dtype=int32)
    """
    # Sums over all features overflow, but the difference of two sums is right modulo 2 ** 32.
    total = np.zeros(len(gaps) + 1, dtype=np.uint32)
    np.cumsum(gaps, dtype=np.uint32, out=total[1:])
    before = np.repeat(total[starts[:-1]], np.diff(starts))
    return np.subtract(total[1:], before, out=before).view(np.int32)


def find_best_outputs(
    first: int,
    last: int,
    rows: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    packed: PackedWeights,
    k: int,
    *,
    bias: NDArray[np.float32] | None = None,
    itself: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the k largest margins of the rows from `first` to `last`, and their outputs.

    The outputs of a packed matrix are labels, or rows that are known. Only those that share a
    feature with a row are found. Other places get output -1.

    Parameters
    ----------
    rows : indptr, indices and data of a CSR
    bias : float32 array of shape (outputs,), optional
    itself : int64 array of shape (n,), optional
        The output that each row must not find: itself.

    Examples
    --------
    >>> rows = np.array([0, 1]), np.zeros(1, dtype="i4"), np.full(1, 3, dtype="f4")
    >>> labels, data = np.array([0, 2], dtype="i4"), np.array([0.5, -2], dtype="f4")
    >>> packed = pack_weights(np.array([0, 2]), labels, data, 3)
    >>> find_best_outputs(0, 1, rows, packed, 3, bias=np.ones(3, dtype="f4"))
    (array([[ 2.5, -5. , -inf]], dtype=float32), array([[ 0,  2, -1]]))
    """
    values = np.empty((last - first, k), dtype=np.float32)
    outputs = np.empty((last - first, k), dtype=np.int64)
    none, nothing = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    _native.find_best_outputs(
        first,
        last,
        *rows,
        packed.starts,
        packed.gaps,
        packed.weights,
        packed.scale,
        none if bias is None else bias,
        nothing if itself is None else itself,
        values,
        outputs,
    )
    return values, outputs
