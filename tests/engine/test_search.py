"""The compiled stages against Algorithm 2 written out in Python."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import exact_distances, freeze, random_partition, random_router

from irli.engine import route as routing
from irli.engine import search as kernels
from irli.engine.select import kth_largest
from irli.engine.vector_layout import (
    DOT,
    L2,
    LOG_PROBABILITY,
    PLAIN,
    PROBABILITY,
    VOTES,
    Scratch,
    SearchPlan,
    VectorLayout,
    make_scratch,
)
from irli.vectors.searcher import make_thread_state

DIM, N, B, R = 5, 120, 12, 3
ALL = np.empty(0, dtype=bool)
ROWS = np.empty(0, dtype=np.int64)
SCORES = (VOTES, PROBABILITY, LOG_PROBABILITY)


def index(
    repetitions: int = R, per_item: int = 2, metric: int = L2, buckets: int = B
) -> VectorLayout:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, DIM)).astype(np.float32)
    routers = [random_router(DIM, buckets, seed=r) for r in range(repetitions)]
    partitions = [random_partition(N, buckets, per_item, seed=r) for r in range(repetitions)]
    return freeze(routers, partitions, vectors, metric)


def plan(**changes: Any) -> SearchPlan:
    settings = {
        "k": 5,
        "probes": 0,
        "threshold": -math.inf,
        "min_votes": 1,
        "candidates": 0,
        "score": LOG_PROBABILITY,
    }
    return SearchPlan(**{**settings, **changes})


def queries(n: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def route(layout: VectorLayout, query: NDArray[np.float32]) -> Scratch:
    scratch = make_scratch(layout)
    routing.route(layout, query.reshape(1, -1), scratch)
    return scratch


def bucket_items(layout: VectorLayout, r: int, b: int) -> list[int]:
    return layout.items[layout.offsets[r, b] : layout.offsets[r, b + 1]].tolist()


class Oracle:
    """Algorithm 2 for one query, given the log-probabilities (R, B)."""

    def __init__(
        self,
        layout: VectorLayout,
        logits: NDArray,
        plan: SearchPlan,
        allowed: NDArray | None = None,
    ) -> None:
        widen = 0
        while True:
            self._project(layout, logits, plan, widen, allowed)
            if len(self.votes) >= plan.k or len(self.probed) == logits.size:
                break
            widen += 1
        self.eligible = {i for i, votes in self.votes.items() if votes >= plan.min_votes}

    def _project(
        self,
        layout: VectorLayout,
        logits: NDArray,
        plan: SearchPlan,
        widen: int,
        allowed: NDArray | None,
    ) -> None:
        self.probed: list[tuple[int, int]] = []
        self.votes: dict[int, int] = defaultdict(int)
        self.scores: dict[int, float] = defaultdict(float)
        self.scanned = 0
        for r, values in enumerate(logits):
            order = np.argsort(-values, kind="stable")
            if plan.probes:
                chosen = order[: plan.probes * 2**widen]
            else:
                cut = plan.threshold - widen * math.log(4)
                chosen = [b for b in order if values[b] >= np.float32(cut)] or order[:1]
            weakest = min(values[b] for b in chosen)
            for b in chosen:
                self.probed.append((r, int(b)))
                value = {
                    VOTES: 1.0,
                    PROBABILITY: math.exp(values[b]),
                    LOG_PROBABILITY: values[b] - weakest,
                }[plan.score]
                for item in bucket_items(layout, r, int(b)):
                    self.scanned += 1
                    if allowed is None or allowed[item]:
                        self.votes[item] += 1
                        self.scores[item] += value


def check_stages(
    layout: VectorLayout, query: NDArray, p: SearchPlan, allowed: NDArray = ALL
) -> None:
    """Run the stages one by one and compare each with the oracle."""
    scratch = route(layout, query)
    right = Oracle(layout, scratch.logits[0], p, allowed if len(allowed) else None)
    probed, found, read = kernels.shortlist(layout, p, allowed, 0, scratch)
    buckets = layout.bias.shape[1]
    assert sorted(divmod(int(c), buckets) for c in scratch.probed[:probed]) == sorted(right.probed)
    assert read == right.scanned
    seen = scratch.touched[:found].tolist()
    assert sorted(seen) == sorted(right.votes)
    for item in seen:
        assert scratch.votes[item] == right.votes[item]
        assert scratch.scores[item] == pytest.approx(right.scores[item], rel=1e-3, abs=1e-3)

    chosen = kernels.select(p, found, scratch)
    candidates = set(scratch.touched[:chosen].tolist())
    assert len(candidates) == chosen
    assert candidates <= right.eligible
    if not p.candidates or len(right.eligible) <= p.candidates:
        assert candidates == right.eligible
    else:
        assert chosen == p.candidates
        left = right.eligible - candidates
        worst = min(scratch.scores[item] for item in candidates)
        assert all(scratch.scores[item] <= worst for item in left)

    distances, items = np.empty(p.k, dtype=np.float32), np.empty(p.k, dtype=np.int64)
    kernels.rerank(layout, query, chosen, scratch, distances, items)
    metric = "l2" if layout.metric == L2 else "ip"
    exact = exact_distances(query[None], layout.vectors, metric)[0]
    exact = -exact if metric == "ip" else exact
    expected = sorted(exact[list(candidates)])[: p.k]
    count = len(expected)
    np.testing.assert_allclose(distances[:count], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(exact[items[:count]], expected, rtol=1e-4, atol=1e-4)
    assert set(items[:count].tolist()) <= candidates
    assert (items[count:] == -1).all()
    assert np.isinf(distances[count:]).all()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("min_votes", [1, 2, 3, 7])
@pytest.mark.parametrize("candidates", [0, 5, 20])
@pytest.mark.parametrize("probing", [{"probes": 1}, {"probes": 4}, {"threshold": math.log(0.05)}])
def test_algorithm_2(score: int, min_votes: int, candidates: int, probing: dict[str, Any]) -> None:
    layout = index()
    p = plan(score=score, min_votes=min_votes, candidates=candidates, **probing)
    for query in queries(4):
        check_stages(layout, query, p)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, N),
    probes=st.integers(0, B + 3),
    threshold=st.floats(0, 1),
    min_votes=st.integers(1, 7),
    candidates=st.integers(0, N),
    score=st.sampled_from(SCORES),
    share=st.one_of(st.none(), st.floats(0, 1)),
    metric=st.sampled_from([L2, DOT]),
    repetitions=st.integers(1, R),
    per_item=st.integers(1, 2),
)
def test_algorithm_2_with_any_plan(
    seed: int,
    k: int,
    probes: int,
    threshold: float,
    min_votes: int,
    candidates: int,
    score: int,
    share: float | None,
    metric: int,
    repetitions: int,
    per_item: int,
) -> None:
    p = plan(
        k=k,
        probes=probes,
        threshold=math.log(threshold) if threshold > 0 else -math.inf,
        min_votes=min_votes,
        candidates=max(candidates, k) if candidates else 0,
        score=score,
    )
    allowed = ALL if share is None else np.random.default_rng(seed).random(N) < share
    check_stages(index(repetitions, per_item, metric), queries(1, seed)[0], p, allowed)


# --- probe -----------------------------------------------------------------------------------


def probe(layout: VectorLayout, scratch: Scratch, p: SearchPlan) -> list[list[int]]:
    """The probed buckets of each repetition."""
    count = kernels.probe(layout, p, 0, 0, scratch)
    repetitions, buckets = layout.bias.shape
    probed = [divmod(int(c), buckets) for c in scratch.probed[:count]]
    assert len(set(probed)) == count
    return [[b for r, b in probed if r == want] for want in range(repetitions)]


@pytest.mark.parametrize("m", [1, 2, 5, B - 1, B, B + 1, 1000])
def test_probes_are_the_top_m(m: int) -> None:
    layout = index()
    for query in queries(10):
        scratch = route(layout, query)
        for r, buckets in enumerate(probe(layout, scratch, plan(probes=m))):
            right = np.argsort(-scratch.logits[0, r])[:m]
            assert sorted(buckets) == sorted(right)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, B), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_ties_do_not_add_probes(m: int, seed: int, values: int) -> None:
    layout = index(repetitions=1)
    scratch = make_scratch(layout)
    logits = -np.random.default_rng(seed).integers(1, values + 1, size=B).astype(np.float32)
    scratch.logits[0, 0] = logits
    [buckets] = probe(layout, scratch, plan(probes=m))
    assert len(buckets) == m
    assert sorted(logits[buckets]) == sorted(logits)[B - m :]


def test_threshold_semantics() -> None:
    layout = index(repetitions=1)
    scratch = make_scratch(layout)
    p = np.array([0.4, 0.25, 0.25, 0.05, 0.03, 0.01] + [0.01 / 6] * 6)
    scratch.logits[0, 0] = np.log(p)

    def buckets(threshold: float) -> list[int]:
        log = math.log(threshold) if threshold else -math.inf
        return probe(layout, scratch, plan(threshold=log))[0]

    assert buckets(1.0) == [0]  # at least the best one
    assert buckets(0.41) == [0]
    assert buckets(0.3) == [0]
    assert buckets(0.25 - 1e-6) == [0, 1, 2]  # from the threshold on
    assert buckets(0.02) == [0, 1, 2, 3, 4]
    assert buckets(0.0) == list(range(12))


def test_what_a_bucket_adds_to_a_score() -> None:
    layout = index(repetitions=1)
    scratch = make_scratch(layout)
    scratch.logits[0, 0] = np.log(np.arange(1, 13) / 78)
    for score, right in (
        (VOTES, [1, 1, 1]),
        (PROBABILITY, [10 / 78, 11 / 78, 12 / 78]),
        (LOG_PROBABILITY, [0, math.log(11 / 10), math.log(12 / 10)]),
    ):
        count = kernels.probe(layout, plan(probes=3, score=score), 0, 0, scratch)
        assert scratch.probed[:count].tolist() == [9, 10, 11]
        np.testing.assert_allclose(scratch.values[:count], right, rtol=1e-4, atol=1e-5)


# --- selection and sorting -------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.data())
def test_kth_largest(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    array = np.array(values, dtype=np.float32)
    assert kth_largest(array, k) == sorted(values, reverse=True)[k - 1]
    assert sorted(array) == sorted(values)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 50))
def test_rerank_sorts_and_breaks_ties_by_row(values: list[int], k: int) -> None:
    vectors = np.array(values, dtype=np.float32)[:, None]
    n = len(values)
    layout = freeze([random_router(1, 3)], [random_partition(n, 3)], vectors)
    scratch = make_scratch(layout)
    scratch.touched[:] = np.random.default_rng(n).permutation(n)
    distances, items = np.empty(k, dtype=np.float32), np.empty(k, dtype=np.int64)
    kernels.rerank(layout, np.zeros(1, dtype=np.float32), n, scratch, distances, items)
    right = sorted((value**2, row) for row, value in enumerate(values))[:k]
    assert list(zip(distances, items, strict=True))[: len(right)] == right
    assert (items[n:] == -1).all()


def test_stages_add_up_to_search() -> None:
    layout = index()
    p = plan(probes=3, candidates=15, min_votes=2)
    q = queries(19)
    distances, items = np.empty((19, 5), dtype=np.float32), np.empty((19, 5), dtype=np.int64)
    kernels.search(make_thread_state(layout).engine, p, ALL, q, distances, items, ROWS, PLAIN)
    for i, query in enumerate(q):
        scratch = route(layout, query)
        _, found, _ = kernels.shortlist(layout, p, ALL, 0, scratch)
        chosen = kernels.select(p, found, scratch)
        d, n = np.empty(5, dtype=np.float32), np.empty(5, dtype=np.int64)
        kernels.rerank(layout, query, chosen, scratch, d, n)
        np.testing.assert_array_equal(items[i], n)
        np.testing.assert_array_equal(distances[i], d)


# --- numbers that overflow -------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize(
    "changes",
    [
        {"probes": 2},
        {"probes": 2, "candidates": 8},
        {"probes": 2, "candidates": 8, "score": VOTES},
        {"threshold": math.log(0.1)},
        {"threshold": math.log(0.1), "candidates": 8, "score": PROBABILITY},
        {"probes": 2, "min_votes": 2},
    ],
    ids=str,
)
def test_huge_queries_return(metric: int, changes: dict[str, Any]) -> None:
    layout = index(metric=metric)
    q = np.array([[1e38] * DIM, [-1e38] * DIM, [1e38, -1e38, 1e38, -1e38, 3e38]], dtype=np.float32)
    q = np.concatenate([q, queries(3)])
    distances, items = np.empty((6, 5), dtype=np.float32), np.empty((6, 5), dtype=np.int64)
    engine = make_thread_state(layout).engine
    kernels.search(engine, plan(**changes), ALL, q, distances, items, ROWS, PLAIN)
    assert ((items >= -1) & (items < N)).all()
    for row in items:
        there = row[row >= 0]
        assert len(set(there)) == len(there)
    # Later queries are as if nothing had been.
    alone_d, alone = np.empty((3, 5), dtype=np.float32), np.empty((3, 5), dtype=np.int64)
    fresh = make_thread_state(layout).engine
    kernels.search(fresh, plan(**changes), ALL, q[3:], alone_d, alone, ROWS, PLAIN)
    np.testing.assert_array_equal(items[3:], alone)
    if metric == L2 and changes.get("min_votes", 1) == 1:  # all are infinitely far, but there
        assert (items[:3] >= 0).all()


def test_not_a_number_does_not_break_selection() -> None:
    for values in ([np.nan] * 5, [1, np.nan, 3, np.nan, 2, -np.inf, np.inf]):
        array = np.array(values, dtype=np.float32)
        for k in range(1, len(values) + 1):
            kth_largest(array.copy(), k)  # returns
