"""Search parameters: one list of them, and how those of a call and the defaults come together."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli._native import CODES, LOG_PROBABILITY, MOST_CANDIDATES
from irli.errors import InvalidParameter
from irli.vectors.parameters import (
    RANKS,
    SCORES,
    TUNED,
    FilterPlan,
    OperatingPoint,
    SearchArguments,
    SearchParameters,
    Strange,
)


def test_the_arguments_are_the_parameters() -> None:
    fields = [field.name for field in dataclasses.fields(SearchParameters)]
    assert [*SearchArguments.__annotations__, *TUNED] == fields
    assert list(SearchParameters().to_arguments()) == fields[: -len(TUNED)]
    assert all(name not in repr(SearchParameters()) for name in TUNED)


def test_what_is_not_given_stays() -> None:
    known = SearchParameters(threshold=0.1, min_votes=2, candidates=50, score="votes")
    assert known.replace() == known
    assert known.replace(candidates=7) == dataclasses.replace(known, candidates=7)
    assert known.replace(min_votes=1).min_votes == 1
    assert known.replace(score="probability").score == "probability"


def test_probes_and_threshold_replace_each_other() -> None:
    by_threshold, by_probes = SearchParameters(threshold=0.1), SearchParameters(probes=4)
    assert by_threshold.replace(probes=3) == SearchParameters(probes=3)
    assert by_probes.replace(threshold=0.0) == SearchParameters(threshold=0.0)


def test_arguments_of_a_search_lead_back_to_it() -> None:
    for known in (SearchParameters(probes=3, candidates=9), SearchParameters(threshold=0.5)):
        assert SearchParameters().replace(**known.to_arguments()) == known


def test_codes_count_no_votes() -> None:
    coded = SearchParameters(probes=4, score="codes")
    assert coded.replace(min_votes=2).score == "log-probability"
    assert coded.replace(min_votes=1).score == "codes"
    with pytest.raises(InvalidParameter, match="'min_votes' parameter"):
        coded.replace(min_votes=2, score="codes")


def test_codes_rank_nothing() -> None:
    coded = SearchParameters(probes=4, score="codes")
    assert coded.replace(rank="score").score == "log-probability"
    with pytest.raises(InvalidParameter, match=r"'score' parameter.*to rank by it"):
        coded.replace(rank="score", score="codes")
    with pytest.raises(InvalidParameter, match="'rank' parameter"):
        coded.replace(rank="distances")


def test_exact_is_true_or_false() -> None:
    assert SearchParameters(exact=True).replace().exact
    assert not SearchParameters(exact=True).replace(exact=False).exact
    for wrong in (1, "yes", 0.0):
        with pytest.raises(InvalidParameter, match="'exact' parameter"):
            SearchParameters().replace(exact=wrong)  # type: ignore[arg-type]


def test_the_plan_of_a_search() -> None:
    plan = SearchParameters(probes=3, candidates=4).to_plan(10)
    assert (plan.k, plan.probes, plan.candidates) == (10, 3, 10)  # never fewer than the answer
    assert plan.score == SCORES.index("log-probability") == LOG_PROBABILITY
    assert plan.thresholds == [-math.inf]
    assert (plan.exact, plan.unsure, plan.far, plan.wide) == (False, 0, math.inf, 0)
    assert SearchParameters(exact=True).to_plan(10).exact
    assert SearchParameters(threshold=0.5).to_plan(1).thresholds == [math.log(0.5)]
    assert SearchParameters(threshold=0.0).to_plan(1).thresholds == [-math.inf]
    assert SearchParameters(probes=1).to_plan(1).candidates == 0  # all that are found
    coded = SearchParameters(probes=1, score="codes")
    assert (coded.to_plan(5).score, coded.to_plan(5).candidates) == (CODES, 40)
    assert coded.replace(candidates=MOST_CANDIDATES + 1).to_plan(5).score == LOG_PROBABILITY


# --- operating points ----------------------------------------------------------------------------

FEW = OperatingPoint(10, 0.1, candidates=40, centroids=2, wide=6, picked=80, work=1000.0)
MANY = OperatingPoint(1000, 0.001, candidates=4000, centroids=20, wide=60, picked=8000, work=1e5)
BOTH = SearchParameters(
    threshold=0.1, candidates=40, points=(FEW, MANY), strange=Strange(0.2, 0.4, 3.0)
)


def test_a_given_score_holds_for_strange_queries_too() -> None:
    coded = dataclasses.replace(BOTH, score="codes")
    assert coded.to_plan(10).picked == 80
    for score in SCORES:
        plan = coded.replace(score=score).to_plan(10)
        assert (plan.picked, SCORES[plan.score]) == (0, score)


@pytest.mark.parametrize("given", [1, 20, 300, MOST_CANDIDATES, MOST_CANDIDATES + 1])
def test_given_candidates_hold_for_strange_queries_too(given: int) -> None:
    coded = dataclasses.replace(BOTH, score="codes")
    for known in (BOTH, coded):
        plan = known.replace(candidates=given).to_plan(10)
        by_codes = given <= MOST_CANDIDATES
        assert plan.candidates == max(given, 10)
        assert plan.picked == (plan.candidates if by_codes else 0)  # else all found are compared
    assert coded.replace(score="votes", candidates=given).to_plan(10).picked == 0


def test_tuned_candidates_are_for_the_tuned_search_alone() -> None:
    """They are enough if chosen by the score and among the buckets that `tune` chose."""
    coded = dataclasses.replace(BOTH, score="codes")
    assert coded.replace().to_plan(10).candidates == 40
    assert coded.replace(score="votes").to_plan(10).candidates == 0  # all that are found
    assert coded.replace(min_votes=2).to_plan(10).candidates == 0
    assert coded.replace(probes=3).to_plan(100).candidates == 800  # as many as codes need
    assert coded.replace(probes=3, candidates=200).to_plan(100).candidates == 200
    assert coded.replace(score="votes", candidates=200).to_plan(10).candidates == 200
    own = SearchParameters(probes=3, candidates=50)
    assert own.replace(score="votes", probes=9).candidates == 50


def test_at_a_point_its_parameters_hold() -> None:
    for point in (FEW, MANY):
        found = BOTH.at(point.k)
        assert found.threshold == pytest.approx(point.threshold)
        assert found.candidates == pytest.approx(point.candidates, abs=1)
        assert BOTH.work_at(point.k) == pytest.approx(point.work)
        plan = BOTH.to_plan(point.k)
        assert plan.thresholds[0] == pytest.approx(math.log(point.threshold))
        assert plan.centroids[0] == point.centroids
        assert plan.likely == math.log(0.2)
        assert (plan.unsure, plan.far) == (0.4, 3.0)
        assert (plan.wide, plan.picked) == (point.wide, point.picked)


def test_between_points_the_logarithms_are_on_a_line() -> None:
    found = BOTH.at(100)
    assert found.threshold == pytest.approx(0.01)
    assert found.candidates in (400, 401)
    assert BOTH.work_at(100) == pytest.approx(1e4)
    assert BOTH.to_plan(505).centroids[0] == 11  # buckets are counted, not their logarithms


def test_below_the_first_point_nothing_changes_and_above_the_last_the_line_goes_on() -> None:
    assert BOTH.at(1).threshold == BOTH.at(10).threshold
    assert BOTH.at(1).candidates == 40
    assert BOTH.at(10_000).threshold == pytest.approx(1e-4)
    assert BOTH.at(10_000).candidates in (40_000, 40_001)


def test_one_point_holds_for_every_k() -> None:
    alone = SearchParameters(points=(FEW,))
    for k in (1, 10, 10**6):
        assert alone.at(k).threshold == pytest.approx(0.1)
        assert alone.at(k).candidates == 40


def test_no_limit_and_no_threshold_hold_from_the_smaller_point_on() -> None:
    open_end = SearchParameters(points=(FEW, MANY._replace(threshold=0.0, candidates=None)))
    assert (open_end.at(10).candidates, open_end.at(11).candidates) == (40, None)
    assert open_end.at(11).threshold == 0.0
    assert open_end.to_plan(11).candidates == 0


def test_points_that_lie_close_together_do_not_run_away() -> None:
    """Tuned for 999 and 1000 items: the line through both says nothing about 5000."""
    close = MANY._replace(k=999, threshold=0.002, candidates=2000, centroids=0, wide=90)
    parameters = SearchParameters(
        points=(FEW, close, MANY), score="codes", strange=Strange(0.1, 0.0, 1.0)
    )
    found = parameters.at(5000)
    assert found.threshold == pytest.approx(0.0002, rel=0.01)
    assert found.candidates == pytest.approx(20_000, rel=0.01)
    assert parameters.to_plan(5000).wide > 0
    assert parameters.to_plan(10**6).score == LOG_PROBABILITY


def test_given_probes_or_a_threshold_hold_for_every_k() -> None:
    for changed in (BOTH.replace(probes=3), BOTH.replace(threshold=0.3)):
        assert (changed.points, changed.strange) == ((), None)
        assert changed.at(500) == changed
        assert changed.to_plan(500).far == math.inf
    assert BOTH.replace(min_votes=2).points == BOTH.points


def test_given_candidates_hold_for_every_k() -> None:
    changed = BOTH.replace(candidates=123)
    assert [changed.at(k).candidates for k in (1, 10, 70, 1000, 10**5)] == [123] * 5
    assert changed.at(100).threshold == pytest.approx(0.01)  # as tuned
    assert changed.to_plan(500).candidates == 500


numbers = st.floats(1e-12, 1.0)
counts = st.integers(0, 10**5)
points = st.builds(
    OperatingPoint,
    k=st.integers(1, 10**5),
    threshold=st.one_of(st.just(0.0), numbers),
    candidates=st.one_of(st.none(), st.integers(1, 2**31 - 1)),
    centroids=counts,
    wide=st.one_of(st.none(), st.integers(1, 10**5)),
    picked=counts,
    work=st.floats(0, 1e12),
)


def in_order(found: list[OperatingPoint]) -> tuple[OperatingPoint, ...]:
    return tuple(sorted(found, key=lambda point: point.k))


parameters = st.builds(
    SearchParameters,
    threshold=st.one_of(st.none(), st.floats(0, 1)),
    candidates=st.one_of(st.none(), st.integers(1, 10**6)),
    score=st.sampled_from(SCORES),
    exact=st.booleans(),
    points=st.lists(points, max_size=5, unique_by=lambda point: point.k).map(in_order),
    strange=st.one_of(
        st.none(), st.builds(Strange, st.floats(0, 1), st.floats(0, 1), st.floats(-1e30, 1e30))
    ),
)


@settings(max_examples=200)
@given(parameters)
def test_json_leads_back(known: SearchParameters) -> None:
    assert SearchParameters.from_json(json.loads(json.dumps(known.to_json()))) == known


@settings(max_examples=200)
@given(
    parameters, st.integers(1, 2**31 - 1), st.floats(0, 40), st.floats(0), st.sampled_from(RANKS)
)
def test_any_points_make_a_plan(
    known: SearchParameters, k: int, start: float, exact_from: float, rank: str
) -> None:
    """However they were found, and however far from them k is."""
    known = dataclasses.replace(known, points=tuple(known.points))
    if rank != "distance":
        known = dataclasses.replace(known, rank=rank, score="votes")
    plan = known.to_plan(k, FilterPlan(start, exact_from))
    assert plan.k == k
    assert plan.candidates == 0 or plan.candidates >= k
    assert plan.wide >= 0
    assert known.work_at(k) >= 0 if known.points else True


@settings(max_examples=200)
@given(st.lists(points, min_size=1, max_size=5), st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_items_never_have_less(found: list[OperatingPoint], one: int, other: int) -> None:
    """If it is so at the points, then it is so between them."""
    ordered = in_order(found)
    thresholds = sorted((point.threshold for point in ordered), reverse=True)
    counted = sorted(point.centroids for point in ordered)
    limits = sorted(math.inf if p.candidates is None else p.candidates for p in ordered)
    rising = tuple(
        point._replace(
            threshold=threshold,
            centroids=centroids,
            candidates=None if math.isinf(limit) else int(limit),
        )
        for point, threshold, centroids, limit in zip(
            ordered, thresholds, counted, limits, strict=True
        )
    )
    known = SearchParameters(points=rising)
    few, many = known.at(min(one, other)), known.at(max(one, other))
    assert few.threshold is not None
    assert many.threshold is not None
    assert many.threshold <= few.threshold * (1 + 1e-9)
    counted = [known.to_plan(k).centroids[0] for k in sorted((one, other))]
    assert counted[0] <= counted[1]
    assert (many.candidates or math.inf) >= (few.candidates or math.inf)


@pytest.mark.parametrize(
    "change",
    [
        {"points": [{}]},
        {"points": [FEW._asdict() | {"threshold": 2.0}]},
        {"points": [FEW._asdict() | {"k": 0}]},
        {"points": [FEW._asdict() | {"centroids": -1}]},
        {"points": [FEW._asdict() | {"wide": 1.5}]},
        {"points": [FEW._asdict() | {"work": math.nan}]},
        {"points": 7},
        {"score": "best"},
        {"points": [FEW._asdict() | {"wide": 0}]},
        {"strange": "far"},
        {"strange": {"likely": 0.1, "unsure": 2.0, "far": 1.0}},
        {"strange": {"likely": -0.1, "unsure": 0.5, "far": 1.0}},
        {"strange": {"far": 1.0}},
        {"threshold": 1.5},
    ],
    ids=str,
)
def test_values_of_a_folder_are_checked(change: dict[str, Any]) -> None:
    SearchParameters.from_json(BOTH.to_json())
    with pytest.raises((InvalidParameter, KeyError, TypeError, ValueError)):
        SearchParameters.from_json(BOTH.to_json() | change)


@pytest.mark.parametrize("length", [-1.0, 1e30, float("inf"), float("nan")])
def test_forged_lengths_are_refused(length: float) -> None:
    """Kernels would refuse them, too, but in the middle of a search."""
    with pytest.raises(InvalidParameter, match="length"):
        SearchParameters.from_json({**dataclasses.asdict(SearchParameters()), "length": length})
