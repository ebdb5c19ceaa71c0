"""The stages of a search, run one by one for one query."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.memory import read_only
from irli.engine.handle import make_engine
from irli.engine.search import RERANK, ROUTE, SCAN, SELECT, STAGES, run_stage
from irli.engine.vector_layout import (
    LOG_PROBABILITY,
    Scratch,
    SearchPlan,
    VectorLayout,
    make_scratch,
)

ALL = read_only(np.empty(0, dtype=bool))  # the filter that allows all items


def plan(**changes: Any) -> SearchPlan:
    """Return a plan that looks at everything, but for the changes."""
    settings = {
        "k": 5,
        "probes": 0,
        "threshold": -math.inf,
        "min_votes": 1,
        "candidates": 0,
        "score": LOG_PROBABILITY,
    }
    return SearchPlan(**{**settings, **changes})


class Stages:
    """One query on its way through an index; `scratch` shows what the last stage left."""

    def __init__(
        self,
        layout: VectorLayout,
        query: NDArray[np.float32],
        plan: SearchPlan,
        allowed: NDArray[np.bool_] = ALL,
        scratch: Scratch | None = None,
    ) -> None:
        self.layout, self.plan, self.allowed = layout, plan, read_only(allowed)
        self.query = read_only(query.reshape(1, -1))
        self.scratch = make_scratch(layout) if scratch is None else scratch
        self.engine = make_engine(layout, self.scratch)
        self.distances = np.empty(plan.k, dtype=np.float32)
        self.items = np.empty(plan.k, dtype=np.int64)

    def run(self, stage: int) -> None:
        """Run one stage; those before it must have run."""
        given = self.plan, self.allowed, self.query
        run_stage(stage, self.engine, *given, self.distances, self.items)

    def route(self) -> NDArray[np.float32]:
        """Return the log-probabilities of the buckets (R, B)."""
        self.run(ROUTE)
        return self.scratch.logits[0]

    def scan(self) -> tuple[int, int, int]:
        """Return how many buckets were probed, items found, and entries read."""
        self.run(SCAN)
        probed, found, read, _ = self.scratch.counts.tolist()
        return probed, found, read

    def select(self) -> int:
        """Return how many candidates there are."""
        self.run(SELECT)
        return int(self.scratch.counts[3])

    def rerank(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the distances and the items of the answer."""
        self.run(RERANK)
        return self.distances, self.items

    def search(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Run all stages; return the distances and the items of the answer."""
        for stage in range(len(STAGES)):
            self.run(stage)
        return self.distances, self.items
