"""Vector search against Algorithm 2 written out in Python, on every back-end."""

from __future__ import annotations

import gc
import math
import weakref
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import (
    assemble_layout,
    constant_router,
    exact_distances,
    random_partition,
    random_router,
)
from searching import Allowed, Stages, explain, plan, search, search_one

from irli._native import (
    CODES,
    COSINE,
    DOT,
    IP,
    L2,
    LOG_PROBABILITY,
    PLAIN,
    PROBABILITY,
    VOTES,
    SearchPlan,
    VectorSearcher,
)
from irli.engine.router import make_router
from irli.engine.vector_layout import VectorLayout
from irli.learning.partition import Partition

pytestmark = pytest.mark.usefixtures("simd")

DIM, N, B, R = 5, 120, 12, 3
ROWS = np.arange(N)
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


def some_items(share: float | None, seed: int) -> Allowed:
    return None if share is None else np.random.default_rng(seed).random(N) < share


def bucket_items(layout: VectorLayout, r: int, b: int) -> list[int]:
    return layout.items[layout.offsets[r, b] : layout.offsets[r, b + 1]].tolist()


class Oracle:
    """Algorithm 2 for one query, given the log-probabilities (R, B)."""

    def __init__(
        self, layout: VectorLayout, logits: NDArray, plan: SearchPlan, allowed: Allowed
    ) -> None:
        widen, self.read = 0, 0
        self.probed: list[tuple[int, int]] = []
        while True:
            self._scan(layout, logits, plan, widen, allowed)
            if len(self.votes) >= plan.k or len(self.probed) == logits.size:
                break
            widen += 1
        self.eligible = {i for i, votes in self.votes.items() if votes >= plan.min_votes}

    def _scan(
        self, layout: VectorLayout, logits: NDArray, plan: SearchPlan, widen: int, allowed: Allowed
    ) -> None:
        # Where votes or scores count, all buckets are read again.
        before = set(self.probed)
        known = set() if plan.min_votes > 1 or plan.candidates else before
        read = 0
        self.probed = []
        self.votes: dict[int, int] = defaultdict(int)
        self.scores: dict[int, float] = defaultdict(float)
        for r, values in enumerate(logits):
            order = np.argsort(-values, kind="stable")
            cut = plan.thresholds[0] - widen * math.log(4)
            chosen = [b for b in order if values[b] >= np.float32(cut)] or order[:1]
            chosen = chosen[: plan.probes * 2**widen] if plan.probes else chosen
            weakest = min(values[b] for b in chosen)
            for b in chosen:
                self.probed.append((r, int(b)))
                value = {
                    VOTES: 1.0,
                    PROBABILITY: math.exp(values[b]),
                    LOG_PROBABILITY: values[b] - weakest,
                }[plan.score]
                for item in bucket_items(layout, r, int(b)):
                    read += (r, int(b)) not in known
                    if allowed is None or allowed[item]:
                        self.votes[item] += 1
                        self.scores[item] += value
        self.read += read if set(self.probed) != before else 0


def check_stages(
    layout: VectorLayout, query: NDArray, p: SearchPlan, allowed: Allowed = None
) -> None:
    """Compare each stage with the oracle."""
    told = explain(layout, query, p, allowed)
    right = Oracle(layout, told.logits, p, allowed)
    assert sorted(told.probed) == sorted(right.probed)
    assert told.read == right.read
    assert told.found == len(right.votes)

    candidates = set(told.candidates)
    assert len(candidates) == len(told.candidates)
    assert candidates <= right.eligible
    if not p.candidates or len(right.eligible) <= p.candidates:
        assert candidates == right.eligible
    else:
        assert len(candidates) == p.candidates
        left = right.eligible - candidates
        worst = min(right.scores[item] for item in candidates)
        slack = 0 if p.score == VOTES else 1e-4
        assert all(right.scores[item] <= worst + slack for item in left)

    check_answer(layout, query, told, p)
    count = min(p.k, len(candidates))
    assert told.votes[:count].tolist() == [right.votes[i] for i in told.items[:count].tolist()]
    assert (told.votes[count:] == 0).all()


def check_answer(layout: VectorLayout, query: NDArray, told: Stages, p: SearchPlan) -> None:
    """The answer is the nearest candidates, then nothing."""
    metric = "l2" if layout.metric == L2 else "ip"
    exact = exact_distances(query[None], layout.vectors, metric)[0]
    exact = -exact if metric == "ip" else exact
    expected = sorted(exact[told.candidates])[: p.k]
    count = len(expected)
    np.testing.assert_allclose(told.distances[:count], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(exact[told.items[:count]], expected, rtol=1e-4, atol=1e-4)
    assert set(told.items[:count].tolist()) <= set(told.candidates)
    assert (told.items[count:] == -1).all()
    assert np.isinf(told.distances[count:]).all()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("min_votes", [1, 2, 3, 7])
@pytest.mark.parametrize("candidates", [0, 5, 20])
@pytest.mark.parametrize("probing", [{"probes": 1}, {"probes": 4}, {"threshold": math.log(0.05)}])
def test_algorithm_2(score: int, min_votes: int, candidates: int, probing: dict[str, Any]) -> None:
    p = plan(score=score, min_votes=min_votes, candidates=candidates, **probing)
    for query in queries(4):
        check_stages(index(), query, p)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, N + 10),
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
    layout = index(repetitions, per_item, metric)
    check_stages(layout, queries(1, seed)[0], p, some_items(share, seed))


@pytest.mark.parametrize("score", [*SCORES, CODES])
def test_votes_of_every_item(score: int) -> None:
    """A scan of codes counts no votes on its way, but `explain` tells them all the same."""
    layout = index(pieces=8)
    query = queries(1)[0]
    found = explain(layout, query, plan(k=1, probes=4)).found
    told = explain(layout, query, plan(k=found, probes=4, candidates=found, score=score))
    assert len(told.probed) == R * 4
    counts: dict[int, int] = defaultdict(int)
    for r, b in told.probed:
        for item in bucket_items(layout, r, b):
            counts[item] += 1
    assert dict(zip(told.items.tolist(), told.votes.tolist(), strict=True)) == counts
    assert max(counts.values()) > 2


# --- the answer ------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
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
    min_votes = 1 if score == CODES else min_votes
    p = plan(k=k, min_votes=min_votes, candidates=wanted, score=score, **reach)
    allowed = some_items(share, seed)
    q = queries(n, seed)
    found = search(VectorSearcher(layout), q, p, allowed)
    assert found.finite
    searcher = VectorSearcher(layout)  # one for all: a query leaves no trace
    for i in range(n):
        right = explain(layout, q[i], p, allowed, searcher)
        np.testing.assert_array_equal(found.items[i], right.items)
        np.testing.assert_array_equal(found.distances[i], right.distances)
        if allowed is None:
            one = search_one(searcher, q[i], p, ROWS)
            assert one.finite
            np.testing.assert_array_equal(one.items, right.items)
            np.testing.assert_array_equal(one.distances, right.distances)


def test_a_part_of_a_batch() -> None:
    """Rows outside of it are left alone. An empty part is none."""
    searcher, p, q = VectorSearcher(index()), plan(), queries(30)
    right = search(searcher, q, p)
    for first, last in ((0, 30), (3, 20), (7, 8), (30, 30), (12, 12), (12, 4)):
        distances = np.full((30, p.k), 7, dtype=np.float32)
        items = np.full((30, p.k), 7, dtype=np.int64)
        reached = searcher.search(
            q, p, None, None, None, None, PLAIN, first, last, distances, items
        )
        assert reached == max(first, last)
        part = np.zeros(30, dtype=bool)
        part[first:last] = True
        np.testing.assert_array_equal(items[part], right.items[part])
        np.testing.assert_array_equal(distances[part], right.distances[part])
        assert (items[~part] == 7).all()
        assert (distances[~part] == 7).all()


def test_no_queries() -> None:
    found = search(VectorSearcher(index()), queries(0), plan())
    assert found.finite
    assert found.items.shape == (0, 5)


@pytest.mark.parametrize("form", [PLAIN, COSINE, IP])
def test_answers_are_what_the_user_knows(form: int) -> None:
    """Names instead of rows, distances of the metric, and -1 where nothing is."""
    searcher = VectorSearcher(index(metric=L2 if form == PLAIN else DOT))
    q = 3 * queries(9)
    names = np.random.default_rng(0).permutation(N) * 2**33
    few = np.arange(N) < 3
    p = plan(k=5)
    unit = q / np.linalg.norm(q, axis=1, keepdims=True) if form == COSINE else q
    plain = search(searcher, unit.astype(np.float32), p, few)
    found = search(searcher, q, p, few, names, form)
    assert (plain.items[:, :3] >= 0).all()
    np.testing.assert_array_equal(found.items[:, :3], names[plain.items[:, :3]])
    assert (found.items[:, 3:] == -1).all()
    right = {PLAIN: plain.distances, COSINE: plain.distances + 1, IP: -plain.distances}[form]
    np.testing.assert_allclose(found.distances, right, rtol=1e-4, atol=1e-5)
    batch = search(searcher, q, p, None, names, form)
    for i in range(len(q)):
        one = search_one(searcher, q[i], p, names, form)
        np.testing.assert_array_equal(one.items, batch.items[i])
        np.testing.assert_array_equal(one.distances, batch.distances[i])


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 8, 18])
@pytest.mark.parametrize("form", [PLAIN, COSINE])
def test_a_query_that_is_not_finite_is_reported(odd: float, place: int, form: int) -> None:
    q, searcher = queries(19), VectorSearcher(index())
    search(searcher, q, plan(), form=form)
    q[place, 3] = odd
    with pytest.raises(ValueError, match="must be finite"):
        search(searcher, q, plan(), form=form)
    assert not search_one(searcher, q[place], plan(), ROWS, form).finite
    assert search_one(searcher, q[place - 1], plan(), ROWS, form).finite


@pytest.mark.parametrize("score", [LOG_PROBABILITY, CODES])
def test_a_clock_that_starts_over_mixes_no_queries(score: int) -> None:
    """Stamps are bytes: after 255 queries they are cleared, and the answers stay the same."""
    layout, p = index(pieces=8), plan(probes=2, score=score, candidates=20)
    right = [explain(layout, query, p) for query in queries(10)]
    searcher = VectorSearcher(layout)
    found = search(searcher, np.tile(queries(10), (60, 1)), p)
    np.testing.assert_array_equal(found.items, np.tile([told.items for told in right], (60, 1)))
    for turn in range(600):
        told = explain(layout, queries(10)[turn % 10], p, searcher=searcher)
        assert told.items.tolist() == right[turn % 10].items.tolist()
        assert told.votes.tolist() == right[turn % 10].votes.tolist()
        assert told.found == right[turn % 10].found


@pytest.mark.parametrize("score", [LOG_PROBABILITY, CODES])
def test_a_stamp_of_long_ago_is_not_one_of_today(score: int) -> None:
    """Items that no query found for exactly one turn of the clock are found again."""
    # Item 2 is in the buckets of both, so that no widening makes good what was missed.
    X = np.array([[1.0], [-1.0], [0.0]], dtype=np.float32)
    owner = np.array([[0, 2], [1, 2], [0, 1]], dtype=np.int32)
    weights = np.array([[9, -9, 0]], dtype=np.float32)
    shift, bias = np.zeros(1, dtype=np.float32), np.zeros(3, dtype=np.float32)
    router = make_router(np.ones((1, 1), dtype=np.float32), shift, 1, weights, bias)
    layout = assemble_layout([router], [Partition(3, owner)], X, L2, 4)
    p = plan(k=1, probes=1, candidates=3, score=score)
    for between in (126, 127, 253, 254, 255, 508, 509):
        turns = [0, *[1] * between, 0]
        found = search(VectorSearcher(layout), X[turns], p)
        assert found.items[:, 0].tolist() == turns


def test_one_item_in_one_bucket() -> None:
    X = queries(1)
    for pieces, score in ((0, VOTES), (4, CODES)):
        layout = assemble_layout([random_router(DIM, 1)], [random_partition(1, 1)], X, L2, pieces)
        told = explain(layout, X[0], plan(k=3, probes=1, candidates=3, score=score))
        assert told.items.tolist() == [0, -1, -1]
        assert told.distances.tolist() == [0, np.inf, np.inf]
        assert told.logits == 0
        assert (told.found, told.read, told.candidates) == (1, 1, [0])


@pytest.mark.parametrize("score", [LOG_PROBABILITY, CODES])
def test_empty_buckets_are_probed_like_others(score: int) -> None:
    """Where nothing is in the best buckets, probing widens to those that hold something."""
    X = queries(40)
    owner = np.where(np.arange(40) < 20, 3, 9).astype(np.int32)[:, None]
    router = constant_router(DIM, -np.arange(B))
    layout = assemble_layout([router], [Partition(B, owner)], X, L2, 8)
    for probes, buckets, found in ((1, 4, 20), (2, 4, 20), (3, 6, 20), (4, 4, 20), (10, 10, 40)):
        told = explain(layout, X[0], plan(probes=probes, candidates=40, score=score))
        assert (len(told.probed), told.found, told.read) == (buckets, found, found)
        assert told.items[0] == 0


@pytest.mark.parametrize("share", [0.0, 0.02])
@pytest.mark.parametrize("probing", [{"probes": 1}, {"threshold": math.log(0.3)}])
def test_a_narrow_filter_widens_until_all_is_read(share: float, probing: dict[str, Any]) -> None:
    layout = index()
    allowed = some_items(share, seed=3)
    assert allowed is not None
    rows = np.flatnonzero(allowed)
    told = explain(layout, queries(1)[0], plan(**probing), allowed)
    assert len(told.probed) == R * B
    assert told.read == len(layout.items)
    assert sorted(told.items[told.items >= 0]) == rows.tolist()
    if len(rows):
        enough = explain(layout, queries(1)[0], plan(k=1, **probing), allowed)
        assert enough.found >= 1


def test_an_index_lives_as_long_as_its_searcher() -> None:
    layout = index()
    vectors = np.array(layout.vectors)
    there = weakref.ref(vectors)
    one, other = (VectorSearcher(layout._replace(vectors=vectors)) for _ in range(2))
    del vectors, one
    gc.collect()
    assert there() is not None
    assert search(other, queries(1), plan()).finite
    del other
    gc.collect()
    assert there() is None


# --- probe -----------------------------------------------------------------------------------


def planted_logits(logits: NDArray) -> VectorLayout:
    """One repetition whose buckets have the same logits for each query. Bucket b holds item b."""
    count = len(logits)
    owner = np.arange(count, dtype=np.int32)[:, None]
    vectors = np.arange(count, dtype=np.float32)[:, None]
    return assemble_layout([constant_router(1, logits)], [Partition(count, owner)], vectors)


def probed_buckets(layout: VectorLayout, **changes: Any) -> list[int]:
    told = explain(layout, np.zeros(1, dtype=np.float32), plan(**{"k": 1, **changes}))
    buckets = [b for _, b in told.probed]
    assert len(set(buckets)) == len(buckets)
    assert sorted(told.candidates) == sorted(buckets)
    return buckets


@pytest.mark.parametrize("m", [1, 2, 5, B - 1, B, B + 1, 1000, 2**62])
def test_probes_are_the_top_m(m: int) -> None:
    layout = index()
    for query in queries(10):
        told = explain(layout, query, plan(probes=m, k=1))
        for r in range(R):
            buckets = [b for repetition, b in told.probed if repetition == r]
            assert sorted(buckets) == sorted(np.argsort(-told.logits[r])[:m])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**32 - 1), st.integers(1, 4), st.data())
def test_ties_do_not_add_probes(count: int, seed: int, values: int, data: st.DataObject) -> None:
    logits = -np.random.default_rng(seed).integers(1, values + 1, size=count).astype(np.float32)
    m = data.draw(st.integers(1, count))
    buckets = probed_buckets(planted_logits(logits), probes=m)
    right = sorted(range(count), key=lambda b: (-logits[b], b))[:m]  # of equals the first
    assert buckets == sorted(right)


def test_threshold_semantics() -> None:
    p = np.array([0.4, 0.25, 0.25, 0.05, 0.03, 0.01] + [0.01 / 6] * 6)
    layout = planted_logits(np.log(p))

    def buckets(threshold: float) -> list[int]:
        return probed_buckets(layout, threshold=math.log(threshold) if threshold else -math.inf)

    assert buckets(1.0) == [0]  # at least the best one
    assert buckets(0.41) == [0]
    assert buckets(0.3) == [0]
    assert buckets(0.25 - 1e-6) == [0, 1, 2]  # from the threshold on
    assert buckets(0.02) == [0, 1, 2, 3, 4]
    assert buckets(0.0) == list(range(12))


@pytest.mark.parametrize(
    ("probing", "levels"),
    [
        ({"threshold": math.log(0.45)}, (1, 2, 5, 6)),  # 0.45, 0.1125, 0.028, 0.007
        ({"probes": 1}, (1, 2, 4, 6)),
        ({"probes": 3}, (3, 6)),
    ],
    ids=str,
)
def test_each_widening_probes_more(probing: dict[str, Any], levels: tuple[int, ...]) -> None:
    """A quarter of the threshold or twice the probes, until k items are found."""
    layout = planted_logits(np.log(np.array([0.5, 0.3, 0.1, 0.06, 0.03, 0.01])))
    for k in range(1, 10):
        right = next((level for level in levels if level >= k), 6)
        assert probed_buckets(layout, k=k, **probing) == list(range(right))


def test_what_a_bucket_adds_to_a_score() -> None:
    """Probed are buckets 9, 10 and 11 with 10, 11 and 12 of 78 parts. Item: its buckets."""
    where = {0: (9, 0), 1: (10, 0), 2: (11, 0), 3: (9, 10), 4: (10, 11)}
    owner = np.array([where[item] for item in range(5)], dtype=np.int32)
    router = constant_router(1, np.log(np.arange(1, 13) / 78))
    vectors = np.zeros((5, 1), dtype=np.float32)
    layout = assemble_layout([router], [Partition(12, owner)], vectors)
    for score, right in (
        (VOTES, [{3, 4}, {0, 1, 2}]),
        (PROBABILITY, [{4}, {3}, {2}, {1}, {0}]),  # 23, 21, 12, 11, 10
        (LOG_PROBABILITY, [{4}, {2}, {1, 3}, {0}]),  # .28, .18, .10, .10 + 0, 0
    ):
        place = 0
        for group in right:  # groups of equals, best first
            place += len(group)
            p = plan(k=1, probes=3, candidates=place, score=score)
            told = explain(layout, np.zeros(1, dtype=np.float32), p)
            assert sorted(b for _, b in told.probed) == [9, 10, 11]
            better = set().union(*right[: right.index(group) + 1])
            assert set(told.candidates) == better


def test_equal_scores_leave_the_candidates_that_were_found_first() -> None:
    vectors = np.zeros((9, 1), dtype=np.float32)
    owner = np.array([2, 2, 0, 0, 1, 1, 0, 2, 1], dtype=np.int32)[:, None]
    layout = assemble_layout([constant_router(1, np.zeros(3))], [Partition(3, owner)], vectors)
    order = [2, 3, 6, 4, 5, 8, 0, 1, 7]  # bucket by bucket
    for candidates in range(1, 10):
        told = explain(layout, np.zeros(1, dtype=np.float32), plan(k=1, candidates=candidates))
        assert told.candidates == order[:candidates]


# --- rerank ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 50))
def test_rerank_sorts_and_breaks_ties_by_row(values: list[int], k: int) -> None:
    vectors = np.array(values, dtype=np.float32)[:, None]
    n = len(values)
    layout = assemble_layout([random_router(1, 3)], [random_partition(n, 3)], vectors)
    told = explain(layout, np.zeros(1, dtype=np.float32), plan(k=k))
    right = sorted((value**2, row) for row, value in enumerate(values))[:k]
    assert list(zip(told.distances, told.items, strict=True))[: len(right)] == right
    assert (told.items[n:] == -1).all()


@pytest.mark.parametrize("dim", [1, 3, 15, 16, 17, 63, 64, 65, 80, 130, 300])
@pytest.mark.parametrize("metric", [L2, DOT])
def test_distances_in_any_number_of_dimensions(metric: int, dim: int) -> None:
    """The last vector ends where its memory ends: nothing behind it may count."""
    rng = np.random.default_rng(dim)
    X = rng.normal(size=(7, dim)).astype(np.float32)
    q = rng.normal(size=dim).astype(np.float32)
    layout = assemble_layout([random_router(dim, 2)], [random_partition(7, 2)], X, metric)
    told = explain(layout, q, plan(k=7))
    X64, q64 = X.astype(np.float64), q.astype(np.float64)
    right = np.square(X64 - q64).sum(axis=1) if metric == L2 else -X64 @ q64
    assert told.items.tolist() == np.argsort(right).tolist()
    np.testing.assert_allclose(told.distances, np.sort(right), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [1, 100, 40_000])
def test_more_candidates_than_there_is_room_for(k: int) -> None:
    """Those that cannot be among the k nearest any more are dropped on the way."""
    n = 150_000
    values = np.random.default_rng(0).integers(0, 1000, size=n).astype(np.float32)
    partition = Partition(1, np.zeros((n, 1), dtype=np.int32))
    layout = assemble_layout([random_router(1, 1)], [partition], values[:, None])
    told = explain(layout, np.zeros(1, dtype=np.float32), plan(k=k))
    assert len(told.candidates) == n
    np.testing.assert_array_equal(told.items, np.argsort(values, kind="stable")[:k])
    np.testing.assert_array_equal(told.distances, np.sort(values)[:k] ** 2)


# --- numbers that overflow -------------------------------------------------------------------


HUGE = np.array([[1e38] * DIM, [-1e38] * DIM, [1e38, -1e38, 1e38, -1e38, 3e38]], dtype=np.float32)


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
    q = np.concatenate([HUGE, queries(3)])
    found = search(VectorSearcher(layout), q, plan(**changes))
    assert found.finite
    assert ((found.items >= -1) & (found.items < N)).all()
    assert not np.isnan(found.distances).any()
    for row in found.items:
        there = row[row >= 0]
        assert len(set(there)) == len(there)
    # Later queries are as if nothing had been.
    alone = search(VectorSearcher(layout), q[3:], plan(**changes))
    np.testing.assert_array_equal(found.items[3:], alone.items)
    if metric == L2 and changes.get("min_votes", 1) == 1:  # all are infinitely far, but there
        assert (found.items[:3] >= 0).all()


def test_distances_that_are_not_numbers_are_left_out() -> None:
    """The products of some items overflow to inf - inf; the others are found."""
    X = np.array([[1, 1], [3e38, -3e38], [2, 2], [-3e38, 3e38]], dtype=np.float32)
    layout = assemble_layout([constant_router(2, np.zeros(1))], [random_partition(4, 1)], X, DOT)
    told = explain(layout, np.array([3e38, 3e38], dtype=np.float32), plan(k=4))
    assert told.found == 4
    assert not np.isnan(told.distances).any()
    assert {0, 2} <= set(told.items.tolist())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("probing", [{"probes": 3}, {"threshold": -3.0}], ids=str)
def test_odd_logits_return(odd: float, share: float, probing: dict[str, Any]) -> None:
    """Buckets that a router cannot compare: any of them may be probed, each at most once."""
    rng = np.random.default_rng(0)
    logits = np.where(rng.random(40) < share, odd, rng.normal(size=40))
    told = explain(
        planted_logits(logits), np.zeros(1, dtype=np.float32), plan(k=3, candidates=5, **probing)
    )
    buckets = [b for _, b in told.probed]
    assert 1 <= len(set(buckets)) == len(buckets) <= 40
    assert len(told.candidates) >= 3
    assert sorted(set(told.items.tolist())) == sorted(told.items.tolist())
    assert (told.items >= 0).all()
