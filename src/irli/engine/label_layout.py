"""LabelLayout: the arrays of a label index, as the native kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
