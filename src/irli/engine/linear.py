"""Kernels of the ranker's linear classifiers: training, packing weights, computing margins.

`irli.labels.ranker` calls them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.engine.int8 import HIGHEST
from irli.engine.jit import inner, kernel

_ITERATIONS = 12  # passes over the rows of a label, at most
_TOLERANCE = 0.1  # training of a label stops when its largest violation is below this
_MOST_GAP = 2**16 - 1  # the largest gap between two labels that fits into two bytes


class TrainingRows(NamedTuple):
    """Rows as a CSR, their squared lengths, and the usual value of each feature."""

    indptr: NDArray[Any]  # (n + 1,)
    indices: NDArray[Any]
    data: NDArray[np.float32]
    lengths: NDArray[np.float32]  # (n,)
    usual: NDArray[np.float32]  # (D,)


class RowLists(NamedTuple):
    """A list of rows for each label, as the first two arrays of a CSR."""

    indptr: NDArray[Any]  # (L + 1,)
    rows: NDArray[Any]


@kernel
def count_packed(indptr: Any, labels: Any, starts: Any) -> None:
    """Count the packed weights of each feature, including the zeros that bridge large gaps."""
    for feature in range(len(indptr) - 1):
        count, last = 0, 0
        for e in range(indptr[feature], indptr[feature + 1]):
            count += 1 + max(labels[e] - last - 1, 0) // _MOST_GAP
            last = labels[e]
        starts[feature + 1] = starts[feature] + count


@kernel
def pack_weights(indptr: Any, labels: Any, data: Any, scale: Any, gaps: Any, weights: Any) -> None:
    """Pack each weight into three bytes: the gap to the label before it, and the rounded value."""
    for e in range(len(labels)):
        scale[labels[e]] = max(scale[labels[e]], abs(data[e]) / np.float32(HIGHEST))
    place = 0
    for feature in range(len(indptr) - 1):
        last = 0
        for e in range(indptr[feature], indptr[feature + 1]):
            gap = labels[e] - last
            while gap > _MOST_GAP:
                gaps[place], weights[place] = _MOST_GAP, 0
                gap -= _MOST_GAP
                place += 1
            gaps[place] = gap
            weights[place] = np.rint(data[e] / scale[labels[e]])
            last = labels[e]
            place += 1


@kernel
def unpack_weights(starts: Any, gaps: Any, labels: Any) -> None:
    """Write the label of each packed weight."""
    for feature in range(len(starts) - 1):
        label = 0
        for w in range(starts[feature], starts[feature + 1]):
            label += gaps[w]
            labels[w] = label


@inner
def _grow(array: Any, size: int) -> Any:
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@inner
def _list_members(
    label: int, positive: RowLists, negative: RowLists, is_positive: Any, member: Any
) -> tuple[int, int]:
    """List the training rows of a label: positive rows first, then hard negatives."""
    count = 0
    for e in range(positive.indptr[label], positive.indptr[label + 1]):
        member[count] = positive.rows[e]
        is_positive[positive.rows[e]] = True
        count += 1
    positives = count
    for e in range(negative.indptr[label], negative.indptr[label + 1]):
        if not is_positive[negative.rows[e]]:
            member[count] = negative.rows[e]
            count += 1
    for p in range(positives):
        is_positive[member[p]] = False
    return positives, count


@kernel
def train_classifiers(
    first: int,
    last: int,
    rows: TrainingRows,
    positive: RowLists,
    negative: RowLists,
    cost: Any,
    importance: Any,
    prune: Any,
    bias: Any,
    seed: int,
) -> tuple[Any, Any, Any]:
    """Train one label after the other.

    The rows of a label are copied first, with new numbers for its features. The data that is read
    again and again is then contiguous.

    Returns
    -------
    The number of weights of each label, and the features and values of all weights.
    """
    indptr, indices, data, lengths, usual = rows
    n, dim = len(indptr) - 1, len(usual)
    is_positive, member = np.zeros(n, np.bool_), np.empty(n, np.int64)
    number, known = np.full(dim, -1, np.int32), np.empty(dim, np.int32)
    starts, length = np.zeros(n + 1, np.int64), np.empty(n, np.float32)
    columns, values = np.empty(1024, np.int32), np.empty(1024, np.float32)
    alpha, order, weight = np.empty(n, np.float32), np.empty(n, np.int64), np.empty(dim, np.float32)
    sizes = np.zeros(last - first, np.int64)
    features, weights = np.empty(1024, np.int32), np.empty(1024, np.float32)
    filled = 0
    for label in range(first, last):
        positives, count = _list_members(label, positive, negative, is_positive, member)
        width = place = 0
        for m in range(count):
            begin, end = indptr[member[m]], indptr[member[m] + 1]
            columns = _grow(columns, place + end - begin)
            values = _grow(values, place + end - begin)
            for e in range(begin, end):
                feature = indices[e]
                if number[feature] < 0:
                    number[feature], known[width] = width, feature
                    width += 1
                columns[place], values[place] = number[feature], data[e]
                place += 1
            starts[m + 1], length[m] = place, lengths[member[m]]
        problem = (starts[: count + 1], columns, values, length, positives)
        # A random generator for the inner loop. Its seed does not depend on `first` and `last`.
        state = np.uint64(seed * 7919 + label + 1) * np.uint64(0x9E3779B97F4A7C15)
        weight[:width] = 0
        bias[label] = _descend(problem, cost * importance[label], cost, alpha, order, weight, state)
        features, weights = _grow(features, filled + width), _grow(weights, filled + width)
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
    problem: Any,
    positive_cost: Any,
    negative_cost: Any,
    alpha: Any,
    order: Any,
    weight: Any,
    state: Any,
) -> Any:
    """Minimize the squared hinge loss by dual coordinate descent (Hsieh et al. 2008).

    Rows that are safely on the right side are left out of later passes (shrinking). Returns the
    bias.
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
            half = np.float32(0.5) / (positive_cost if m < positives else negative_cost)
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


@kernel
def compute_margins(
    indptr: Any, indices: Any, data: Any, ranker: Any, found: Any, margins: Any
) -> None:
    """Write the margin of each candidate (n, C). `ranker` is an `irli.labels.ranker.Ranker`."""
    total = np.zeros(len(ranker.bias), np.float32)
    for i in range(len(found)):
        for label in found[i]:
            if label >= 0:
                total[label] = 0
        for e in range(indptr[i], indptr[i + 1]):
            label = 0
            for w in range(ranker.starts[indices[e]], ranker.starts[indices[e] + 1]):
                label += ranker.gaps[w]
                total[label] += data[e] * ranker.weights[w]
        for c in range(found.shape[1]):
            label = found[i, c]
            if label >= 0:
                margins[i, c] = total[label] * ranker.scale[label] + ranker.bias[label]
