"""Prediction parameters: one list of them, and how those of a call and the defaults go together."""

from __future__ import annotations

import dataclasses

from irli.labels.parameters import SCORES, LabelParameters, PredictArguments
from irli.labels.tuning.calibration import INDEX_ALONE, Calibration


def test_the_arguments_are_the_parameters() -> None:
    fields = [field.name for field in dataclasses.fields(LabelParameters)]
    assert list(PredictArguments.__annotations__) == fields


def test_what_is_not_given_stays() -> None:
    known = LabelParameters(probes=3, candidates=7, score="votes")
    assert known.replace() == known
    assert known.replace(probes=5) == LabelParameters(5, 7, "votes")
    assert known.replace(candidates=5, score="logit") == LabelParameters(3, 5, "logit")
    near = LabelParameters(near=9)
    assert near.replace(probes=5) == LabelParameters(5, near=9)
    assert near.replace(near=0).near == 0  # 0 is given, too


def test_the_plan_of_a_prediction() -> None:
    plan = LabelParameters(probes=2**40, candidates=9, score="logit").to_plan(4, INDEX_ALONE)
    assert (plan.k, plan.probes, plan.candidates) == (4, 2**31 - 1, 9)
    assert plan.score == SCORES.index("logit")
    assert (plan.by_margin, plan.by_score, plan.threshold) == (0.0, 1.0, 0.0)
    assert plan.min_votes == 1
    assert LabelParameters(min_votes=3).to_plan(4, INDEX_ALONE).min_votes == 3
    blended = Calibration(0.5, 1.0, 0.0, by_votes=0.3, own=True)
    plan = LabelParameters(near=2**40).to_plan(4, blended)
    assert (plan.near, plan.by_votes, plan.own) == (2**31 - 1, 0.3, True)
    assert LabelParameters(near=7).to_plan(4, INDEX_ALONE).near == 0  # their votes count nothing
