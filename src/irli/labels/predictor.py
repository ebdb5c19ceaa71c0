"""Predictor: Algorithm 2 for labels on an index in memory, for batches of rows on threads."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import read_only
from irli.base.threads import Pool, run_all, split_batch
from irli.base.types import Sparse
from irli.engine import predict as kernels
from irli.engine.handle import Engine, make_engine
from irli.engine.label_layout import BLOCK, LabelLayout, make_label_scratch
from irli.labels.calibration import INDEX_ALONE, Calibration
from irli.labels.parameters import LabelParameters


class Predictor:
    """A label index in memory, with scratch memory for any number of threads."""

    def __init__(self, layout: LabelLayout) -> None:
        self.layout = layout = LabelLayout(*(read_only(array) for array in layout))
        self._engines: Pool[Engine] = Pool(lambda: make_engine(layout, make_label_scratch(layout)))

    def predict(
        self,
        routed: Sparse,
        ranked: Sparse,
        k: int,
        parameters: LabelParameters,
        calibration: Calibration = INDEX_ALONE,
        threads: int = 1,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores and labels (n, k), best first, padded with label -1.

        `routed` are the rows with the routers' features, `ranked` those with the ranker's.
        """
        count = routed.shape[0]
        scores = np.empty((count, k), dtype=np.float32)
        labels = np.empty((count, k), dtype=np.int64)
        plan = parameters.to_plan(k, calibration)
        first = _to_kernel_arrays(routed)
        second = first if ranked is routed else _to_kernel_arrays(ranked)

        def answer(part: slice) -> None:
            stop = min(part.stop, count)
            with self._engines.borrow() as engine:
                kernels.predict(engine, plan, first, second, part.start, stop, scores, labels)

        run_all([partial(answer, part) for part in split_batch(count, threads, BLOCK)], threads)
        return scores, labels


def _to_kernel_arrays(
    rows: Sparse,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return the arrays of a CSR with the types that the kernels are compiled for."""
    return (
        read_only(rows.indptr.astype(np.int64, copy=False)),
        read_only(rows.indices.astype(np.int32, copy=False)),
        read_only(rows.data.astype(np.float32, copy=False)),
    )
