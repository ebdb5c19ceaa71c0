from __future__ import annotations

import re
import sys

import pytest

from irli.base.progress import Phases, track


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


# --- one bar over the phases of a fit ----------------------------------------------------------


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_left_is_told_by_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes twice as long as expected, so the estimate is right after the first step."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    clock = Clock()
    with Phases(True, {"one": 10.0, "two": 30.0, "three": 5.0}, clock) as phases:
        for phase, seconds in (("one", 20.0), ("two", 60.0), ("three", 10.0)):
            report = phases.begin(phase)
            for _ in track(range(10), report, "step"):
                began = clock.now
                clock.now += seconds / 10
            assert began < clock.now
            assert phases.estimate()[1] == pytest.approx(90.0 - clock.now)
    assert phases.taken == {"one": 20.0, "two": 60.0, "three": 10.0}


def test_phases_share_one_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Phases(True, {"one": 1.0, "two": 3.0}) as phases:
        for _ in track("ab", phases.begin("one"), "loop"):
            pass
        report = phases.begin("two", loops=2)
        for loop in ("first", "second"):
            for _ in track("ab", report, loop):
                pass
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    shares = [int(share) for share in re.findall(r"(\d+)%\|", shown)]
    assert shares == sorted(shares)
    assert {12, 25, 44, 62, 81, 100} <= set(shares)
    assert re.search(r"one: +12%.*about \d+ s left", shown)
    assert re.search(r"two: 100%.*about 0 s left", shown)


def test_a_log_gets_one_line_of_all_phases(capsys: pytest.CaptureFixture[str]) -> None:
    with Phases(True, {"one": 1.0, "two": 3.0}) as phases:
        assert list(track("ab", phases.begin("one"), "loop")) == ["a", "b"]
        phases.begin("two")
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"[\d.]+ s: one [\d.]+, two [\d.]+\n", err)


def test_a_function_is_told_the_steps_of_all_phases() -> None:
    told: list[tuple[int, int, str]] = []
    with Phases(lambda *step: told.append(step), {"one": 1.0, "two": 3.0}) as phases:
        list(track("a", phases.begin("one"), "first"))
        list(track("a", phases.begin("two"), "second"))
    assert told == [(1, 1, "first"), (1, 1, "second")]


def test_a_bar_that_is_interrupted_stays_where_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def stop() -> None:
        with Phases(True, {"one": 1.0, "two": 1.0}) as phases:
            for step in track(range(4), phases.begin("one"), "loop"):
                if step == 2:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert "50%" not in capsys.readouterr().err
