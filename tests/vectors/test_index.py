"""VectorIndex: what `fit` does and leaves alone, its phases, its logs, and opening it again."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import METRICS, small_default, small_paper
from contract import same
from folders import array_sums
from planted import clusters

import irli
from irli import Recipe, VectorIndex
from irli.base.folder import read_manifest, write_folder
from irli.base.sparse import as_relevance
from irli.base.threads import thread_count
from irli.cluster import ShardedIndex, ShardedLabelIndex
from irli.engine.metric import prepare_vectors
from irli.errors import InvalidParameter
from irli.learning import learn
from irli.learning.options import LearnOptions
from irli.vectors import searcher as searching
from irli.vectors.build.assemble import assemble
from irli.vectors.build.problem import make_problem
from irli.vectors.contents import pack_vectors
from irli.vectors.searcher import Searcher
from irli.vectors.tuning.measure import Meter
from irli.vectors.tuning.tune import tune

X = clusters(12, 10, dim=6, spread=0.5, seed=1).points
QUERIES = X[:40] + 0.5
IDS = np.random.default_rng(0).permutation(1000)[: len(X)]


def fit(**arguments: Any) -> VectorIndex:
    return VectorIndex(recipe=small_default()).fit(X, threads=1, **arguments)


# --- the caller's arrays -------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_fit_neither_changes_nor_keeps_the_caller_s_arrays(metric: str) -> None:
    vectors, ids, queries = X.copy(), IDS.copy(), QUERIES.copy()
    index = VectorIndex(metric, recipe=small_default())
    index.fit(vectors, ids=ids, queries=queries, threads=1)
    for now, before in ((vectors, X), (ids, IDS), (queries, QUERIES)):
        np.testing.assert_array_equal(now, before)
    right = index.search(QUERIES, k=5)
    vectors[:], ids[:], queries[:] = 0, 0, 0
    same(index.search(QUERIES, k=5), right)


def test_read_only_input() -> None:
    locked = X.copy()
    locked.setflags(write=False)
    index = VectorIndex(recipe=small_default()).fit(locked, threads=1)
    same(index.search(X, k=5, probes=3), fit().search(X, k=5, probes=3))


def test_a_failed_fit_leaves_the_index_as_it_was() -> None:
    index = fit(ids=IDS)
    before = index.search(X, k=3)
    with pytest.raises(irli.IrliError):
        index.fit(X[:50], workers=0)
    with pytest.raises(irli.IrliError):
        index.fit(X[:50], queries=X[:, :2])
    same(index.search(X, k=3), before)
    assert len(index) == len(X)


def test_fit_again_on_fewer_items() -> None:
    index = fit()
    assert index.fit(X[:30], threads=1) is index  # what the recipe left open is chosen anew
    fresh = VectorIndex(recipe=small_default()).fit(X[:30], threads=1)
    assert len(index) == 30
    assert index.recipe == fresh.recipe
    same(index.search(X, k=3, probes=2), fresh.search(X, k=3, probes=2))


# --- phases --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "recipe", "queries", "relevance"),
    [
        ("l2", small_default(pieces=8, repetitions=2, buckets=8), None, None),
        ("cosine", small_default(mixed_queries=30), QUERIES, None),
        ("ip", small_paper(buckets=8, repetitions=2), QUERIES, np.arange(40)[:, None]),
    ],
    ids=["codes", "queries", "paper, relevance"],
)
def test_the_phases_by_hand_are_fit(
    metric: str, recipe: Recipe, queries: Any, relevance: Any, tmp_path: Path
) -> None:
    index = VectorIndex(metric, recipe=recipe)
    index.fit(X, IDS, queries, relevance, threads=1)
    index.save(tmp_path / "fit")

    vectors = prepare_vectors(X, metric)
    resolved = recipe.resolve(*X.shape)
    wanted = None
    if relevance is not None:
        wanted = as_relevance(relevance, len(queries), len(X))
    given = None if queries is None else prepare_vectors(queries, metric)
    problem, held, truth = make_problem(
        vectors, metric, resolved, queries=given, relevance=wanted, threads=1
    )
    repetitions = learn(problem, resolved, LearnOptions(threads=1))
    contents = assemble(vectors, metric, resolved, repetitions, ids=IDS, held=held, truth=truth)
    tuned = tune(Meter(Searcher(contents.layout), metric).ask, held, metric, recall=0.95, k=10)
    contents = dataclasses.replace(contents, defaults=tuned.parameters, tuned=tuned)
    write_folder(tmp_path / "hand", pack_vectors(contents))

    assert array_sums(tmp_path / "hand") == array_sums(tmp_path / "fit")
    made, right = (read_manifest(tmp_path / name)["meta"] for name in ("hand", "fit"))
    assert made == right
    assert tuned == index.tuned
    opened = VectorIndex.load(tmp_path / "hand")
    same(opened.search(X, k=5), index.search(X, k=5))


def test_fit_logs_its_phases(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="irli"):
        VectorIndex(recipe=small_default(repetitions=2, boost=False)).fit(X, threads=1)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert said[0] == "problem: 120 items, 114 training queries, 6 held out"
    rounds = [text for text in said if text.startswith("repetition ")]
    assert [text.split(":")[0] for text in rounds] == [
        f"repetition {number}, epoch {epoch}" for number in (1, 2) for epoch in (1, 2)
    ]
    assert said[-4].startswith("routers: ")
    assert said[-3].startswith("self-hits: ")
    assert said[-2].startswith("assembled: ")
    assert said[-1].startswith("tuned: SearchParameters(")
    assert len(said) == 5 + len(rounds)


def test_fit_is_silent_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """If there is nothing to warn of: clusters that the buckets tell apart."""
    many = clusters(35, 20, dim=10, spread=0.8).points
    VectorIndex(recipe=small_default()).fit(many, threads=1)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


# --- looking -------------------------------------------------------------------------------------


def test_an_index_is_true_fitted_or_not() -> None:
    for index in (VectorIndex(), irli.LabelIndex(), ShardedIndex(), ShardedLabelIndex()):
        assert bool(index) is True
    assert bool(fit()) is True


@pytest.mark.parametrize(
    ("alias", "metric"),
    [("euclidean", "l2"), ("dot", "ip"), ("inner_product", "ip"), ("angular", "cosine")],
)
def test_metrics_by_other_names(alias: str, metric: str) -> None:
    assert VectorIndex(alias).metric == ShardedIndex(alias).metric == metric


@pytest.mark.parametrize("metric", METRICS)
def test_the_vectors_are_kept_as_they_are_or_of_unit_length(metric: str) -> None:
    index = VectorIndex(metric, recipe=small_default()).fit(X, threads=1)
    length = np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else 1
    np.testing.assert_allclose(index.vectors, X / length, rtol=1e-5)


# --- files ---------------------------------------------------------------------------------------


def is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


@pytest.mark.parametrize("mmap", [True, False])
def test_load(mmap: bool, tmp_path: Path) -> None:
    index = fit(ids=IDS)
    index.save(tmp_path / "index")
    again = VectorIndex.load(tmp_path / "index", mmap=mmap)
    same(again.search(X, k=4), index.search(X, k=4))
    assert is_mapped(again.vectors) == mmap
    vectors = next((tmp_path / "index").glob("vectors.*"))
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"x")
    with pytest.raises(irli.errors.FormatError, match="checksum"):
        VectorIndex.load(tmp_path / "index")
    assert len(VectorIndex.load(tmp_path / "index", verify=False)) == len(X)


# --- threads -------------------------------------------------------------------------------------


def test_minus_one_is_a_thread_for_each_core() -> None:
    index = VectorIndex(recipe=small_default()).fit(X, threads=-1)
    right = index.search(X, k=5, threads=1)
    same(index.search(X, k=5, threads=-1), right)
    np.testing.assert_array_equal(index.explain(X, k=5).ids, right.ids)


def test_the_default_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    index = fit()
    used: list[int] = []
    run_batch = searching.run_batch

    def watched(work: Any, count: int, threads: int, block: int) -> None:
        used.append(threads)
        run_batch(work, count, threads, block)

    monkeypatch.setattr(searching, "run_batch", watched)
    monkeypatch.setenv("IRLI_NUM_THREADS", "3")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        for default in (None, 2, -1):
            irli.set_threads(default)
            index.search(X, k=3)
        index.search(X, k=3, threads=4)
    finally:
        irli.set_threads(None)
    assert used == [3, 2, cores, 4]
    monkeypatch.delenv("IRLI_NUM_THREADS")
    assert thread_count(None) == cores


@pytest.mark.parametrize("threads", [0, -2, 1.5, "all", True])
def test_no_number_of_threads(threads: Any) -> None:
    with pytest.raises(InvalidParameter, match="'threads' parameter"):
        irli.set_threads(threads)
    assert thread_count(None) >= 1  # nothing has changed
