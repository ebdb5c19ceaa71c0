"""The compiled stages against Algorithm 2 written out in Python."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import assemble_layout, exact_distances, random_partition, random_router
from stages import ALL, Stages, plan

from irli.base.memory import read_only
from irli.engine.handle import make_engine
from irli.engine.search import CHOSEN, probe, search
from irli.engine.vector_layout import (
    CODES,
    COSINE,
    DOT,
    IP,
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

DIM, N, B, R = 5, 120, 12, 3
ROWS = read_only(np.empty(0, dtype=np.int64))
SCORES = (VOTES, PROBABILITY, LOG_PROBABILITY)


@cache
def index(
    repetitions: int = R, per_item: int = 2, metric: int = L2, pieces: int = 0, int8: bool = False
) -> VectorLayout:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(N, DIM)).astype(np.float32)
    routers = [random_router(DIM, B, seed=r) for r in range(repetitions)]
    partitions = [random_partition(N, B, per_item, seed=r) for r in range(repetitions)]
    return assemble_layout(routers, partitions, vectors, metric, pieces, int8)


def queries(n: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def answer(
    layout: VectorLayout,
    p: SearchPlan,
    q: NDArray[np.float32],
    allowed: NDArray[np.bool_] = ALL,
    ids: NDArray[np.int64] = ROWS,
    form: int = PLAIN,
) -> tuple[NDArray[np.float32], NDArray[np.int64], bool]:
    """Search in one go; return distances, items, and whether all queries are finite."""
    shape = len(q), p.k
    distances, items = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int64)
    engine = make_engine(layout, make_scratch(layout))
    given = read_only(allowed), read_only(q)
    finite = search(engine, p, *given, distances, items, read_only(ids), form)
    return distances, items, finite


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
            self._scan(layout, logits, plan, widen, allowed)
            if len(self.votes) >= plan.k or len(self.probed) == logits.size:
                break
            widen += 1
        self.eligible = {i for i, votes in self.votes.items() if votes >= plan.min_votes}

    def _scan(
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
    stages = Stages(layout, query, p, allowed)
    right = Oracle(layout, stages.route(), p, allowed if len(allowed) else None)
    scratch = stages.scratch
    probed, found, read = stages.scan()
    assert sorted(divmod(int(c), B) for c in scratch.probed[:probed]) == sorted(right.probed)
    assert read == right.scanned
    seen = scratch.touched[:found].tolist()
    assert sorted(seen) == sorted(right.votes)
    for item in seen:
        assert scratch.votes[item] == right.votes[item]
        assert scratch.scores[item] == pytest.approx(right.scores[item], rel=1e-3, abs=1e-3)

    chosen = stages.select()
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

    distances, items = stages.rerank()
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


# --- the answer ------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 19),
    k=st.integers(1, 12),
    probing=st.one_of(st.integers(1, B), st.floats(-6, 0)),
    min_votes=st.integers(1, 2),
    candidates=st.integers(0, 40),
    score=st.sampled_from([*SCORES, CODES]),
    share=st.one_of(st.none(), st.floats(0, 1)),
    metric=st.sampled_from([L2, DOT]),
    int8=st.booleans(),
)
def test_stages_add_up_to_search(
    seed: int,
    n: int,
    k: int,
    probing: float,
    min_votes: int,
    candidates: int,
    score: int,
    share: float | None,
    metric: int,
    int8: bool,
) -> None:
    """What `explain` runs stage by stage is what `search` runs, to the last bit."""
    layout = index(2, 2, metric, pieces=8, int8=int8)
    reach = {"probes": probing} if isinstance(probing, int) else {"threshold": probing}
    wanted = max(candidates, k) if candidates or score == CODES else 0
    p = plan(k=k, min_votes=min_votes, candidates=wanted, score=score, **reach)
    allowed = ALL if share is None else np.random.default_rng(seed).random(N) < share
    q = queries(n, seed)
    distances, items, finite = answer(layout, p, q, allowed)
    assert finite
    scratch = make_scratch(layout)  # one for all: a query leaves no trace
    for i in range(n):
        right = Stages(layout, q[i], p, allowed, scratch).search()
        np.testing.assert_array_equal(items[i], right[1])
        np.testing.assert_array_equal(distances[i], right[0])


@pytest.mark.parametrize("form", [PLAIN, COSINE, IP])
def test_answers_are_what_the_user_knows(form: int) -> None:
    """Names instead of rows, distances of the metric, and -1 where nothing is."""
    layout = index(metric=L2 if form == PLAIN else DOT)
    q = 3 * queries(9)
    names = np.random.default_rng(0).permutation(N) * 2**33
    few = np.arange(N) < 3
    p = plan(k=5)
    unit = q / np.linalg.norm(q, axis=1, keepdims=True) if form == COSINE else q
    plain, rows, _ = answer(layout, p, unit.astype(np.float32), few)
    distances, items, _ = answer(layout, p, q, few, names, form)
    assert (rows[:, :3] >= 0).all()
    np.testing.assert_array_equal(items[:, :3], names[rows[:, :3]])
    assert (items[:, 3:] == -1).all()
    right = {PLAIN: plain, COSINE: plain + 1, IP: -plain}[form]
    np.testing.assert_allclose(distances, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 8, 18])
def test_a_query_that_is_not_finite_is_reported(odd: float, place: int) -> None:
    q = queries(19)
    assert answer(index(), plan(), q)[2]
    q[place, 3] = odd
    assert not answer(index(), plan(), q)[2]


def test_a_clock_that_starts_over_mixes_no_queries() -> None:
    """Stamps are bytes: after 255 queries they are cleared, and the answers stay the same."""
    layout, p = index(), plan(probes=2)
    scratch = make_scratch(layout)
    right = [Stages(layout, q, p).search()[1].tolist() for q in queries(10)]
    for turn in range(600):
        query = queries(10)[turn % 10]
        assert Stages(layout, query, p, scratch=scratch).search()[1].tolist() == right[turn % 10]


# --- probe -----------------------------------------------------------------------------------


def probe_buckets(layout: VectorLayout, scratch: Scratch, p: SearchPlan) -> list[list[int]]:
    """The probed buckets of each repetition."""
    count = probe(layout, p, 0, 0, scratch)
    probed = [divmod(int(c), B) for c in scratch.probed[:count]]
    assert len(set(probed)) == count
    return [[b for r, b in probed if r == want] for want in range(len(layout.bias))]


@pytest.mark.parametrize("m", [1, 2, 5, B - 1, B, B + 1, 1000])
def test_probes_are_the_top_m(m: int) -> None:
    layout = index()
    for query in queries(10):
        stages = Stages(layout, query, plan(probes=m))
        logits = stages.route()
        for r, buckets in enumerate(probe_buckets(layout, stages.scratch, stages.plan)):
            assert sorted(buckets) == sorted(np.argsort(-logits[r])[:m])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, B), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_ties_do_not_add_probes(m: int, seed: int, values: int) -> None:
    layout = index(repetitions=1)
    scratch = make_scratch(layout)
    logits = -np.random.default_rng(seed).integers(1, values + 1, size=B).astype(np.float32)
    scratch.logits[0, 0] = logits
    [buckets] = probe_buckets(layout, scratch, plan(probes=m))
    assert len(buckets) == m
    assert sorted(logits[buckets]) == sorted(logits)[B - m :]


def test_threshold_semantics() -> None:
    layout = index(repetitions=1)
    scratch = make_scratch(layout)
    p = np.array([0.4, 0.25, 0.25, 0.05, 0.03, 0.01] + [0.01 / 6] * 6)
    scratch.logits[0, 0] = np.log(p)

    def buckets(threshold: float) -> list[int]:
        log = math.log(threshold) if threshold else -math.inf
        return probe_buckets(layout, scratch, plan(threshold=log))[0]

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
        count = probe(layout, plan(probes=3, score=score), 0, 0, scratch)
        assert scratch.probed[:count].tolist() == [9, 10, 11]
        np.testing.assert_allclose(scratch.values[:count], right, rtol=1e-4, atol=1e-5)


# --- rerank ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 50))
def test_rerank_sorts_and_breaks_ties_by_row(values: list[int], k: int) -> None:
    vectors = np.array(values, dtype=np.float32)[:, None]
    n = len(values)
    layout = assemble_layout([random_router(1, 3)], [random_partition(n, 3)], vectors)
    stages = Stages(layout, np.zeros(1, dtype=np.float32), plan(k=k))
    stages.scratch.touched[:] = np.random.default_rng(n).permutation(n)
    stages.scratch.counts[CHOSEN] = n
    distances, items = stages.rerank()
    right = sorted((value**2, row) for row, value in enumerate(values))[:k]
    assert list(zip(distances, items, strict=True))[: len(right)] == right
    assert (items[n:] == -1).all()


# --- numbers that overflow -------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize(
    "changes",
    [
        {"probes": 2},
        {"probes": 2, "candidates": 8},
        {"probes": 2, "candidates": 8, "score": VOTES},
        {"probes": 2, "candidates": 8, "score": CODES},
        {"threshold": math.log(0.1)},
        {"threshold": math.log(0.1), "candidates": 8, "score": PROBABILITY},
        {"probes": 2, "min_votes": 2},
    ],
    ids=str,
)
def test_huge_queries_return(metric: int, changes: dict[str, Any]) -> None:
    layout = index(metric=metric, pieces=8)
    q = np.array([[1e38] * DIM, [-1e38] * DIM, [1e38, -1e38, 1e38, -1e38, 3e38]], dtype=np.float32)
    q = np.concatenate([q, queries(3)])
    _, items, finite = answer(layout, plan(**changes), q)
    assert finite
    assert ((items >= -1) & (items < N)).all()
    for row in items:
        there = row[row >= 0]
        assert len(set(there)) == len(there)
    # Later queries are as if nothing had been.
    np.testing.assert_array_equal(items[3:], answer(layout, plan(**changes), q[3:])[1])
    if metric == L2 and changes.get("min_votes", 1) == 1:  # all are infinitely far, but there
        assert (items[:3] >= 0).all()
