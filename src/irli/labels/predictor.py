"""Predictor: Algorithm 2 for labels on an index in memory, for batches of rows on threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli._native import LabelPredictor
from irli.base.memory import read_only
from irli.base.threads import run_batch
from irli.base.types import Rows
from irli.engine.label_layout import BLOCK, LabelLayout
from irli.labels.calibration import INDEX_ALONE, Calibration, Candidates
from irli.labels.features import to_arrays
from irli.labels.parameters import LabelParameters


class Predictor:
    """A label index in memory. Any number of threads can predict at once."""

    def __init__(self, layout: LabelLayout) -> None:
        self.layout = LabelLayout(*(read_only(np.ascontiguousarray(part)) for part in layout))
        self._native = LabelPredictor(self.layout)

    def __reduce__(self) -> tuple[Any, ...]:
        return Predictor, (self.layout,)

    def __deepcopy__(self, memo: Any) -> Predictor:
        return self  # nothing of it can change

    def predict(
        self,
        routed: Rows,
        ranked: Rows,
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
        by_routers = to_arrays(routed)
        by_ranker = by_routers if ranked is routed else to_arrays(ranked)

        def work(first: int, last: int) -> int:
            return self._native.predict(by_routers, by_ranker, plan, first, last, scores, labels)

        run_batch(work, count, threads, BLOCK)
        return scores, labels

    def list_candidates(
        self,
        routed: Rows,
        ranked: Rows,
        parameters: LabelParameters,
        calibration: Calibration,
        threads: int = 1,
    ) -> Candidates:
        """Return the candidates of rows, and what each source knows of them.

        `calibration` says which sources there are: those with a weight.
        """
        plan = parameters.to_plan(1, calibration)
        sources = 1 + (plan.by_margin > 0 and plan.own) + (plan.near > 0)
        width = max(1, min(sources * plan.candidates, len(self.layout.prior)))
        count = routed.shape[0]
        labels = np.empty((count, width), dtype=np.int64)
        scores, margins, votes = (np.empty((count, width), dtype=np.float32) for _ in range(3))
        by_routers, by_ranker = to_arrays(routed), to_arrays(ranked)

        def work(first: int, last: int) -> int:
            return self._native.list_candidates(
                by_routers, by_ranker, plan, first, last, labels, scores, margins, votes
            )

        run_batch(work, count, threads, BLOCK)
        return Candidates(labels, scores, margins, votes)
