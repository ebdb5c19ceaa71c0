from __future__ import annotations

import pytest

from irli.base.progress import track


def test_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(3), False, "learning")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_bar_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(3), True, "learning")) == [0, 1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert "learning" in err


def test_a_function_is_called_after_each_step() -> None:
    told: list[tuple[int, int, str]] = []
    steps = track("ab", lambda *step: told.append(step), "learning")
    assert next(steps) == "a"
    assert told == []  # the first step is not done yet
    assert list(steps) == ["b"]
    assert told == [(1, 2, "learning"), (2, 2, "learning")]


def test_a_total_that_nobody_knows_is_0() -> None:
    told: list[tuple[int, int, str]] = []
    list(track(iter("ab"), lambda *step: told.append(step), "learning"))
    assert told == [(1, 0, "learning"), (2, 0, "learning")]
