"""A build is a line: nothing is computed, copied or checked twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import METRICS

import irli
from irli import VectorIndex
from irli.base import memory
from irli.engine import metric as metrics
from irli.learning import neighbors
from irli.vectors import contents, searcher
from irli.vectors.build import ground_truth, problem
from irli.vectors.tuning import tune as tuning

RECIPE = irli.recipe("default", epochs=1, buckets=64, pieces=16, mixed_queries=50)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("queries", [False, True])
def test_fit_makes_each_thing_once(
    metric: str, queries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(40, 1, 12)) + 0.3 * rng.normal(size=(40, 50, 12))).reshape(-1, 12)
    X = X.astype(np.float32)
    counts: Counter[str] = Counter()

    def count(module: Any, name: str, what: str, only: Any = lambda *_: True) -> None:
        real = getattr(module, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            counts[what] += bool(only(*arguments))
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, counting)

    for module in (neighbors, problem, ground_truth):
        of_items = lambda _, base, *rest: len(base) == len(X)  # noqa: E731
        count(module, "exact_neighbors", "passes of exact neighbours", of_items)
    count(searcher, "VectorSearcher", "searchers")
    count(contents, "check_layout", "checks")
    for module in (memory, metrics):
        count(module, "empty_at_line", "copies", lambda shape, _: tuple(shape) == X.shape)
    before: Counter[str] = Counter()
    tune = tuning.tune

    def tune_later(*arguments: Any, **options: Any) -> Any:
        before.update(counts)
        return tune(*arguments, **options)

    monkeypatch.setattr(tuning, "tune", tune_later)
    VectorIndex(metric, recipe=RECIPE).fit(X, queries=X[::20] + 0.1 if queries else None)
    assert before["searchers"] - 1 <= 1  # the last one is tuned and kept
    assert counts["searchers"] == before["searchers"]
    assert counts["copies"] == 1
    assert counts["checks"] == before["checks"] <= 2
    assert counts["passes of exact neighbours"] == before["passes of exact neighbours"] == 2
