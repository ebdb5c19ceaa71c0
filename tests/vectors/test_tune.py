from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from conftest import small_default, small_paper
from numpy.typing import NDArray
from planted import clusters, exact_distances, nearness

from irli import VectorIndex
from irli.errors import IrliError
from irli.vectors import tune as tuning
from irli.vectors.tune import TuneResult

METRICS = ("l2", "ip", "cosine")


def data(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Base vectors and queries like them."""
    points = clusters(35, 20, dim=10, spread=0.8, seed=seed).points
    return points[:-100], points[-100:]


def slack(values: NDArray) -> NDArray:
    """How far float32 sums may be off."""
    return 1e-5 + 1e-5 * np.abs(values)


def recall(index: VectorIndex, queries: NDArray, X: NDArray, k: int, **plan: Any) -> float:
    exact = nearness(exact_distances(queries, X, index.metric), index.metric)
    last = np.sort(exact, axis=1)[:, [k - 1]]
    found = nearness(index.search(queries, k=k, **plan).distances, index.metric)
    return float((found <= last + slack(last)).mean())


@pytest.fixture(scope="module", params=["default", "paper"])
def recipe(request: pytest.FixtureRequest) -> Any:
    return {"default": small_default(), "paper": small_paper()}[request.param]


@pytest.fixture(scope="module", params=METRICS)
def index(request: pytest.FixtureRequest, recipe: Any) -> VectorIndex:
    return VectorIndex(request.param, recipe=recipe).fit(data()[0], threads=1)


@pytest.mark.parametrize(("target", "k"), [(0.5, 10), (0.9, 1), (0.95, 10), (0.99, 20), (1.0, 5)])
def test_given_queries_reach_the_target(index: VectorIndex, target: float, k: int) -> None:
    X, queries = data()
    tuned = index.tune(recall=target, k=k, queries=queries)
    assert isinstance(tuned, TuneResult)
    assert tuned.reached
    assert tuned.recall >= target
    assert tuned.seconds > 0
    assert index.defaults == tuned.parameters
    assert recall(index, queries, X, k) >= target - 1e-9


def test_held_out_points_reach_the_target(index: VectorIndex) -> None:
    """What fit held out; an item is not its own neighbour."""
    X, queries = data()
    tuned = index.tune(recall=0.95, k=10)
    assert tuned.reached
    held = index._tuning
    assert (held.rows >= 0).all()
    exact = nearness(exact_distances(held.queries, X, index.metric), index.metric)
    exact[np.arange(len(held.rows)), held.rows] = np.inf
    last = np.sort(exact, axis=1)[:, [9]]
    found = index.search(held.queries, k=11)
    mine = found.ids == held.rows[:, None]
    distances = np.where(mine, np.inf, nearness(found.distances, index.metric))
    assert (distances <= last + slack(last)).sum() / (10 * len(last)) >= 0.95 - 1e-9
    assert recall(index, queries, X, 10) > 0.85  # and others like them nearly do


def test_fit_tunes() -> None:
    X, queries = data()
    index = VectorIndex(recipe=small_default()).fit(X, threads=1)
    assert recall(index, queries, X, 10) > 0.85
    assert (index.explain(queries, k=10).scanned < 0.8 * index.stats()["entries"]).all()


def test_queries_that_were_given_to_fit_are_held_out_too() -> None:
    X, queries = data()
    index = VectorIndex(recipe=small_default(mixed_queries=0)).fit(
        X, queries=queries + 3, threads=1
    )
    strangers = index._tuning.rows < 0
    assert 0 < strangers.sum() < len(queries)
    given = {row.tobytes() for row in queries + 3}
    assert all(row.tobytes() in given for row in index._tuning.queries[strangers])


def test_few_queries_reach_the_target_as_well_as_many_items() -> None:
    """Hard queries among easy items: on average the target would be reached without them."""
    X, queries = data()
    hard = np.random.default_rng(0).normal(scale=3, size=queries.shape).astype(np.float32)
    index = VectorIndex(recipe=small_default(mixed_queries=0, epochs=1)).fit(
        X, queries=hard, threads=1
    )
    index.tune(recall=0.9)
    strangers = index._tuning.queries[index._tuning.rows < 0]
    assert 0 < len(strangers) < 0.3 * len(index._tuning.queries)
    assert recall(index, strangers, X, 10) >= 0.9 - 1e-9


def test_a_higher_target_never_scans_less(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(trial: Any, parameters: Any) -> float:
        told = trial.searcher.explain(trial.queries, parameters.to_plan(10))
        return float((told.scanned + told.candidates).mean())

    monkeypatch.setattr(tuning._Trial, "seconds", work)
    works = [index.tune(recall=target).seconds for target in (0.3, 0.6, 0.8, 0.9, 0.95, 1.0)]
    assert works == sorted(works)
    assert works[0] < works[-1]


def test_out_of_reach_is_said(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def farthest(queries: NDArray, base: NDArray, k: int, metric: str, **_: Any) -> NDArray:
        exact = nearness(exact_distances(queries, base, metric), metric)
        return np.argsort(-exact, axis=1)[:, :k]

    monkeypatch.setattr(tuning, "exact_neighbors", farthest)
    with caplog.at_level(logging.WARNING, logger="irli"):
        tuned = index.tune(recall=0.97, k=10)
    assert not tuned.reached
    assert tuned.recall < 0.97
    assert index.defaults == tuned.parameters
    assert "recall 0.970 at k=10 is out of reach" in caplog.text
    assert (index.search(data()[1], k=3).ids >= 0).all()  # still an index
    monkeypatch.undo()
    caplog.clear()
    assert index.tune(recall=0.9).reached
    assert not caplog.records


def test_any_recall_is_in_reach(index: VectorIndex) -> None:
    """Probing everything and ranking all of it is a choice too."""
    assert index.tune(recall=1.0, k=10).reached
    assert index.tune(recall=0.0, k=10).reached


def test_k_may_exceed_the_items() -> None:
    X = clusters(4, 5, dim=4).points
    index = VectorIndex(recipe=small_default()).fit(X, threads=1)
    assert index.tune(recall=0.9, k=50).reached


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"recall": 1.5}, "recall"),
        ({"recall": -0.1}, "recall"),
        ({"recall": float("nan")}, "recall"),
        ({"recall": "high"}, "recall"),
        ({"k": 0}, "k"),
        ({"k": 2.5}, "k"),
        ({"queries": np.ones((3, 4))}, "queries"),
        ({"queries": np.ones(10)}, "queries"),
        ({"queries": np.empty((0, 10))}, "queries"),
        ({"queries": np.full((2, 10), np.nan)}, "queries"),
    ],
    ids=str,
)
def test_bad_arguments(index: VectorIndex, arguments: dict[str, Any], name: str) -> None:
    before = index.defaults
    with pytest.raises(IrliError, match=f"'{name}' parameter"):
        index.tune(**arguments)
    assert index.defaults == before


def test_what_takes_too_long_is_not_tried_to_the_end() -> None:
    class Slow:
        asked = 0

        def recall(self, parameters: Any) -> tuple[float, float]:
            self.asked += 1
            return 0.0, float(self.asked)

    trial = Slow()
    _, reached = tuning._find_cheapest(trial, tuning._by_threshold, 0.9, bound=3.5)  # type: ignore[arg-type]
    assert not reached
    assert trial.asked == 4
