"""The ranker: a linear classifier for each label, which orders the labels that the index found.

Each is trained against the rows that are hard for it: those for which the index proposed the label
wrongly, or near which it was right. Its small weights are dropped, and all are stored by feature,
so that scoring a row reads only what belongs to the row's own features: three bytes a weight.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.compiled import inner, kernel
from irli.labelbytes import MOST
from irli.problem import Sparse
from irli.threads import run_all

_ITERATIONS = 12  # over the rows of a label, at most
_TOLERANCE = 0.1  # of the largest violation at which a label's classifier is good enough
_PIECES = 16  # of the labels for each thread
_FAR = 2**16 - 1  # the greatest distance of two labels in two bytes


class Ranker(NamedTuple):
    """Weights by feature, three bytes each.

    Attributes
    ----------
    starts : int64 array of shape (D + 1,)
        Where the weights of each feature start.
    gaps : uint16 array of shape (weights,)
        The label of each weight, as the distance from the one before it; of a feature's first
        weight, from 0. Greater distances are bridged by weights of 0.
    weights : int8 array of shape (weights,)
        Whole numbers, of `scale` each.
    scale, bias : float32 arrays of shape (L,)
    """

    starts: NDArray[np.int64]
    gaps: NDArray[np.uint16]
    weights: NDArray[np.int8]
    scale: NDArray[np.float32]
    bias: NDArray[np.float32]

    @classmethod
    def of(cls, matrix: Sparse, bias: NDArray[np.float32]) -> Ranker:
        """Return the ranker of the weights (D, L), a CSR with ascending columns.

        Examples
        --------
        >>> matrix = sp.csr_array(np.array([[0, 0.5, -2.0]], dtype="f4"))
        >>> ranker = Ranker.of(matrix, np.zeros(3, dtype="f4"))
        >>> ranker.gaps, ranker.weights
        (array([1, 1], dtype=uint16), array([ 127, -127], dtype=int8))
        >>> ranker.matrix().toarray()
        array([[ 0. ,  0.5, -2. ]], dtype=float32)
        """
        starts = np.zeros(matrix.shape[0] + 1, dtype=np.int64)
        labels = matrix.indices.astype(np.int32, copy=False)
        data = matrix.data.astype(np.float32, copy=False)
        indptr = matrix.indptr.astype(np.int64)
        _count(indptr, labels, starts)
        scale = np.zeros(len(bias), dtype=np.float32)
        gaps = np.empty(starts[-1], dtype=np.uint16)
        weights = np.empty(starts[-1], dtype=np.int8)
        _pack(indptr, labels, data, scale, gaps, weights)
        return cls(starts, gaps, weights, scale, bias)

    def matrix(self) -> Sparse:
        """Return the weights (D, L)."""
        labels = np.empty(len(self.gaps), dtype=np.int32)
        _unpack(self.starts, self.gaps, labels)
        weights = self.weights * self.scale[labels]
        shape = (len(self.starts) - 1, len(self.bias))
        starts = self.starts.copy()  # `eliminate_zeros` writes, which a mapped array refuses
        matrix: Sparse = sp.csr_array((weights, labels, starts), shape=shape)
        matrix.eliminate_zeros()
        return matrix

    def pruned(self, prune: float, usual: NDArray[np.float32]) -> Ranker:
        """Return the ranker without weights that add less than `prune` to a usual row's margin.

        `usual` are the values of the features there (D,), see `usual_values`.
        """
        matrix = self.matrix()
        value = np.repeat(usual, np.diff(matrix.indptr))
        matrix.data[np.abs(matrix.data) * value < prune] = 0
        matrix.eliminate_zeros()
        return Ranker.of(matrix, self.bias)

    def margins(self, rows: Sparse) -> NDArray[np.float32]:
        """Return the scores of all labels (n, L): for tests and small data."""
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
) -> Ranker:
    """Train the classifiers of all labels.

    Parameters
    ----------
    rows : CSR of shape (n, D)
    labels : CSR of shape (n, L)
        What each row carries.
    negatives : CSR of shape (n, L)
        What was proposed for each row; what it carries as well is no negative.
    cost : float
        How much a violated margin costs against the size of the weights.
    importance : float32 array of shape (L,)
        How much more a label's own rows cost.
    prune : float
        Weights that add less than this to the margin of a usual row are dropped.

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
    own = sp.csr_array(labels.T.tocsr())
    other = sp.csr_array(negatives.T.tocsr())
    count, dim = own.shape[0], rows.shape[1]
    bias = np.zeros(count, dtype=np.float32)
    pieces = np.linspace(0, count, min(count, threads * _PIECES) + 1).astype(np.int64)
    found: list[Any] = [None] * (len(pieces) - 1)
    data = (rows.indptr, rows.indices, rows.data, _lengths(rows), usual_values(rows))

    def piece(number: int) -> None:
        found[number] = _train(
            pieces[number],
            pieces[number + 1],
            data,
            (own.indptr, own.indices),
            (other.indptr, other.indices),
            np.float32(cost),
            importance,
            np.float32(prune),
            bias,
            seed,
        )

    run_all([partial(piece, number) for number in range(len(found))], threads)
    sizes, features, weights = (np.concatenate(part) for part in zip(*found, strict=True))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    by_label = sp.csr_array((weights, features, starts), shape=(count, dim))
    return Ranker.of(by_label.T.tocsr(), bias)


@kernel
def _count(indptr: Any, labels: Any, starts: Any) -> None:
    """Count the weights of each feature, with those that bridge."""
    for feature in range(len(indptr) - 1):
        count, last = 0, 0
        for e in range(indptr[feature], indptr[feature + 1]):
            count += 1 + max(labels[e] - last - 1, 0) // _FAR
            last = labels[e]
        starts[feature + 1] = starts[feature] + count


@kernel
def _pack(indptr: Any, labels: Any, data: Any, scale: Any, gaps: Any, weights: Any) -> None:
    for e in range(len(labels)):
        scale[labels[e]] = max(scale[labels[e]], abs(data[e]) / np.float32(MOST))
    place = 0
    for feature in range(len(indptr) - 1):
        last = 0
        for e in range(indptr[feature], indptr[feature + 1]):
            gap = labels[e] - last
            while gap > _FAR:
                gaps[place], weights[place] = _FAR, 0
                gap -= _FAR
                place += 1
            gaps[place] = gap
            weights[place] = np.rint(data[e] / scale[labels[e]])
            last = labels[e]
            place += 1


@kernel
def _unpack(starts: Any, gaps: Any, labels: Any) -> None:
    for feature in range(len(starts) - 1):
        label = 0
        for w in range(starts[feature], starts[feature + 1]):
            label += gaps[w]
            labels[w] = label


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


def _lengths(rows: Sparse) -> NDArray[np.float32]:
    """Return the squared length of each row (n,); the bias is a feature of value 1."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    total = 1 + np.bincount(row, weights=rows.data**2, minlength=rows.shape[0])
    lengths: NDArray[np.float32] = total.astype(np.float32)
    return lengths


@inner
def _grown(array: Any, size: int) -> Any:
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@inner
def _members(label: int, own: Any, other: Any, carried: Any, member: Any) -> tuple[int, int]:
    """List the rows of a label's classifier: its own first, then the proposals that were wrong."""
    count = 0
    for e in range(own[0][label], own[0][label + 1]):
        member[count] = own[1][e]
        carried[own[1][e]] = True
        count += 1
    positives = count
    for e in range(other[0][label], other[0][label + 1]):
        if not carried[other[1][e]]:
            member[count] = other[1][e]
            count += 1
    for p in range(positives):
        carried[member[p]] = False
    return positives, count


@kernel
def _train(
    first: int,
    last: int,
    rows: Any,
    own: Any,
    other: Any,
    cost: Any,
    importance: Any,
    prune: Any,
    bias: Any,
    seed: int,
) -> tuple[Any, Any, Any]:
    """Train label by label; return how many weights each has, and their features and values.

    The rows of a label are copied first, with its features numbered anew: what is read again and
    again then lies together.
    """
    indptr, indices, data, lengths, usual = rows
    n, dim = len(indptr) - 1, len(usual)
    carried, member = np.zeros(n, np.bool_), np.empty(n, np.int64)
    number, known = np.full(dim, -1, np.int32), np.empty(dim, np.int32)
    starts, length = np.zeros(n + 1, np.int64), np.empty(n, np.float32)
    columns, values = np.empty(1024, np.int32), np.empty(1024, np.float32)
    alpha, order, weight = np.empty(n, np.float32), np.empty(n, np.int64), np.empty(dim, np.float32)
    sizes = np.zeros(last - first, np.int64)
    features, weights = np.empty(1024, np.int32), np.empty(1024, np.float32)
    filled = 0
    for label in range(first, last):
        positives, count = _members(label, own, other, carried, member)
        width = place = 0
        for m in range(count):
            begin, end = indptr[member[m]], indptr[member[m] + 1]
            columns = _grown(columns, place + end - begin)
            values = _grown(values, place + end - begin)
            for e in range(begin, end):
                feature = indices[e]
                if number[feature] < 0:
                    number[feature], known[width] = width, feature
                    width += 1
                columns[place], values[place] = number[feature], data[e]
                place += 1
            starts[m + 1], length[m] = place, lengths[member[m]]
        problem = (starts[: count + 1], columns, values, length, positives)
        # A generator small enough for the inner loop, the same whatever piece the label is in.
        state = np.uint64(seed * 7919 + label + 1) * np.uint64(0x9E3779B97F4A7C15)
        weight[:width] = 0
        bias[label] = _descend(problem, cost * importance[label], cost, alpha, order, weight, state)
        features, weights = _grown(features, filled + width), _grown(weights, filled + width)
        before = filled
        for f in range(width):
            feature, value = known[f], weight[f]
            number[feature] = -1
            if abs(value) * usual[feature] >= prune and value != 0:
                features[filled], weights[filled] = feature, value
                filled += 1
        sizes[label - first] = filled - before
    return sizes, features[:filled], weights[:filled]


@inner
def _descend(
    problem: Any, dear: Any, cheap: Any, alpha: Any, order: Any, weight: Any, state: Any
) -> Any:
    """Dual coordinate descent of the squared hinge loss (Hsieh et al. 2008); return the bias.

    Rows that lie safely on their side are left out from then on (their section 3.1).
    """
    starts, columns, values, length, positives = problem
    count = active = len(starts) - 1
    alpha[:count] = 0
    for m in range(count):
        order[m] = m
    offset, limit = np.float32(0.0), np.float32(np.inf)
    for _ in range(_ITERATIONS):
        for m in range(active - 1, 0, -1):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            swap = ((state >> np.uint64(32)) * np.uint64(m + 1)) >> np.uint64(32)
            order[m], order[swap] = order[swap], order[m]
        worst, place = np.float32(0.0), 0
        while place < active:
            m = order[place]
            margin = offset
            for e in range(starts[m], starts[m + 1]):
                margin += weight[np.uint32(columns[e])] * values[e]
            sign = np.float32(1.0 if m < positives else -1.0)
            half = np.float32(0.5) / (dear if m < positives else cheap)
            slope = sign * margin - np.float32(1.0) + alpha[m] * half
            if alpha[m] == 0 and slope >= 0:
                if slope > limit:
                    active -= 1
                    order[place], order[active] = order[active], order[place]
                else:
                    place += 1
                continue
            place += 1
            worst = max(worst, abs(slope))
            new = max(alpha[m] - slope / (length[m] + half), np.float32(0.0))
            step = (new - alpha[m]) * sign
            alpha[m] = new
            offset += step
            for e in range(starts[m], starts[m + 1]):
                weight[np.uint32(columns[e])] += step * values[e]
        if worst < _TOLERANCE:
            break
        limit = worst
    return offset
