"""A sample of `make fuzz-folders`: damaged and forged folders are refused, or answer harmlessly."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from fuzz_folders import run_cases

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and devices")


def test_folders_are_refused_or_answer_for_themselves() -> None:
    outcomes = Counter(outcome for _, outcome in run_cases(seed=0, first=0, last=400) if outcome)
    assert [outcome for outcome in outcomes if outcome.startswith("failed")] == []
    assert outcomes["refused"] > 200
    assert outcomes["answered"] > 40
