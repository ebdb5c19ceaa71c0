"""Searches that probe more than their first buckets: filters, strange queries, too few items.

The items lie on a line, ten in each bucket. The router gives every query the same probabilities. So
it is known which buckets are probed, what is seen there, and what is nearest.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import assemble_layout, constant_router, plant_codes
from searching import Allowed, Stages, explain, plan, search

from irli._native import (
    CODES,
    COSINE,
    DOT,
    L2,
    LOG_PROBABILITY,
    PLAIN,
    PROBABILITY,
    VOTES,
    SearchPlan,
    VectorSearcher,
)
from irli.engine.vector_layout import VectorLayout
from irli.learning.partition import Partition

pytestmark = pytest.mark.usefixtures("simd")

B, EACH = 64, 10
N = B * EACH
ITEMS = np.arange(N)
LOGITS = -np.arange(B) / 6  # the first bucket is the most probable one, for every query
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum()
SPARE = 0.25  # levels that a search has in reserve
SHIFT = 0.4  # more for each level beyond the one that was expected
WIDTHS = (4, 8, 16, 32)  # buckets probed at the levels 0 to 3; from level 4 on all of them


def threshold_for(buckets: int) -> float:
    """The log-probability between those of the last probed bucket and the next one."""
    return float(np.log(PROBABILITIES[buckets - 1 : buckets + 1]).mean())


LEVELS = {
    "thresholds": [threshold_for(width) for width in (*WIDTHS, 60)],
    "centroids": [0.0] * 5,
}


@cache
def line(centroids: bool = True, metric: int = L2, codes: bool = False) -> VectorLayout:
    """Item i lies at i, in bucket i // 10. With inner products, it lies on a half circle."""
    vectors = ITEMS[:, None].astype(np.float32)
    if metric == DOT:
        angle = np.pi * ITEMS / N
        vectors = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    owner = (ITEMS // EACH)[:, None].astype(np.int32)
    router = constant_router(vectors.shape[1], LOGITS)
    layout = assemble_layout([router], [Partition(B, owner)], vectors, metric, centroids=centroids)
    if codes:  # each item has the same sum, so that the larger number is chosen
        layout = plant_codes(layout, np.zeros((N, 2), dtype=np.uint8), np.zeros((2, 16)))
    return layout


def ask(
    p: SearchPlan,
    allowed: Allowed = None,
    at: float = 0.0,
    layout: VectorLayout | None = None,
    removed: Allowed = None,
) -> Stages:
    """Search from a place on the line. A batch must find and do the same."""
    layout = line() if layout is None else layout
    query = np.array([at], dtype=np.float32)
    told = explain(layout, query, p, allowed, removed=removed)
    found = search(VectorSearcher(layout), np.stack([query] * 3), p, allowed, removed=removed)
    for i in range(3):
        np.testing.assert_array_equal(found.items[i], told.items)
        np.testing.assert_array_equal(found.distances[i], told.distances)
    work = [len(told.probed), told.read, told.chosen, told.exact, told.strange]
    assert found.work is not None
    assert found.work[:, :5].tolist() == [work] * 3
    return told


def needed(share: float, start: float) -> float:
    """The level that a search needs if it sees that such a share of the near items is allowed."""
    seen = -math.log2(share)
    return seen + SPARE + SHIFT * max(0.0, seen - start)


def buckets_of(told: Stages) -> list[int]:
    return sorted(b for _, b in told.probed)


def allow(*rows: Any) -> NDArray[np.bool_]:
    mask = np.zeros(N, dtype=bool)
    for row in rows:
        mask[row] = True
    return mask


def nearest(mask: NDArray[np.bool_], at: float, k: int) -> list[int]:
    order = sorted(ITEMS[mask].tolist(), key=lambda item: (abs(item - at), item))[:k]
    return order + [-1] * (k - len(order))


# --- levels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "probed"), [(1, 8), (2, 16), (3, 32), (4, 60), (9, 64), (32, 64)]
)
def test_a_filter_starts_at_the_level_of_its_selectivity(level: float, probed: int) -> None:
    """All items are allowed here, so that nothing is widened any more."""
    told = ask(plan(k=3, start=level - SPARE, **LEVELS), ITEMS >= 0)
    assert buckets_of(told) == list(range(probed))
    assert (told.level, told.exact) == (level, False)
    assert told.items.tolist() == [0, 1, 2]


def test_between_levels_the_threshold_lies_between_theirs() -> None:
    told = ask(plan(k=3, start=1.5 - SPARE, **LEVELS), ITEMS >= 0)
    middle = (threshold_for(8) + threshold_for(16)) / 2
    right = np.flatnonzero(np.log(PROBABILITIES) >= middle)
    assert 8 < len(right) < 16
    assert buckets_of(told) == right.tolist()


def test_without_a_filter_the_level_is_zero() -> None:
    told = ask(plan(k=3, **LEVELS))
    assert (buckets_of(told), told.level, told.exact) == ([0, 1, 2, 3], 0, False)


@pytest.mark.parametrize("score", [LOG_PROBABILITY, CODES])
def test_removed_items_are_left_out_and_widen_nothing(score: int) -> None:
    """The first three of ten are gone. With so much of a filter, the search would widen."""
    gone = ITEMS % EACH < 3
    given = {"k": 3, "score": score, "candidates": N, **LEVELS}
    layout = line(codes=True)
    told = ask(plan(**given), removed=gone, layout=layout)
    assert (buckets_of(told), told.level, told.exact) == ([0, 1, 2, 3], 0, False)
    assert told.items.tolist() == [3, 4, 5]
    all_gone = ask(plan(**given), removed=ITEMS >= 0, layout=layout)
    assert (all_gone.items == -1).all()
    both = ask(plan(start=0, **given), gone | (ITEMS % EACH > 4), removed=gone, layout=layout)
    assert both.level == SPARE + 1  # five of the seven that are left; five of ten need more
    assert both.items.tolist() == [5, 6, 7]
    exact = ask(plan(start=0, exact_from=0, **given), ITEMS < 6, removed=gone, layout=layout)
    assert (exact.exact, exact.items.tolist()) == (True, [3, 4, 5])


def test_as_many_allowed_as_expected_are_enough() -> None:
    mask = np.isin(ITEMS % EACH, range(3))
    told = ask(plan(k=3, start=2 - SPARE, exact_from=2.5, **LEVELS), mask)
    assert (len(told.probed), told.level, told.exact) == (16, 2, False)
    assert told.items.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("share", "level", "probed"),
    [
        (10, 1, 8),  # all are allowed: the first scan is enough
        (6, 1, 8),  # a little more than a half, as expected
        (4, 2, 16),  # needs level 1.8, and so one level more
        (3, needed(0.3, 1 - SPARE), None),  # 2.4
        (2, needed(0.2, 1 - SPARE), None),  # 3.2
        (1, needed(0.1, 1 - SPARE), B),  # 4.6
    ],
)
def test_a_search_widens_by_what_it_sees(share: int, level: float, probed: int | None) -> None:
    """Of each bucket, so many of ten items are allowed, where a half was expected."""
    mask = np.isin(ITEMS % EACH, range(share))
    told = ask(plan(k=2, start=1 - SPARE, **LEVELS), mask)
    assert told.level == pytest.approx(level)
    if probed is None:
        low = int(level)
        part, thresholds = level - low, LEVELS["thresholds"]
        cut = (1 - part) * thresholds[low] + part * thresholds[low + 1]  # type: ignore[index]
        probed = int((np.log(PROBABILITIES) >= cut).sum())
        assert WIDTHS[low] < probed
    assert buckets_of(told) == list(range(probed))
    assert told.items.tolist() == nearest(mask, 0, 2)


def test_what_counts_is_the_share_near_the_query() -> None:
    """Half of all items, but two of ten near the query, and all from 320 on."""
    mask = (ITEMS % EACH < 2) | (ITEMS >= 320)
    told = ask(plan(k=20, start=1 - SPARE, **LEVELS), mask)
    assert told.level == pytest.approx(needed(0.2, 1 - SPARE))
    assert 32 < len(told.probed) < 60
    narrow = ask(plan(k=5, start=1 - SPARE, **LEVELS), ITEMS % 5 < 3)
    assert len(narrow.probed) == 8


@pytest.mark.parametrize("score", [VOTES, PROBABILITY, LOG_PROBABILITY, CODES])
def test_nothing_allowed_near_the_query(score: int) -> None:
    """Then everything is probed, whatever the score."""
    mask = ITEMS >= 500
    told = ask(
        plan(k=4, start=0, score=score, candidates=N, **LEVELS), mask, layout=line(codes=True)
    )
    assert len(told.probed) == B
    assert told.items.tolist() == [500, 501, 502, 503]


@pytest.mark.parametrize("exact_from", [0.0, 2.0, needed(0.2, 1), 3.2, 4.0, math.inf])
def test_from_a_level_on_all_allowed_items_are_compared(exact_from: float) -> None:
    """Two of ten are allowed, so that level 3.1 is needed."""
    mask = np.isin(ITEMS % EACH, (6, 7))
    told = ask(plan(k=3, start=1, exact_from=exact_from, **LEVELS), mask, at=600)
    assert told.exact == (exact_from <= needed(0.2, 1))
    if told.exact:
        assert told.found == len(told.candidates) == 2 * B
        assert told.items.tolist() == nearest(mask, 600, 3)  # wherever they are
        assert (told.votes == 0).all()
    else:
        assert WIDTHS[3] < len(told.probed) < 60  # far from there


def test_probes_are_doubled_for_each_level() -> None:
    told = ask(plan(k=3, probes=3, start=2 - SPARE, **LEVELS), ITEMS >= 0)
    assert buckets_of(told) == list(range(12))


def test_a_plan_that_is_not_tuned_widens_only_until_k_are_found() -> None:
    """Whatever share of the items is allowed."""
    mask = ITEMS % EACH == 0
    for k, probed in ((1, 2), (2, 2)):
        told = ask(plan(k=k, probes=2), mask, layout=line(False))
        assert (len(told.probed), told.exact) == (probed, False)
    for k, probed in ((3, 4), (4, 4), (5, 8), (60, 64), (64, 64)):
        told = ask(plan(k=k, probes=2), mask, layout=line(False))
        assert (len(told.probed), told.exact) == (probed, False)
        assert told.items.tolist() == nearest(mask, 0, k)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    share=st.floats(0, 1),
    k=st.integers(1, 40),
    start=st.floats(0, 6),
    exact_from=st.one_of(st.just(math.inf), st.floats(0, 24)),
    centroids=st.booleans(),
    at=st.floats(-10, 700),
)
def test_any_filter_gets_k_items(
    seed: int,
    share: float,
    k: int,
    start: float,
    exact_from: float,
    centroids: bool,
    at: float,
) -> None:
    """If so many are allowed. What is found are the nearest in the probed buckets, or of all."""
    mask = np.random.default_rng(seed).random(N) < share
    p = plan(k=k, start=start, exact_from=exact_from, **LEVELS)
    told = ask(p, mask, at=float(np.float32(at)), layout=line(centroids))
    assert (told.items >= 0).sum() == min(k, mask.sum())
    reached = mask if told.exact else mask & np.isin(ITEMS // EACH, buckets_of(told))
    found = told.items[told.items >= 0]
    right = np.sort(np.square(ITEMS[reached] - np.float32(at)))[:k]
    np.testing.assert_allclose(told.distances[: len(right)], right, rtol=1e-4, atol=1e-2)
    assert reached[found].all()


# --- too few items -------------------------------------------------------------------------------


@pytest.mark.parametrize("centroids", [False, True])
def test_too_few_items_are_made_up_from_the_next_buckets(centroids: bool) -> None:
    """Twice as many for each level."""
    layout = line(centroids)
    told = ask(plan(k=25, probes=1), at=404.5, layout=layout)
    assert buckets_of(told) == [0, 1, 2, 3]
    assert told.level == 2
    assert (told.found, told.read) == (40, 40)  # each bucket once
    assert told.items.tolist() == nearest(ITEMS < 40, 404.5, 25)


def test_more_and_more_buckets_until_enough_are_found() -> None:
    mask = allow(slice(600, 603))
    told = ask(plan(k=3, probes=1), mask, at=404.5)
    assert told.items.tolist() == [600, 601, 602]
    assert len(told.probed) == B
    near = ask(plan(k=3, probes=1), allow(slice(45, 48)), at=404.5)
    assert near.items.tolist() == [47, 46, 45]
    assert len(near.probed) == 8
    few = ask(plan(k=5, probes=1), mask, at=404.5)
    assert few.items.tolist() == [600, 601, 602, -1, -1]
    assert np.isinf(few.distances[3:]).all()
    none = ask(plan(k=5, probes=1), allow(), at=404.5)
    assert (none.items == -1).all()


@pytest.mark.parametrize("rising", [[0.0, 2.0, 4.0, 8.0, 16.0], [3.0] * 5])
def test_a_tuned_plan_reads_the_nearest_buckets_at_each_level(rising: list[float]) -> None:
    given = {"thresholds": [threshold_for(1)] * 5, "centroids": rising}
    told = ask(plan(k=45, **given), at=404.5)
    first = [0, *range(38, 43)] if rising[0] == 0 else [0, 39, 40, 41]
    assert set(first[:3]) <= set(buckets_of(told))
    assert (told.items >= 0).all()


# --- strange queries -----------------------------------------------------------------------------


def test_a_query_that_is_far_from_all_it_found_probes_the_nearest_buckets() -> None:
    p = plan(k=3, threshold=threshold_for(2), far=5.0**2, wide=5)
    told = ask(p, at=404.5)
    assert told.strange
    assert buckets_of(told) == [0, 1, 39, 40, 41]
    assert told.items.tolist() == [404, 405, 403]
    assert (told.read, told.chosen) == (20 + 30, 20 + 33)  # the items found first, too
    assert told.votes.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("at", "strange"), [(19, False), (23.9, False), (24.1, True), (-6, True)])
def test_strange_is_what_is_farther_than_far(at: float, strange: bool) -> None:
    """The first two buckets hold the items 0 to 19."""
    told = ask(plan(k=1, threshold=threshold_for(2), far=25 - 1e-3, wide=3), at=at)
    assert told.strange == strange
    assert len(told.probed) == 2 + strange
    assert told.items.tolist() == nearest(ITEMS < N if strange else ITEMS < 20, at, 1)


def test_no_query_is_strange() -> None:
    """Where all was probed or compared, or nothing is known about the buckets, or `far` is not."""
    far = {"far": 25.0, "wide": 5}
    for told in (
        ask(plan(k=1, threshold=threshold_for(2), wide=5), at=300),
        ask(plan(k=1, threshold=-math.inf, **far), at=3000),
        ask(plan(k=1, exact=True, **far), at=3000),
        ask(plan(k=1, threshold=threshold_for(2), **far), at=300, layout=line(False)),
    ):
        assert not told.strange


def test_a_strange_query_obeys_its_filter() -> None:
    mask = ITEMS % 2 == 1
    told = ask(plan(k=3, threshold=threshold_for(2), far=25.0, wide=3), mask, at=404)
    assert told.strange
    assert told.items.tolist() == [403, 405, 401]


@pytest.mark.parametrize("score", [VOTES, LOG_PROBABILITY])
def test_a_strange_query_reads_scores_again(score: int) -> None:
    p = plan(k=3, threshold=threshold_for(2), far=25.0, wide=5, candidates=12, score=score)
    told = ask(p, at=404.5)
    assert told.strange
    assert told.read == (2 + 5) * EACH  # scores come from all buckets
    assert len(told.candidates) == 12
    assert told.chosen == 12 + 12


def test_a_strange_query_keeps_what_was_found_first() -> None:
    """The probed buckets hold the items 0 to 19, and those with the nearest centroids -20 to -1."""
    vectors = np.arange(-20, 20, dtype=np.float32)[:, None]
    owner = np.array([2, 3, 0, 1]).repeat(10)[:, None].astype(np.int32)
    layout = assemble_layout(
        [constant_router(1, -np.arange(4.0))], [Partition(4, owner)], vectors, centroids=True
    )
    p = plan(k=2, probes=1, far=0.01, wide=2)
    told = explain(layout, np.full(1, -0.4, dtype=np.float32), p)
    assert told.strange
    assert sorted(buckets_of(told)) == [0, 3]
    assert told.items.tolist() == [20, 19]  # the vectors 0 and -1


@pytest.mark.parametrize("guard", [{"unsure": 0.6}, {"far": 25.0}], ids=str)
def test_a_strange_query_is_compared_with_all_items_if_its_plan_says_so(guard: Any) -> None:
    told = ask(plan(k=3, threshold=threshold_for(2), wide=N // EACH, **guard), at=404.5)
    assert told.strange
    assert told.exact
    assert told.items.tolist() == [404, 405, 403]


@pytest.mark.parametrize("guard", [{"unsure": 0.4}, {"far": 25.0}], ids=str)
def test_codes_choose_the_candidates_of_a_strange_query(guard: Any) -> None:
    """All codes are equal, so that those with the largest numbers are compared: 41x and 40x."""
    p = {"k": 3, "threshold": threshold_for(2), "wide": 5, **guard}
    told = ask(plan(**p, picked=20), at=404.5, layout=line(codes=True))
    assert told.strange
    assert set(range(400, 420)) <= set(told.candidates)
    assert told.items.tolist() == [404, 405, 403]
    coded = plan(**p, candidates=10, picked=20, score=CODES)
    assert ask(coded, at=404.5, layout=line(codes=True)).items.tolist() == [404, 405, 403]


def test_a_query_of_which_routers_are_unsure_is_answered_once_where_codes_choose() -> None:
    """Else it is answered like the others first: codes may tell less than scores."""
    p = {"k": 3, "threshold": threshold_for(2), "wide": 5, "unsure": 0.4, "picked": 20}
    told = ask(plan(**p, candidates=10, score=CODES), at=404.5, layout=line(codes=True))
    assert (told.read, told.chosen) == (5 * EACH, 20)
    told = ask(plan(**p), at=404.5, layout=line(codes=True))
    assert (told.read, told.chosen) == (5 * EACH, 2 * EACH + 20 + 3)


def test_routers_that_are_unsure_may_use_up_all_buckets_of_a_strange_query() -> None:
    """Its candidates are as many as those of other strange queries all the same."""
    p = {"k": 3, "threshold": threshold_for(9), "probes": 5, "wide": 5, "unsure": 0.9}
    told = ask(plan(**p, candidates=10, picked=20, score=CODES), layout=line(codes=True))
    assert (told.strange, buckets_of(told), told.chosen) == (True, [0, 1, 2, 3, 4], 20)


@pytest.mark.parametrize(("likely", "strange"), [(1, True), (2, True), (3, False), (9, False)])
def test_only_likely_buckets_make_routers_sure(likely: int, strange: bool) -> None:
    """The first three buckets have .4 of the probability, whatever else is probed."""
    sure = float(PROBABILITIES[:3].sum()) - 1e-3
    p = {"k": 3, "threshold": threshold_for(20), "wide": 30, "unsure": sure}
    told = ask(plan(**p, likely=threshold_for(likely)))
    assert told.strange == strange


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("form", [PLAIN, COSINE])
def test_far_is_for_inner_products_of_a_query_of_length_1(length: float, form: int) -> None:
    """A query of any length is as strange as it is at length 1."""
    layout = line(metric=DOT)
    p = plan(k=1, threshold=threshold_for(2), far=1 - math.cos(0.5), wide=6)
    for angle, strange in ((0.1, False), (0.4, False), (0.7, True), (2.0, True), (3.0, True)):
        query = length * np.array([[math.cos(angle), math.sin(angle)]])
        found = search(VectorSearcher(layout), query.astype(np.float32), p, form=form)
        assert found.work is not None
        assert found.work[0, 4] == strange
        right = angle * N / math.pi
        if strange:
            assert abs(found.items[0, 0] - right) <= 1


@pytest.mark.parametrize(("unsure", "strange"), [(0.0, False), (0.2, False), (0.4, True)])
def test_unsure_routers_make_a_query_strange(unsure: float, strange: bool) -> None:
    """The two probed buckets have a probability of 0.28 together."""
    assert 0.2 < PROBABILITIES[:2].sum() < 0.4
    p = plan(k=3, threshold=threshold_for(2), unsure=unsure, wide=5, candidates=12)
    told = ask(p, at=404.5)
    assert told.strange == strange
    assert buckets_of(told) == ([0, 1, 39, 40, 41] if strange else [0, 1])
    assert told.chosen == 12 * (1 + strange)
    assert not ask(p, at=404.5, layout=line(False)).strange


def test_a_wider_search_is_surer() -> None:
    """Under a filter, what counts is the probability of all buckets that are probed at last."""
    p = plan(k=3, start=0, unsure=0.6, wide=3, **LEVELS)
    assert ask(p, ITEMS >= 0, at=404.5).strange
    told = ask(p, np.isin(ITEMS % EACH, range(4)), at=404.5)
    assert (told.strange, told.level) == (False, pytest.approx(needed(0.4, 0)))


@pytest.mark.parametrize("guard", [{"unsure": 0.6}, {"far": 25.0}], ids=str)
@pytest.mark.parametrize(
    ("exact_from", "few"), [(0.5, True), (2.0, True), (2.1, False), (math.inf, False)]
)
def test_a_strange_query_is_compared_with_few_allowed_items(
    guard: dict[str, float], exact_from: float, few: bool
) -> None:
    """If that is cheaper than a search that is two levels wider: it finds them nowhere near."""
    mask = ITEMS % EACH < 2
    given = {"k": 2, "threshold": threshold_for(2), "exact_from": exact_from}
    told = ask(plan(wide=3, **given, **guard), mask, at=404.5)
    assert told.exact == few
    assert told.items.tolist() == nearest(mask, 404.5, 2)
    usual = ask(plan(**given), mask, at=404.5)
    assert not usual.exact


def test_without_filling_up_fewer_are_found() -> None:
    """So that tuning sees what the probed buckets are worth."""
    told = ask(plan(k=25, probes=1, fill=False), at=404.5)
    assert (buckets_of(told), told.found) == ([0], 10)
    assert (told.items >= 0).sum() == 10
    filtered = ask(plan(k=3, start=1 - SPARE, fill=False, **LEVELS), ITEMS >= 500)
    assert (len(filtered.probed), filtered.found) == (8, 0)


# --- ranking by score ----------------------------------------------------------------------------


def test_results_are_ranked_by_score_and_of_equal_scores_by_distance() -> None:
    """Bucket b is worth its log-probability above that of the last one probed."""
    told = ask(plan(k=15, probes=4, by_score=True), at=25.2)
    assert told.items.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 19, 18, 17, 16, 15]
    assert told.distances.tolist() == pytest.approx(np.square(told.items - 25.2).tolist(), rel=1e-4)
    mask = ITEMS % 10 == 3
    assert ask(plan(k=3, by_score=True), mask, at=25.2).items.tolist() == [3, 13, 23]


@pytest.mark.parametrize("guard", [{"unsure": 1.0}, {"far": 1.0}], ids=str)
def test_no_way_to_save_work_changes_a_ranking_by_score(guard: Any) -> None:
    """All items could be compared for less, but that would rank them by distance."""
    mask = ITEMS % 10 == 3
    told = ask(plan(k=3, probes=4, by_score=True, exact_from=0.0, wide=B, **guard), mask, at=404.5)
    assert not told.exact
    assert told.items.tolist() == [3, 13, 23]


@pytest.mark.parametrize("votes", [1, 2])
def test_no_way_to_save_work_changes_the_least_votes(votes: int) -> None:
    """Each item is in one bucket."""
    given = {"k": 3, "min_votes": votes, "exact_from": 0.0, "unsure": 1.0, "wide": B}
    told = ask(plan(**given), ITEMS >= 0, at=25.2)
    assert told.exact == (votes == 1)
    assert told.items.tolist() == ([25, 26, 24] if votes == 1 else [-1, -1, -1])


# --- centroids besides ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 60, 62, 63, 1000])
def test_buckets_with_the_nearest_centroids_are_probed_besides(count: int) -> None:
    told = ask(plan(k=1, threshold=threshold_for(2), centroids=[float(count)]), at=404.5)
    near = sorted(range(2, B), key=lambda b: abs(EACH * b + 4.5 - 404.4))[:count]
    assert buckets_of(told) == sorted([0, 1, *near])
    assert told.found == EACH * len(told.probed)


def test_those_that_are_probed_anyway_are_not_counted() -> None:
    told = ask(plan(k=1, threshold=threshold_for(4), centroids=[2.0]), at=4.5)
    assert buckets_of(told) == [0, 1, 2, 3, 4, 5]


def test_a_wider_search_probes_more_of_them() -> None:
    rising = {**LEVELS, "centroids": [1.0, 2.0, 7.0, 8.0, 9.0]}
    for level, more in ((1, 2), (1.5, 5), (2, 7), (3, 8)):  # 4.5 is rounded up
        told = ask(plan(k=1, start=level - SPARE, **rising), ITEMS >= 0, at=635)
        alone = ask(plan(k=1, start=level - SPARE, **LEVELS), ITEMS >= 0, at=635)
        assert len(told.probed) == len(alone.probed) + more
        assert buckets_of(told)[-more:] == list(range(B - more, B))
    assert len(ask(plan(k=1, start=4, **rising), ITEMS >= 0).probed) == B


def test_an_index_without_centroids_probes_none_besides() -> None:
    p = plan(k=1, threshold=threshold_for(2), centroids=[5.0])
    assert buckets_of(ask(p, at=404.5, layout=line(False))) == [0, 1]
