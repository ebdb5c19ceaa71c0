"""Arrays of the label kernels: the index (`LabelLayout`), the parameters, the scratch memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_buckets, check_offsets
from irli.engine.simd import PANEL

VOTES, PROBABILITY, LOGIT, LOG_PROBABILITY = 0, 1, 2, 3
BINS = 128  # of the histogram that finds the k-th largest score
BLOCK = 8  # rows routed together, so that each weight is read once for all of them


class LabelLayout(NamedTuple):
    """A label index as kernels read it (see `irli.engine.router` and `irli.labels.ranker`)."""

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


class LabelPlan(NamedTuple):
    """The parameters of a prediction."""

    k: int
    probes: int
    candidates: int
    score: int
    by_margin: float  # weight of the ranker's margin; 0 leaves the ranker out
    by_score: float  # weight of the routers' score
    threshold: float  # added to the calibrated score


class LabelScratch(NamedTuple):
    """The scratch memory in which one thread labels rows."""

    features: NDArray[np.float32]  # (block, G)
    bytes: NDArray[np.uint8]  # (block, G rounded up): features as bytes
    steps: NDArray[np.float32]  # (block,): the value of one step of these bytes
    sums: NDArray[np.int32]  # (block, B rounded up)
    logits: NDArray[np.float32]  # (block, R, B)
    order: NDArray[np.float32]  # (max(B, L),)
    values: NDArray[np.float32]  # (L,)
    bins: NDArray[np.int32]  # (BINS,)
    probed: NDArray[np.int32]  # (B,)
    stamp: NDArray[np.int64]  # (L,): the number of the last row that found the label
    scores: NDArray[np.float32]  # (L,)
    touched: NDArray[np.int32]  # (L,)
    margins: NDArray[np.float32]  # (L,)
    clock: NDArray[np.int64]  # (1,)


def make_label_scratch(layout: LabelLayout) -> LabelScratch:
    """Allocate the scratch arrays of one thread."""
    repetitions, buckets = layout.bias.shape
    labels = len(layout.prior)
    return LabelScratch(
        features=np.empty((BLOCK, layout.shift.shape[1]), dtype=np.float32),
        bytes=np.zeros((BLOCK, 4 * layout.out.shape[2]), dtype=np.uint8),
        steps=np.empty(BLOCK, dtype=np.float32),
        sums=np.empty((BLOCK, PANEL * layout.out.shape[1]), dtype=np.int32),
        logits=np.empty((BLOCK, repetitions, buckets), dtype=np.float32),
        order=np.empty(max(buckets, labels), dtype=np.float32),
        values=np.empty(labels, dtype=np.float32),
        bins=np.empty(BINS, dtype=np.int32),
        probed=np.empty(buckets, dtype=np.int32),
        stamp=np.zeros(labels, dtype=np.int64),
        scores=np.empty(labels, dtype=np.float32),
        touched=np.empty(labels, dtype=np.int32),
        margins=np.zeros(labels, dtype=np.float32),
        clock=np.zeros(1, dtype=np.int64),
    )


# --- checks of what comes from a file --------------------------------------------------------


def check_label_layout(layout: LabelLayout) -> None:
    """Raise `FormatError` unless all arrays agree: then no kernel leaves their bounds."""
    shape = check_array("bias", layout.bias, np.float32, None, None, filled=True)
    (labels,) = check_array("prior", layout.prior, np.float32, None, filled=True)
    check_buckets(layout.offsets, layout.items, shape, labels)
    check_array("share", layout.share, np.float32, len(layout.items))
    _check_routers(layout)
    _check_ranker(layout, labels)


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
    used = layout.starts[:-1][np.diff(layout.starts) > 0]
    # The gaps of a feature add up to the label of its last weight.
    last = np.add.reduceat(layout.gaps, used, dtype=np.int64).max() if len(used) else 0
    if last >= labels:
        raise array_error("gaps", f"lead to labels in the range [0, {labels - 1}]", str(last))
