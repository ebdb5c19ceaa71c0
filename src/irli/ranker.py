"""The ranker: a linear classifier for each label, which orders the labels that the index found.

Each is trained against the rows that are hard for it: those for which the index proposed the label
wrongly. Its small weights are dropped, and all are stored by feature, so that
scoring a row reads only what belongs to the row's own features.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.kernels import kernel
from irli.problem import Sparse
from irli.threads import run_all

_ITERATIONS = 12  # over the rows of a label, at most
_TOLERANCE = 0.05  # of the largest violation at which a label's classifier is good enough
_PIECES = 16  # of the labels for each thread


class Ranker(NamedTuple):
    """Weights by feature.

    Attributes
    ----------
    starts : int64 array of shape (D + 1,)
        Where the weights of each feature start.
    labels : int32 array of shape (weights,)
        The label of each weight.
    weights : float32 array of shape (weights,)
    bias : float32 array of shape (L,)
    """

    starts: NDArray[np.int64]
    labels: NDArray[np.int32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def margins(self, rows: Sparse) -> NDArray[np.float32]:
        """Return the scores of all labels (n, L): for tests and small data."""
        shape = (len(self.starts) - 1, len(self.bias))
        matrix = sp.csr_array((self.weights, self.labels, self.starts), shape=shape)
        margins: NDArray[np.float32] = (rows @ matrix).toarray() + self.bias
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
        Weights smaller than this are dropped.

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

    def piece(number: int) -> None:
        found[number] = _train(
            pieces[number],
            pieces[number + 1],
            (rows.indptr, rows.indices, rows.data, dim),
            (own.indptr, own.indices),
            (other.indptr, other.indices),
            cost,
            importance,
            np.float32(prune),
            bias,
            seed,
        )

    run_all([partial(piece, number) for number in range(len(found))], threads)
    sizes, features, weights = (np.concatenate(part) for part in zip(*found, strict=True))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    by_label = sp.csr_array((weights, features, starts), shape=(count, dim))
    by_feature = by_label.T.tocsr()
    return Ranker(
        by_feature.indptr.astype(np.int64),
        by_feature.indices.astype(np.int32),
        by_feature.data.astype(np.float32),
        bias,
    )


@kernel
def _grown(array: Any, size: int) -> Any:
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def _members(
    label: int, own: Any, other: Any, carried: Any, member: Any, sign: Any
) -> tuple[int, int]:
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
    sign[:positives] = 1
    sign[positives:count] = -1
    return positives, count


@kernel
def _train(
    first: int,
    last: int,
    rows: Any,
    own: Any,
    other: Any,
    cost: float,
    importance: Any,
    prune: Any,
    bias: Any,
    seed: int,
) -> tuple[Any, Any, Any]:
    """Dual coordinate descent of the squared hinge loss (Hsieh et al. 2008), label by label."""
    indptr, indices, data, dim = rows
    n = len(indptr) - 1
    carried = np.zeros(n, np.bool_)
    member, sign = np.empty(n, np.int64), np.empty(n, np.float32)
    alpha, square = np.empty(n, np.float32), np.empty(n, np.float32)
    weight, seen = np.zeros(dim, np.float32), np.zeros(dim, np.bool_)
    sizes = np.zeros(last - first, np.int64)
    features, weights = np.empty(1024, np.int32), np.empty(1024, np.float32)
    filled = 0
    for label in range(first, last):
        positives, count = _members(label, own, other, carried, member, sign)
        for m in range(count):
            alpha[m] = 0
            total = np.float32(1.0)  # the bias is a feature of value 1
            for e in range(indptr[member[m]], indptr[member[m] + 1]):
                total += data[e] * data[e]
            square[m] = total
        order = np.arange(count)
        # A generator small enough for the inner loop, the same whatever piece the label is in.
        state = np.uint64(seed * 7919 + label + 1) * np.uint64(0x9E3779B97F4A7C15)
        offset = np.float32(0.0)
        for _ in range(_ITERATIONS):
            worst = 0.0
            for m in range(count - 1, 0, -1):
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                swap = int(state >> np.uint64(33)) % (m + 1)
                order[m], order[swap] = order[swap], order[m]
            for place in range(count):
                m = order[place]
                start, stop = indptr[member[m]], indptr[member[m] + 1]
                margin = offset
                for e in range(start, stop):
                    margin += weight[indices[e]] * data[e]
                price = cost * importance[label] if m < positives else cost
                slope = sign[m] * margin - 1 + alpha[m] / (2 * price)
                if alpha[m] == 0 and slope >= 0:
                    continue
                worst = max(worst, abs(slope))
                new = max(alpha[m] - slope / (square[m] + 1 / (2 * price)), 0.0)
                step = np.float32((new - alpha[m]) * sign[m])
                alpha[m] = new
                offset += step
                for e in range(start, stop):
                    weight[indices[e]] += step * data[e]
            if worst < _TOLERANCE:
                break
        bias[label] = offset
        before = filled
        for m in range(count):
            if alpha[m] == 0:
                continue
            for e in range(indptr[member[m]], indptr[member[m] + 1]):
                feature = indices[e]
                if not seen[feature]:
                    seen[feature] = True
                    features, weights = _grown(features, filled + 1), _grown(weights, filled + 1)
                    features[filled] = feature
                    filled += 1
        kept = before
        for f in range(before, filled):
            feature = features[f]
            value = weight[feature]
            weight[feature], seen[feature] = 0, False
            if abs(value) >= prune and value != 0:
                features[kept], weights[kept] = feature, value
                kept += 1
        filled = kept
        sizes[label - first] = kept - before
    return sizes, features[:filled], weights[:filled]
