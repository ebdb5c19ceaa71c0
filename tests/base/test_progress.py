from __future__ import annotations

import re
import sys

import pytest

from irli.base.progress import track


def test_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(3), False, "learning")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_one_line_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(3), True, "learning")) == [0, 1, 2]
    assert list(track(iter("ab"), True, "reading")) == ["a", "b"]
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"learning: 3 of 3 in [\d.]+ s\nreading: 2 in [\d.]+ s\n", err)


def test_a_log_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    steps = track(range(3), True, "learning")
    assert (next(steps), next(steps)) == (0, 1)
    steps.close()
    assert capsys.readouterr().err.startswith("learning: 1 of 3 in ")


def test_a_terminal_gets_a_bar_that_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(track(range(3), True, "learning")) == [0, 1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"\rlearning: 100%\|.*\| 3/3 .*\n$", err)


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
