"""Searches by 4-bit codes, and by 8-bit vectors where they are long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import METRICS, small_default
from contract import Case, same
from numpy.typing import NDArray
from planted import assemble_layout, clusters, random_partition, random_router

import irli
from irli import VectorIndex
from irli._native import L2, MOST_CANDIDATES
from irli.base import folder as storage
from irli.engine.prefilter import LONG
from irli.errors import InvalidParameter
from irli.vectors.build.held_out import hold_out
from irli.vectors.searcher import Searcher
from irli.vectors.tuning.measure import Meter
from irli.vectors.tuning.tune import tune


@pytest.fixture(params=METRICS)
def case(request: pytest.FixtureRequest, cases: Any) -> Case:
    return cases("codes", request.param, "memory")


def everything(case: Case) -> dict[str, Any]:
    return {"threshold": 0.0, "candidates": len(case.X), "score": "codes"}


def test_all_candidates_are_exact(case: Case) -> None:
    for k in (1, 10, len(case.X)):
        case.check_exact(case.index.search(case.queries, k=k, **everything(case)), k)
    mask = np.random.default_rng(0).random(len(case.X)) < 0.3
    found = case.index.search(case.queries, k=10, filter=mask, **everything(case))
    case.check_exact(found, 10, mask)


def test_codes_find_nearly_all_with_few_candidates(case: Case) -> None:
    found = case.index.search(case.queries, k=5, threshold=0.0, candidates=40, score="codes")
    assert case.recall(found, 5) > 0.95
    told = case.index.explain(case.queries, k=5, threshold=0.0, candidates=40, score="codes")
    assert (told.candidates == 40).all()
    assert (told.scanned == case.index.stats()["entries"]).all()


@pytest.mark.parametrize("candidates", [1, 3, 10, None])
def test_an_answer_is_never_short(case: Case, candidates: int | None) -> None:
    """Items in several probed buckets do not crowd out others."""
    for probes in (1, 3, 1000):
        found = case.index.search(
            case.queries, k=10, probes=probes, candidates=candidates, score="codes"
        )
        assert (found.counts == 10).all()


def test_an_answer_is_never_short_with_many_repetitions() -> None:
    X = clusters(20, 10, dim=6, seed=1).points
    recipe = small_default(repetitions=3, pieces=4, buckets=10, epochs=1)
    index = VectorIndex(recipe=recipe).fit(X, threads=1)
    for k in (1, 10, 199, 200):
        found = index.search(X[:20], k=k, threshold=0.0, candidates=k, score="codes")
        assert (found.counts == k).all()


def test_more_candidates_than_codes_choose(case: Case) -> None:
    many = {"threshold": 0.0, "candidates": MOST_CANDIDATES + 1, "score": "codes"}
    case.check_exact(case.index.search(case.queries, k=10, **many), 10)


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-30, 1e17, 1e36])
def test_odd_queries(case: Case, value: float) -> None:
    odd = np.stack([np.full(10, value), value * np.eye(10)[3]]).astype(np.float32)
    if value > 1e18 and case.metric != "cosine":
        with pytest.raises(InvalidParameter, match="'queries' parameter must hold vectors of a"):
            case.index.search(odd, k=5, score="codes")
        return
    for plan in ({"probes": 2}, {"threshold": 0.0}, {"threshold": 0.3, "candidates": 7}):
        found = case.index.search(odd, k=5, score="codes", **plan)
        assert (found.counts == 5).all()
        assert not np.isnan(found.distances).any()


def test_threads_change_nothing(case: Case) -> None:
    many = np.tile(case.queries, (4, 1))
    plan = {"probes": 3, "candidates": 12, "score": "codes"}
    one = case.index.search(many, k=5, threads=1, **plan)
    same(case.index.search(many, k=5, threads=3, **plan), one)
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(case.index.search, many, 5, threads=1, **plan) for _ in range(12)]
    for job in jobs:
        same(job.result(), one)


def test_saved_and_loaded(case: Case, tmp_path: Path) -> None:
    case.index.save(tmp_path / "index")
    plan = {"probes": 2, "candidates": 9, "score": "codes"}
    for mmap in (True, False):
        again = irli.load(tmp_path / "index", mmap=mmap)
        same(again.search(case.queries, k=5, **plan), case.index.search(case.queries, k=5, **plan))
        assert again.recipe.pieces == 8
        assert again.stats()["bytes_codes"] == case.index.stats()["bytes_codes"] > 0


def test_ids_beyond_32_bits() -> None:
    X = clusters(20, 10, dim=6, seed=1).points
    ids = np.arange(200) * 2**40 + 2**61
    index = VectorIndex(recipe=small_default(pieces=4, epochs=1)).fit(X, ids=ids, threads=1)
    found = index.search(X, k=1, threshold=0.0, candidates=50, score="codes")
    np.testing.assert_array_equal(found.ids[:, 0], ids)


@pytest.mark.parametrize("scale", [1e-14, 1e16])
@pytest.mark.parametrize("metric", METRICS)
def test_vectors_of_any_scale(metric: str, scale: float) -> None:
    """As long as their distances are floats."""
    X = (clusters(20, 10, dim=6, seed=1).points * scale).astype(np.float32)
    index = VectorIndex(metric, recipe=small_default(pieces=8, epochs=1)).fit(X, threads=1)
    plan = {"threshold": 0.0, "candidates": 200, "score": "codes"}
    full = index.search(X, k=5, threshold=0.0, candidates=200, score="log-probability")
    same(index.search(X, k=5, **plan), full)
    few = index.search(X, k=1, threshold=0.0, candidates=40, score="codes")
    assert (few.ids[:, 0] == full.ids[:, 0]).mean() > 0.9


# --- long vectors ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_vectors() -> tuple[NDArray, NDArray]:
    X = clusters(40, 30, LONG).points
    return X, X[:50] + 0.01


@pytest.mark.parametrize("metric", METRICS)
def test_searches_find_what_they_found_without(
    metric: str, long_vectors: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    X, queries = long_vectors
    index = VectorIndex(metric, recipe=small_default(pieces=16)).fit(X, threads=1)
    chosen = {"probes": 4, "candidates": 60, "score": "codes"}
    found, told = index.search(queries, 10, **chosen), index.explain(queries, 10, **chosen)
    assert (told.candidates < 60).all()  # the exact distances that were left
    np.testing.assert_array_equal(told.ids, found.ids)
    index.save(tmp_path / "index")
    again = irli.load(tmp_path / "index").search(queries, 10, **chosen)
    np.testing.assert_array_equal(again.ids, found.ids)

    folder = storage.read_folder(tmp_path / "index")
    kept = {n: a for n, a in folder.arrays.items() if not n.startswith("int8_")}
    assert len(kept) == len(folder.arrays) - 5
    plain = VectorIndex.from_folder(storage.Folder(folder.kind, folder.meta, kept, folder.tensors))
    np.testing.assert_array_equal(plain.search(queries, 10, **chosen).ids, found.ids)
    assert (plain.explain(queries, 10, **chosen).candidates > told.candidates).all()
    assert plain.stats()["bytes"] < index.stats()["bytes"]


def test_short_vectors_are_not_rounded(tmp_path: Path) -> None:
    X = clusters(40, 30, LONG - 1).points
    VectorIndex(recipe=small_default(pieces=16)).fit(X, threads=1).save(tmp_path / "index")
    kept = storage.read_folder(tmp_path / "index").arrays
    assert not any(name.startswith("int8_") for name in kept)


# --- parameters ------------------------------------------------------------------------------


def test_an_index_without_codes_says_so() -> None:
    X = clusters(10, 10, dim=6, seed=1).points
    index = VectorIndex(recipe=small_default(pieces=0, epochs=1)).fit(X, threads=1)
    for ask in (index.search, index.explain):
        with pytest.raises(InvalidParameter, match=r"'score'.*without codes.*pieces=64"):
            ask(X, k=3, score="codes")
    assert index.defaults.score != "codes"
    assert index.stats()["bytes_codes"] == 0


def test_codes_count_no_votes(case: Case) -> None:
    for ask in (case.index.search, case.index.explain):
        with pytest.raises(InvalidParameter, match=r"'min_votes' .* must be 1 with score='codes'"):
            ask(case.queries, k=3, score="codes", min_votes=2)
    found = case.index.search(case.queries, k=3, score="codes", min_votes=1)
    assert (found.counts == 3).all()


def test_tuning_chooses_codes_where_they_save_most_distances() -> None:
    """Two buckets of wide vectors, which codes read far faster."""
    X = clusters(80, 50, dim=256, spread=0.3, seed=1).points
    layout = assemble_layout([random_router(256, 2)], [random_partition(len(X), 2)], X, L2, 32)
    held = hold_out(X[:100] + np.float32(0.01))
    tuned = tune(Meter(Searcher(layout), "l2").ask, held, "l2", 0.9, 10)
    assert tuned.reached
    assert tuned.parameters.score == "codes"


def test_few_items_have_no_codes_unless_asked_for() -> None:
    """The recipe decides, so that shards of almost one size agree."""
    recipe = irli.recipe("default")
    assert recipe.resolve(4095, 8).pieces == 0
    assert recipe.resolve(4096, 8).pieces is None  # chosen by what varies
    assert irli.recipe("default", pieces=8).resolve(100, 8).pieces == 8
