"""LabelLayout: the arrays of a label index, as the native kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli._native import PANEL
from irli.base.arrays import array_error, check_array, check_buckets, check_offsets

_GAPS = 1 << 20  # gaps added up at a time


class LabelLayout(NamedTuple):
    """A label index as kernels read it.

    See `irli.engine.router`, `irli.labels.ranking.ranker` and `irli.labels.ranking.near_rows`.
    """

    project: NDArray[np.int8]  # (T, d, G): one shared trunk (T = 1), or one for each repetition
    project_scale: NDArray[np.float32]  # (T, d)
    shift: NDArray[np.float32]  # (T, G)
    out: NDArray[np.int8]  # (R, B / 64, G / 4, 64, 4), see `irli.engine.int8`
    out_scale: NDArray[np.float32]  # (R, B)
    bias: NDArray[np.float32]  # (R, B)
    offsets: NDArray[np.int64]  # (R, B + 1): where each bucket starts in `items`
    items: NDArray[np.int32]  # (entries,): labels, bucket by bucket
    share: NDArray[np.float32]  # (entries,): P(label | bucket)
    prior: NDArray[np.float32]  # (L,): mean over the repetitions of log P(label | bucket)
    starts: NDArray[np.int64]  # (D + 1,): where the ranker's weights of each feature start, or (1,)
    gaps: NDArray[np.uint16]  # (weights,)
    weights: NDArray[np.int8]  # (weights,)
    scale: NDArray[np.float32]  # (L,), or (0,) without a ranker
    constant: NDArray[np.float32]  # (L,)
    near_starts: NDArray[np.int64]  # (D + 1,): known rows by feature, or (1,) without them
    near_gaps: NDArray[np.uint16]  # (numbers,)
    near_weights: NDArray[np.int8]  # (numbers,)
    near_scale: NDArray[np.float32]  # (known rows,)
    near_label_starts: NDArray[np.int64]  # (known rows + 1,)
    near_labels: NDArray[np.int32]  # the labels of each known row


# --- checks of what comes from a file --------------------------------------------------------


def check_label_layout(layout: LabelLayout) -> None:
    """Raise `FormatError` unless all arrays agree: then no kernel leaves their bounds."""
    shape = check_array("bias", layout.bias, np.float32, None, None, filled=True)
    (labels,) = check_array("prior", layout.prior, np.float32, None, filled=True)
    check_buckets(layout.offsets, layout.items, shape, labels)
    check_array("share", layout.share, np.float32, len(layout.items))
    _check_routers(layout)
    _check_ranker(layout, labels)
    _check_near_rows(layout, labels)


def _check_routers(layout: LabelLayout) -> None:
    repetitions, buckets = layout.bias.shape
    trunks = 1 if len(layout.shift) == 1 else repetitions
    _, width = check_array("shift", layout.shift, np.float32, trunks, None, filled=True)
    _, dim, _ = check_array("project", layout.project, np.int8, trunks, None, width, filled=True)
    check_array("project_scale", layout.project_scale, np.float32, trunks, dim)
    panels, fours = -(-buckets // PANEL), -(-width // 4)
    check_array("out", layout.out, np.int8, repetitions, panels, fours, PANEL, 4)
    check_array("out_scale", layout.out_scale, np.float32, repetitions, buckets)


def _check_ranker(layout: LabelLayout, labels: int) -> None:
    check_array("starts", layout.starts, np.int64, None, filled=True)
    (count,) = check_array("gaps", layout.gaps, np.uint16, None)
    check_array("weights", layout.weights, np.int8, count)
    check_offsets("starts", layout.starts, count)
    ranked = labels if len(layout.starts) > 1 else 0
    check_array("scale", layout.scale, np.float32, ranked)
    check_array("constant", layout.constant, np.float32, ranked)
    _check_gaps("gaps", layout.starts, layout.gaps, labels)


def _check_near_rows(layout: LabelLayout, labels: int) -> None:
    check_array("near_starts", layout.near_starts, np.int64, None, filled=True)
    (count,) = check_array("near_gaps", layout.near_gaps, np.uint16, None)
    check_array("near_weights", layout.near_weights, np.int8, count)
    check_offsets("near_starts", layout.near_starts, count)
    (rows,) = check_array("near_scale", layout.near_scale, np.float32, None)
    if len(layout.near_starts) == 1 and rows:
        raise array_error("near_scale", "be empty without features", str(rows))
    _check_gaps("near_gaps", layout.near_starts, layout.near_gaps, rows)
    check_array("near_label_starts", layout.near_label_starts, np.int64, rows + 1)
    (entries,) = check_array("near_labels", layout.near_labels, np.int32, None)
    check_offsets("near_label_starts", layout.near_label_starts, entries)
    least, most = layout.near_labels.min(initial=0), layout.near_labels.max(initial=-1)
    if least < 0 or most >= labels:
        must = f"hold labels in the range [0, {labels - 1}]"
        raise array_error("near_labels", must, str(least if least < 0 else most))


def _check_gaps(
    name: str, starts: NDArray[np.int64], gaps: NDArray[np.uint16], outputs: int
) -> None:
    last = _find_last_label(starts, gaps)
    if len(gaps) and last >= outputs:
        raise array_error(name, f"lead to numbers in the range [0, {outputs - 1}]", str(last))


def _find_last_label(starts: NDArray[np.int64], gaps: NDArray[np.uint16]) -> int:
    """Return the largest label that the gaps of a feature lead to: their sum.

    A block of gaps at a time: NumPy copies to int64 what it adds up.

    Examples
    --------
    >>> _find_last_label(np.array([0, 2, 2, 5]), np.array([4, 9, 7, 1, 1], dtype=np.uint16))
    13
    """
    last = sum_so_far = 0
    for low in range(0, len(gaps), _GAPS):
        block = gaps[low : low + _GAPS]
        first, stop = np.searchsorted(starts, [low, low + len(block)])
        begins = starts[first:stop] - low
        begins = begins[np.diff(begins, append=-1) != 0]  # features without weights begin nowhere
        continued = len(begins) == 0 or begins[0] > 0  # the block begins within a feature
        sums = np.add.reduceat(block, np.append(0, begins) if continued else begins, dtype=np.int64)
        sums[0] += sum_so_far if continued else 0
        last, sum_so_far = max(last, int(sums.max())), int(sums[-1])
    return last
