"""Predictor: Algorithm 2 for labels on an index in memory, for batches of rows on threads."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli._native import BLOCK, LabelPredictor
from irli.base.memory import read_only
from irli.base.threads import run_all, run_batch
from irli.base.types import Rows
from irli.engine.label_layout import LabelLayout
from irli.labels.build.features import to_arrays
from irli.labels.parameters import LabelParameters
from irli.labels.tuning.calibration import INDEX_ALONE, Calibration, Candidates

_SLOW = 1 << 26  # multiplications to score the buckets, from which on threads share a single row


class Predictor:
    """A label index in memory. Any number of threads can predict at once."""

    def __init__(self, layout: LabelLayout) -> None:
        self.layout = LabelLayout(*(read_only(np.ascontiguousarray(part)) for part in layout))
        self._native = LabelPredictor(self.layout)
        several = len(self.layout.bias) > 1
        self.is_slow_to_route = several and self.layout.out.size >= _SLOW

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
        logits = None
        if threads > 1 and count == 1 and self.is_slow_to_route:
            logits = self._route_on_threads(by_routers, threads)

        def work(first: int, last: int) -> int:
            return self._native.predict(
                by_routers, by_ranker, plan, first, last, scores, labels, logits
            )

        run_batch(work, count, threads, BLOCK)
        return scores, labels

    def _route_on_threads(self, row: Any, threads: int) -> NDArray[np.float32]:
        """Return the logits (R, B) of one row. Each thread routes some repetitions."""
        repetitions = len(self.layout.bias)
        logits = np.empty(self.layout.bias.shape, dtype=np.float32)
        cuts = np.linspace(0, repetitions, min(threads, repetitions) + 1).astype(int).tolist()
        jobs = [
            partial(self._native.route_part, row, first, last, logits)
            for first, last in itertools.pairwise(cuts)
        ]
        run_all(jobs, threads)
        return logits

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
