"""The compressed first pass: the kernel against NumPy, and searches that use it."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import METRICS, small_default
from contract import Case, same
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import clusters, freeze, random_partition, random_router

import irli
from irli import VectorIndex
from irli.engine.route import route
from irli.engine.scan import fill_table
from irli.engine.search import shortlist
from irli.engine.simd import LANES, MOST
from irli.engine.vector_layout import (
    CODES,
    DOT,
    L2,
    LOG_PROBABILITY,
    MOST_CANDIDATES,
    Scratch,
    SearchPlan,
    VectorLayout,
    make_scratch,
)
from irli.errors import InvalidParameter
from irli.learning.partition import Partition
from irli.vectors.problem import HeldOut
from irli.vectors.searcher import Searcher, SearchParameters
from irli.vectors.tune import tune

DIM, B = 5, 12
ALL = np.empty(0, dtype=bool)


def index(
    n: int = 150,
    repetitions: int = 1,
    per_item: int = 2,
    metric: int = L2,
    pieces: int = 8,
    ties: bool = False,
) -> VectorLayout:
    X = np.random.default_rng(0).normal(size=(n, DIM)).astype(np.float32)
    if ties:
        X = X[np.arange(n) % 7]
    routers = [random_router(DIM, B, seed=r) for r in range(repetitions)]
    partitions = [random_partition(n, B, per_item, seed=r) for r in range(repetitions)]
    return freeze(routers, partitions, X, metric, pieces)


def plan(**changes: Any) -> SearchPlan:
    settings = {
        "k": 5,
        "probes": 0,
        "threshold": -math.inf,
        "min_votes": 1,
        "candidates": 20,
        "score": CODES,
    }
    return SearchPlan(**{**settings, **changes})


def query(seed: int = 1, scale: float = 1.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=(1, DIM)) * scale).astype(np.float32)


def prepared(layout: VectorLayout, q: NDArray[np.float32]) -> Scratch:
    scratch = make_scratch(layout)
    route(layout, q, scratch)
    fill_table(layout, q, 0, scratch)
    return scratch


def sums_of_entries(layout: VectorLayout, table: NDArray, r: int, b: int) -> dict[int, int]:
    """Add up the codes of one bucket, read as the layout says: {item: sum}."""
    first, last = layout.offsets[r, b], layout.offsets[r, b + 1]
    sums = {}
    for place, item in enumerate(layout.items[first:last].tolist()):
        block, lane = divmod(place, LANES)
        column = 2 * lane if lane < 16 else 2 * (lane - 16) + 1
        bytes_ = layout.codes.blocks[layout.codes.offsets[r, b] + block, :, column]
        rows = np.arange(len(bytes_))
        halves = table[0, rows, bytes_ & 15].astype(int), table[1, rows, bytes_ >> 4].astype(int)
        sums[item] = int(halves[0].sum() + halves[1].sum())
    return sums


def check_scan(
    layout: VectorLayout, p: SearchPlan, scratch: Scratch, allowed: NDArray = ALL
) -> int:
    """What is chosen from the probed buckets is right; return how many buckets that were."""
    probed, found, read = shortlist(layout, p, allowed, 0, scratch)
    buckets = [divmod(int(c), layout.bias.shape[1]) for c in scratch.probed[:probed]]
    assert len(set(buckets)) == probed
    sums: dict[int, int] = {}
    entries = 0
    for r, b in buckets:
        part = sums_of_entries(layout, scratch.table, r, b)
        entries += len(part)
        for item, total in part.items():
            assert sums.setdefault(item, total) == total, "an item has one code wherever it is"
    assert read == entries
    there = [item for item in sums if not len(allowed) or allowed[item]]
    there.sort(key=lambda item: (sums[item], item), reverse=True)
    assert sorted(scratch.touched[:found].tolist()) == sorted(there[: p.candidates])
    if found < p.k:
        assert probed == layout.bias.size, "stopped before everything was looked at"
    return probed


# --- the table -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("pieces", [4, 12])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_table(metric: int, pieces: int, scale: float) -> None:
    layout = index(metric=metric, pieces=pieces)
    q = query(scale=scale)
    table = prepared(layout, q).table
    codes = layout.codes
    at = (q.astype(np.float64) @ coded.turn + coded.shift).reshape(pieces, -1)
    values = np.einsum("ms,msw->mw", at, coded.words) + coded.start
    values -= values.min(axis=1, keepdims=True)
    right = values / values.max() * MOST
    got = table[:, :, :16].transpose(1, 0, 2).reshape(pieces, 16)
    assert got.max() == MOST
    np.testing.assert_allclose(got, right, atol=0.51)
    np.testing.assert_array_equal(table[:, :, :16], table[:, :, 16:])


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 1e38, 3e38, np.inf, np.nan])
def test_table_of_an_odd_query_stays_in_range(metric: int, value: float) -> None:
    """Sums beyond 16 bits would be written outside of their histogram."""
    layout = index(metric=metric)
    for q in (np.full((1, DIM), value), value * np.sign(query())):
        scratch = prepared(layout, q.astype(np.float32))
        assert scratch.table.max() <= MOST
        check_scan(layout, plan(), scratch)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_table_with_something_odd_among_words(odd: float) -> None:
    layout = index()
    start = layout.codes.bias.copy()
    start[:, ::3] = odd  # beside numbers of all sizes
    start[:, 1::3] *= np.float32(1e6)
    layout = layout._replace(codes=layout.codes._replace(start=start))
    scratch = prepared(layout, query())
    assert scratch.table.max() <= MOST
    check_scan(layout, plan(), scratch)


def test_table_of_equal_vectors() -> None:
    X = np.ones((40, DIM), dtype=np.float32)
    layout = freeze([random_router(DIM, B)], [random_partition(40, B)], X, L2, 8)
    scratch = prepared(layout, query())
    assert scratch.table.max() <= MOST
    check_scan(layout, plan(k=20), scratch)


# --- the scan --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 2),
    st.booleans(),
    st.one_of(st.integers(1, B), st.floats(-8, 0)),
    st.integers(1, 200),
    st.sampled_from([None, 0.0, 0.02, 0.5]),
    st.integers(0, 99),
)
def test_scan(
    repetitions: int,
    per_item: int,
    ties: bool,
    reach: float,
    candidates: int,
    share: float | None,
    seed: int,
) -> None:
    """Any number of copies of an item, ties, filters, and widening where too few are found."""
    layout = index(repetitions=repetitions, per_item=per_item, ties=ties)
    probing = {"probes": reach} if isinstance(reach, int) else {"threshold": reach}
    k = 1 + seed % candidates
    allowed = ALL if share is None else np.random.default_rng(seed).random(150) < share
    p = plan(k=k, candidates=candidates, **probing)
    check_scan(layout, p, prepared(layout, query(seed)), allowed)


@pytest.mark.parametrize("load", [0, 1, 31, 32, 33, 64, 65])
def test_scan_of_round_and_odd_buckets(load: int) -> None:
    """All items in one bucket, which is no other's business."""
    X = np.random.default_rng(0).normal(size=(load + 3, DIM)).astype(np.float32)
    owner = np.full((load + 3, 1), 4, dtype=np.int32)
    owner[load:] = 7
    layout = freeze([random_router(DIM, B)], [Partition(B, owner)], X, L2, 4)
    scratch = prepared(layout, query())
    for candidates in (1, 5, 200):
        assert check_scan(layout, plan(k=1, candidates=candidates), scratch) == B


def test_scan_widens_until_enough_are_found() -> None:
    layout = index()
    scratch = prepared(layout, query())
    few = check_scan(layout, plan(k=1, probes=1), scratch)
    more = check_scan(layout, plan(k=100, probes=1, candidates=100), scratch)
    assert few == 1 < more
    everything = check_scan(layout, plan(k=200, probes=1, candidates=200), scratch)
    assert everything == B


@pytest.mark.parametrize("candidates", [1, 40])
def test_scan_with_little_room_for_keys(candidates: int) -> None:
    """Those that cannot become candidates any more are dropped on the way."""
    layout = index(n=3000, ties=True)
    scratch = prepared(layout, query())
    room = np.empty(2 * candidates + 2 * LANES, dtype=np.int64)
    check_scan(layout, plan(k=1, candidates=candidates), scratch._replace(keys=room))


def test_scratch_serves_one_query_after_another() -> None:
    layout = index(repetitions=2)
    scratch = make_scratch(layout)
    for seed in range(6):
        q = query(seed)
        route(layout, q, scratch)
        fill_table(layout, q, 0, scratch)
        check_scan(layout, plan(probes=1 + seed), scratch)


# --- searches --------------------------------------------------------------------------------


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
    assert SearchParameters(score="codes").plan(10).score == CODES
    assert SearchParameters(score="codes", candidates=MOST_CANDIDATES).plan(10).score == CODES
    beyond = SearchParameters(score="codes", candidates=MOST_CANDIDATES + 1)
    assert beyond.plan(10).score == LOG_PROBABILITY
    assert SearchParameters(score="codes").plan(MOST_CANDIDATES).score == LOG_PROBABILITY


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-30, 1e18, 1e36])
def test_odd_queries(case: Case, value: float) -> None:
    odd = np.stack([np.full(10, value), value * np.eye(10)[3]]).astype(np.float32)
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


@pytest.mark.parametrize("scale", [1e-18, 1e18])
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


def test_votes_are_counted_where_a_call_needs_them() -> None:
    codes = SearchParameters(threshold=0.1, candidates=30, score="codes")
    assert coded.replace(min_votes=2).score == "log-probability"
    assert coded.replace(min_votes=1).score == "codes"
    assert coded.replace(probes=3).score == "codes"
    assert coded.replace(score="votes", min_votes=2).score == "votes"


def test_tuning_chooses_codes_where_they_save_most_distances() -> None:
    """One bucket of wide vectors, which codes read far faster."""
    X = clusters(80, 50, dim=256, spread=0.3, seed=1).points
    layout = freeze([random_router(256, 1)], [random_partition(len(X), 1)], X, L2, 32)
    held = HeldOut(X[:100] + np.float32(0.01), np.full(100, -1))
    tuned = tune(Searcher(layout), held, "l2", 0.9, 10)
    assert tuned.reached
    assert tuned.parameters.score == "codes"
