"""Search parameters: one list of them, and how those of a call and the defaults come together."""

from __future__ import annotations

import dataclasses
import math

import pytest

from irli.engine.vector_layout import CODES, LOG_PROBABILITY, MOST_CANDIDATES
from irli.errors import InvalidParameter
from irli.vectors.parameters import SCORES, SearchArguments, SearchParameters


def test_the_arguments_are_the_parameters() -> None:
    fields = [field.name for field in dataclasses.fields(SearchParameters)]
    assert list(SearchArguments.__annotations__) == fields
    assert list(SearchParameters().to_arguments()) == fields


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


def test_the_plan_of_a_search() -> None:
    plan = SearchParameters(probes=3, candidates=4).to_plan(10)
    assert (plan.k, plan.probes, plan.candidates) == (10, 3, 10)  # never fewer than the answer
    assert plan.score == SCORES.index("log-probability") == LOG_PROBABILITY
    assert plan.threshold == -math.inf
    assert SearchParameters(threshold=0.5).to_plan(1).threshold == math.log(0.5)
    assert SearchParameters(threshold=0.0).to_plan(1).threshold == -math.inf
    assert SearchParameters(probes=1).to_plan(1).candidates == 0  # all that are found
    coded = SearchParameters(probes=1, score="codes")
    assert (coded.to_plan(5).score, coded.to_plan(5).candidates) == (CODES, 40)
    assert coded.replace(candidates=MOST_CANDIDATES + 1).to_plan(5).score == LOG_PROBABILITY
