from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import irli
from irli.base import threads
from irli.base.threads import run_all, run_batch, split_batch, thread_count
from irli.errors import InvalidParameter

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def _defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRLI_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "_default", None)


# --- how many -----------------------------------------------------------------------------------


def test_nothing_and_minus_one_are_one_for_each_core() -> None:
    assert thread_count(None) == thread_count(-1) == CORES
    assert thread_count(7) == 7


@pytest.mark.parametrize("given", [0, -2, 1.5, "2", True])
def test_other_numbers_are_refused(given: Any) -> None:
    for take in (thread_count, irli.set_threads):
        with pytest.raises(InvalidParameter, match="'threads' parameter must be an int"):
            take(given)
    assert thread_count(None) == CORES


def test_a_default_holds_where_nothing_is_said() -> None:
    irli.set_threads(3)
    assert (thread_count(None), thread_count(2), thread_count(-1)) == (3, 2, CORES)
    for every in (-1, None):
        irli.set_threads(3)
        irli.set_threads(every)
        assert thread_count(None) == CORES


def test_the_environment_sets_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRLI_NUM_THREADS", "5")
    assert (thread_count(None), thread_count(2), thread_count(-1)) == (5, 2, CORES)
    irli.set_threads(4)  # what the program says comes first
    assert thread_count(None) == 4
    irli.set_threads(-1)
    assert thread_count(None) == CORES
    monkeypatch.setenv("IRLI_NUM_THREADS", "-1")
    irli.set_threads(None)
    assert thread_count(None) == CORES


@pytest.mark.parametrize("text", ["", "0", "-2", "many", "1.5", "²"])
def test_an_environment_that_makes_no_sense(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRLI_NUM_THREADS", text)
    with pytest.raises(InvalidParameter, match=f"IRLI_NUM_THREADS must be .* Got '{text}'"):
        thread_count(None)


# --- jobs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_job_runs_once(count: int) -> None:
    done: list[int] = []
    run_all([lambda number=number: done.append(number) for number in range(20)], count)
    assert sorted(done) == list(range(20))
    if count == 1:
        assert done == list(range(20))


def test_jobs_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=10)
    run_all([both.wait, both.wait], 2)
    assert not both.broken


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_a_job_is_raised(count: int) -> None:
    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        run_all([lambda: None, fail, lambda: None], count)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 100, 1000])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("step", [3, 8, 10_000])
def test_every_row_of_a_batch_is_worked_on_once(count: int, workers: int, step: int) -> None:
    """However early a call returns."""
    done: list[int] = []

    def work(first: int, last: int) -> int:
        reached = min(first + step, last)
        done.extend(range(first, reached))
        return reached

    run_batch(work, count, workers, block=8)
    assert sorted(done) == list(range(count))


def test_spans_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=10)

    def work(first: int, last: int) -> int:
        if first in (0, 8):
            both.wait()
        return last

    run_batch(work, 16, 2, block=8)
    assert not both.broken


@pytest.mark.parametrize("error", [KeyError("here"), KeyboardInterrupt("here")])
@pytest.mark.parametrize("by_caller", [True, False])
def test_an_error_ends_a_batch_at_once(error: BaseException, by_caller: bool) -> None:
    """In whichever thread it happens: the others end their call, start none, and are awaited."""
    caller, meet = threading.get_ident(), threading.Barrier(2, timeout=10)
    calls: list[int] = []
    at_work = 0

    def work(first: int, last: int) -> int:
        nonlocal at_work
        at_work += 1
        calls.append(first)
        meet.wait()  # both threads have a span now
        if (threading.get_ident() == caller) == by_caller:
            raise error
        time.sleep(0.1)
        at_work -= 1
        return first + 1

    with pytest.raises(type(error), match="here"):
        run_batch(work, 1000, 2, block=8)
    assert len(calls) == 2
    assert at_work == 1  # the one that failed


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Ctrl-C in a twentieth of a second."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    yield
    signal.signal(signal.SIGALRM, before)


needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers")


@needs_timers
@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_ends_a_batch(workers: int) -> None:
    def work(first: int, last: int) -> int:
        time.sleep(0.01)
        return first + 1

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_batch(work, 100_000, workers, block=8)
    assert time.monotonic() - start < 2


@needs_timers
@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_ends_a_batch_while_the_caller_waits_for_others() -> None:
    caller, meet = threading.get_ident(), threading.Barrier(2, timeout=10)
    rows: list[int] = []

    def work(first: int, last: int) -> int:
        if not rows:
            meet.wait()  # each thread has one of the two spans
        if threading.get_ident() == caller:
            return last
        rows.append(first)
        time.sleep(0.5)
        return first + 1

    with pytest.raises(KeyboardInterrupt):
        run_batch(work, 16, 2, block=8)
    assert len(rows) == 1


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 1000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_parts_of_a_batch_are_whole_blocks(count: int, workers: int) -> None:
    parts = split_batch(count, workers, block=8)
    rows = [row for part in parts for row in range(count)[part]]
    assert rows == list(range(count))
    assert all((part.stop - part.start) % 8 == 0 for part in parts)
    assert len(parts) <= (1 if workers == 1 else 4 * workers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    run_all([lambda: None] * 4, 2)  # the parent has its threads now
    child = os.fork()
    if child == 0:  # it must not come back into pytest
        signal.alarm(20)
        try:
            run_all([lambda: None] * 4, 2)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
