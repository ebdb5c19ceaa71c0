from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import small_default, small_paper
from numpy.typing import NDArray
from planted import clusters, exact_distances, nearness

import irli
from irli import VectorIndex
from irli.errors import IrliError
from irli.vectors.build.held_out import HeldOut, hold_out
from irli.vectors.parameters import OperatingPoint, SearchParameters
from irli.vectors.tune_result import TuneResult
from irli.vectors.tuning import measure as measuring
from irli.vectors.tuning import tune as tuning
from irli.vectors.tuning.measure import Evaluator, Measured, Meter, find_tuning_truth

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
    by_threshold = small_paper(search="threshold")
    return {"default": small_default(), "paper": by_threshold}[request.param]


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
    assert (tuned.k, tuned.work > 0, tuned.scanned > 0) == (k, True, True)
    assert tuned.self_hits >= 0.999
    assert index.tuned is tuned
    assert index.defaults == tuned.parameters
    assert recall(index, queries, X, k) >= target - 1e-9


def test_held_out_points_reach_the_target(index: VectorIndex) -> None:
    """What fit held out; an item is not its own neighbour."""
    X, queries = data()
    tuned = index.tune(recall=0.95, k=10)
    assert tuned.reached
    held = index._fitted().tuning
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
    strangers = index._fitted().tuning.rows < 0
    assert 0 < strangers.sum() < len(queries)
    given = {row.tobytes() for row in queries + 3}
    assert all(row.tobytes() in given for row in index._fitted().tuning.queries[strangers])


def test_few_queries_reach_the_target_as_well_as_many_items() -> None:
    """Hard queries among easy items: on average the target would be reached without them."""
    X, queries = data()
    hard = np.random.default_rng(0).normal(scale=3, size=queries.shape).astype(np.float32)
    index = VectorIndex(recipe=small_default(mixed_queries=0, epochs=1)).fit(
        X, queries=hard, threads=1
    )
    index.tune(recall=0.9)
    strangers = index._fitted().tuning.queries[index._fitted().tuning.rows < 0]
    assert 0 < len(strangers) < 0.3 * len(index._fitted().tuning.queries)
    assert recall(index, strangers, X, 10) >= 0.9 - 1e-9


def test_a_higher_target_never_takes_less_work(index: VectorIndex) -> None:
    if index.metric != "ip" and not index.recipe.self_hits:
        pytest.skip("the self-hits decide, whatever the target")
    works = [index.tune(recall=target).work for target in (0.3, 0.6, 0.8, 0.9, 0.95, 1.0)]
    assert works == sorted(works)


# --- the same result, whatever the machine does --------------------------------------------------


def test_the_same_index_is_tuned_to_the_same_parameters(index: VectorIndex) -> None:
    """Again, on more threads, and while other threads keep the machine busy."""
    right = index.tune(recall=0.9, k=7)
    assert index.tune(recall=0.9, k=7) == right
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            sum(range(10_000))

    others = [threading.Thread(target=work) for _ in range(4)]
    for other in others:
        other.start()
    try:
        irli.set_threads(3)
        assert index.tune(recall=0.9, k=7) == right
    finally:
        irli.set_threads(None)
        done.set()
        for other in others:
            other.join()


def test_no_clock_is_read(index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    right = index.tune(recall=0.9)

    def fail() -> float:
        raise AssertionError("tune must not read a clock")

    for name in ("perf_counter", "perf_counter_ns", "process_time"):
        monkeypatch.setattr(time, name, fail)
    assert index.tune(recall=0.9) == right


def test_two_fits_are_tuned_alike() -> None:
    one, other = (VectorIndex(recipe=small_default()).fit(data()[0], threads=1) for _ in range(2))
    assert one.tuned == other.tuned
    assert one.defaults == other.defaults


# --- operating points, margin and self-hits ------------------------------------------------------


def test_there_is_a_point_for_each_k(index: VectorIndex) -> None:
    points = index.tune(recall=0.9, k=7).parameters.points
    ks = [point.k for point in points]
    assert ks == sorted({7, *(min(k, len(index)) for k in tuning.KS)})
    thresholds = [point.threshold for point in points]
    assert thresholds == sorted(thresholds, reverse=True)
    centroids = [point.centroids for point in points]
    assert centroids == sorted(centroids)
    assert all((point.wide or 1) >= 1 for point in points)


@pytest.mark.parametrize("k", [1, 10, 100, 300])
def test_every_point_reaches_the_target(index: VectorIndex, k: int) -> None:
    """Not only the k that was tuned for."""
    X, queries = data()
    index.tune(recall=0.9, k=10, queries=queries)
    assert recall(index, queries, X, k) >= 0.9 - 1e-9


@pytest.mark.parametrize("k", [3, 30, 50, 200])
def test_between_the_points_nearly_all_is_found(index: VectorIndex, k: int) -> None:
    X, queries = data()
    index.tune(recall=0.9, k=10, queries=queries)
    assert recall(index, queries, X, k) >= 0.8


def make_evaluator(index: VectorIndex, k: int, held: HeldOut | None = None) -> Evaluator:
    ask, held = Meter(index._fitted().searcher, index.metric).ask, held or index._fitted().tuning
    truth = find_tuning_truth(ask, held, index.metric, k).take(slice(len(held.rows)))
    return Evaluator(ask, index.metric, k, truth, index.defaults.length)


def test_the_safe_recall_keeps_a_margin(index: VectorIndex) -> None:
    """Some standard errors of the recall of a query, which is counted here once more."""
    held, k = index._fitted().tuning, 8  # so few that a bucket holds them: `tune` does not fill up
    seen = make_evaluator(index, k).measure(SearchParameters(probes=1))
    exact = nearness(exact_distances(held.queries, data()[0], index.metric), index.metric)
    exact[np.arange(len(held.rows)), held.rows] = np.inf
    last = np.sort(exact, axis=1)[:, [k - 1]]
    found = index.search(held.queries, k=k + 1, probes=1)
    distances = nearness(found.distances, index.metric)
    hits = (distances <= last + slack(last)) & (found.ids != held.rows[:, None])
    shares = np.minimum(hits.sum(axis=1), k) / k
    assert seen.recall == pytest.approx(shares.mean(), abs=0.01)
    margin = measuring.MARGIN * shares.std() / np.sqrt(len(shares))
    assert seen.recall - seen.safe_recall == pytest.approx(margin, abs=5e-3)
    told = index.explain(held.queries, k=k + 1, probes=1)
    assert seen.scanned == pytest.approx(told.scanned.mean())
    assert seen.probed == pytest.approx(told.probed.mean())


@pytest.mark.parametrize("target", [0.5, 0.9])
def test_what_is_chosen_keeps_the_margin(index: VectorIndex, target: float) -> None:
    tuned = index.tune(recall=target, k=10)
    evaluator = make_evaluator(index, 10)
    bare = dataclasses.replace(tuned.parameters.at(10), points=(), strange=None)
    seen = evaluator.measure(bare)
    assert seen.safe_recall >= target
    assert seen.recall == tuned.recall


def test_nearly_all_items_find_themselves(index: VectorIndex) -> None:
    """Even if the recall does not ask for it."""
    X, _ = data()
    tuned = index.tune(recall=0.0, k=10)
    assert tuned.reached
    if index.metric == "ip":
        assert tuned.self_hits == 1.0
        return
    found = index.search(X, k=1)
    hits = np.isclose(found.distances[:, 0], 0, atol=1e-5)
    assert hits.mean() >= 0.999
    assert tuned.self_hits == pytest.approx(hits.mean(), abs=1e-3)


def test_queries_far_from_all_items_are_strange(index: VectorIndex) -> None:
    X, _ = data()
    tuned = index.tune(recall=0.9)
    assert tuned.parameters.strange is not None
    assert 0 <= tuned.parameters.strange.unsure <= 1
    told = index.explain(X[::7], k=1)
    assert told.strange.mean() < 0.1
    if index.metric == "l2":
        strangers = np.random.default_rng(0).normal(size=(30, X.shape[1])) * 100
        told = index.explain(strangers.astype(np.float32), k=1)
        assert (told.strange | told.exact | (told.probed == told.probed.max())).all()


def test_sample_queries_that_are_given_hold_no_item() -> None:
    queries = data()[1]
    held = hold_out(queries)
    assert (held.rows == -1).all()
    assert not held.by_relevance


# --- files ---------------------------------------------------------------------------------------


def test_what_was_tuned_is_saved(index: VectorIndex, tmp_path: Path) -> None:
    for target, k in ((0.9, 5), (0.5, 300)):
        tuned = index.tune(recall=target, k=k)
        index.save(tmp_path / "index")
        for mmap in (True, False):
            again = irli.load(tmp_path / "index", mmap=mmap)
            assert again.tuned == tuned
            assert again.defaults == index.defaults == tuned.parameters
            assert again.tune(recall=target, k=k) == tuned


def test_results_lead_back_from_json(index: VectorIndex) -> None:
    tuned = index.tune(recall=0.9)
    values = json.loads(json.dumps(tuned.to_json()))
    assert TuneResult.from_json(values) == tuned
    for name, wrong in (("k", 0), ("recall", 1.5), ("work", -1.0), ("reached", 1)):
        with pytest.raises(IrliError, match=name):
            TuneResult.from_json(values | {name: wrong})


# --- out of reach --------------------------------------------------------------------------------


def test_out_of_reach_is_said(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measure = tuning.Evaluator._measure

    def less(evaluator: Evaluator, parameters: SearchParameters) -> Measured:
        seen = measure(evaluator, parameters)
        return seen._replace(recall=0.9 * seen.recall, safe_recall=0.9 * seen.safe_recall)

    monkeypatch.setattr(tuning.Evaluator, "_measure", less)
    with caplog.at_level(logging.WARNING, logger="irli"):
        tuned = index.tune(recall=0.97, k=10)
    assert not tuned.reached
    assert tuned.recall < 0.97
    assert index.defaults == tuned.parameters
    assert "recall 0.970 at k=10 is out of reach" in caplog.text
    assert (index.search(data()[1], k=3).ids >= 0).all()  # still an index
    monkeypatch.undo()
    caplog.clear()
    assert index.tune(recall=0.5).reached
    assert "out of reach" not in caplog.text


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


@pytest.mark.parametrize(("factor", "asked"), [(3, 4), (None, 17)])
def test_more_and_more_for_nothing_is_not_tried_to_the_end(
    index: VectorIndex, factor: int | None, asked: int
) -> None:
    """Unless nothing limits the candidates: then everything may have to be read."""
    seen: list[SearchParameters] = []

    class Useless:
        searcher, k, least = index._fitted().searcher, 10, 1e-8

        def measure(self, parameters: SearchParameters) -> Measured:
            if parameters not in seen:
                seen.append(parameters)
            count = float(len(seen))
            return Measured(0.0, 0.0, probed=1.0, scanned=count, work=count)

    evaluator: Any = Useless()
    family = partial(tuning._by_threshold, evaluator, 30, "votes")
    found = tuning._find_cheapest(evaluator, factor, family, 0.9)
    assert not found.reached
    assert len(seen) == asked


def test_an_index_of_one_bucket_compares_everything() -> None:
    X, queries = data()
    index = VectorIndex(recipe=small_default(buckets=1)).fit(X, threads=1)
    tuned = index.tune(recall=0.3)
    assert (tuned.recall, tuned.self_hits, tuned.reached) == (1.0, 1.0, True)
    assert tuned.parameters.exact
    assert recall(index, queries, X, 10) == 1.0


# --- the paper's way ---------------------------------------------------------------------------


@pytest.fixture(scope="module", params=METRICS)
def voting(request: pytest.FixtureRequest) -> VectorIndex:
    return VectorIndex(request.param, recipe=small_paper(repetitions=6)).fit(data()[0], threads=1)


def test_an_index_of_the_paper_s_recipe_is_searched_as_in_the_paper(voting: VectorIndex) -> None:
    chosen = voting.defaults
    assert (chosen.score, chosen.threshold, chosen.candidates) == ("votes", None, None)
    assert chosen.probes is not None
    assert chosen.points == ()
    assert voting.tuned is not None
    assert voting.tuned.parameters == chosen
    X, queries = data()
    assert recall(voting, queries, X, 10) > 0.85


@pytest.mark.parametrize("target", [0.5, 0.9, 0.99])
def test_no_other_probes_and_votes_take_less_work(voting: VectorIndex, target: float) -> None:
    queries = data()[1]
    if voting.metric == "cosine":
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    tuned = voting.tune(recall=target, k=5, queries=queries)
    assert tuned.reached
    assert tuned.recall >= target
    evaluator = make_evaluator(voting, 5, hold_out(queries))
    for votes in range(1, 7):
        for probes in range(1, 25):
            other = SearchParameters(probes=probes, min_votes=votes, score="votes")
            seen = evaluator.measure(other)
            assert seen.safe_recall < target or seen.work >= tuned.work


def test_votes_pay_where_repetitions_agree_on_little_else(voting: VectorIndex) -> None:
    """With six repetitions, asking for two votes leaves out most of what one bucket brings."""
    tuned = voting.tune(recall=0.9, k=5, queries=data()[1])
    assert tuned.parameters.min_votes > 1


def test_all_items_are_compared_where_buckets_tell_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Noise of many dimensions: reaching the recall takes more than brute force does."""
    monkeypatch.setattr(tuning, "is_exact_cheap", lambda items, dim: False)
    rng = np.random.default_rng(0)
    X, Q = (rng.normal(size=(n, 60)).astype(np.float32) for n in (2000, 20))
    recipe = irli.recipe("default", epochs=1, buckets=64)
    with caplog.at_level("WARNING", logger="irli"):
        index = VectorIndex(recipe=recipe).fit(X)
    assert "comparing all items" in caplog.text
    assert index.tuned is not None
    assert index.tuned.parameters.exact
    assert (index.tuned.recall, index.tuned.self_hits, index.tuned.reached) == (1.0, 1.0, True)
    right = np.argsort(((Q[:, None] - X) ** 2).sum(axis=2), axis=1)[:, :10]
    assert np.array_equal(index.search(Q, 10).ids, right)
    assert index.explain(Q, 10).exact.all()
    assert not index.explain(Q, 10, probes=2).exact.any()
    assert not index.explain(Q, 10, threshold=0.1).exact.any()
    assert index.explain(Q, 10, probes=2, exact=True).exact.all()


def test_buckets_that_tell_enough_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "is_exact_cheap", lambda items, dim: False)
    rng = np.random.default_rng(0)
    X = np.repeat(10 * rng.normal(size=(100, 48)), 60, axis=0) + rng.normal(size=(6000, 48))
    index = VectorIndex(recipe=irli.recipe("default", epochs=1, buckets=100)).fit(X)
    assert index.tuned is not None
    assert not index.tuned.parameters.exact


def test_more_candidates_up_to_all_found() -> None:
    point = OperatingPoint(k=10, threshold=0.1, candidates=100, work=1.0)
    assert tuning._double_candidates(point, 10_000).candidates == 200
    assert tuning._double_candidates(point, 150).candidates is None
    many = point._replace(candidates=tuning.MOST_CANDIDATES)
    assert tuning._double_candidates(many, 10**6).candidates is None
    assert tuning._double_candidates(point._replace(candidates=None), 10**6).candidates is None
