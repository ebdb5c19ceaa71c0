"""How learning runs: one list of options."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from irli.base.threads import thread_count
from irli.errors import InvalidParameter
from irli.learning.options import LearnArguments, LearnOptions


def test_the_arguments_are_the_options() -> None:
    fields = [field.name for field in dataclasses.fields(LearnOptions)]
    assert list(LearnArguments.__annotations__) == fields


def test_threads() -> None:
    assert LearnOptions(threads=3).thread_count == 3
    assert LearnOptions(threads=-1).thread_count == thread_count(-1)
    assert LearnOptions().thread_count == thread_count(None)


@pytest.mark.parametrize(
    ("name", "value"), [("threads", 0), ("threads", -2), ("workers", 0), ("workers", 1.5)]
)
def test_bad_options(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=f"'{name}' parameter"):
        LearnOptions(**{name: value})
