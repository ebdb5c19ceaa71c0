"""Single queries and batches: what one search keeps for the next, and what it must not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import irli
from irli.errors import InvalidParameter
from irli.vectors import searcher as module
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Searcher

SAVED = Path(__file__).parents[1] / "data" / "format-1" / "codes"
CHANGES = {"buckets": 8, "epochs": 1, "hidden": 4, "choices": 4}
RECIPE = irli.recipe("default", **CHANGES)


def vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def index() -> irli.VectorIndex:
    return irli.VectorIndex(recipe=RECIPE).fit(vectors(200), threads=1)


def test_a_single_query_is_answered_like_one_of_a_batch(index: irli.VectorIndex) -> None:
    """Whatever its strides, and whether it may be written or not."""
    rows = np.asfortranarray(vectors(20, seed=1))
    right = index.search(rows, 3)
    for i, row in enumerate(rows):
        found = index.search(row, 3)
        np.testing.assert_array_equal(found.ids, right.ids[i])
        np.testing.assert_allclose(found.distances, right.distances[i], rtol=1e-5)
    query = rows[0].copy()
    query.flags.writeable = False
    np.testing.assert_array_equal(index.search(query, 3).ids, right.ids[0])


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("scoring", ["full", "int8"])
@pytest.mark.parametrize("repetitions", [2, 5])
def test_threads_share_the_repetitions_of_a_single_query(
    monkeypatch: pytest.MonkeyPatch, metric: str, scoring: str, repetitions: int
) -> None:
    """Any number of threads gives the same bits, also with codes."""
    recipe = irli.recipe(RECIPE.name, **CHANGES, repetitions=repetitions, scoring=scoring, pieces=4)
    index = irli.VectorIndex(metric, recipe=recipe).fit(vectors(200), threads=1)
    calls = []
    real = Searcher._route_on_threads

    def watched(self: Searcher, *given: Any) -> Any:
        calls.append(given[-1])
        return real(self, *given)

    monkeypatch.setattr(Searcher, "_route_on_threads", watched)
    for query in 3 * vectors(5, seed=1):
        for score in ("codes", "log-probability", "votes"):
            right = index.search(query, 3, score=score, threads=1)
            monkeypatch.setattr(index._fitted().searcher, "is_slow_to_route", True)
            for threads in (2, 3, 8):
                found = index.search(query, 3, score=score, threads=threads)
                np.testing.assert_array_equal(found.ids, right.ids)
                np.testing.assert_array_equal(found.distances, right.distances)
            assert index.search(query, 3, score=score, threads=1).ids.tolist() == right.ids.tolist()
            monkeypatch.setattr(index._fitted().searcher, "is_slow_to_route", False)
    assert calls == [2, 3, 8] * 15


def test_only_slow_routers_share_their_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handing work to a thread takes longer than routing by a small network."""
    layouts = [
        irli.VectorIndex(recipe=irli.recipe(RECIPE.name, **CHANGES, repetitions=repetitions))
        .fit(vectors(60), threads=1)
        ._fitted()
        .searcher.layout
        for repetitions in (1, 2)
    ]
    assert [Searcher(layout).is_slow_to_route for layout in layouts] == [False, False]
    monkeypatch.setattr(module, "_SLOW", layouts[1].router_multiplications)
    assert [Searcher(layout).is_slow_to_route for layout in layouts] == [False, True]


def test_the_plan_before_serves_only_what_asks_for_the_same(index: irli.VectorIndex) -> None:
    query = vectors(1, seed=1)[0]
    assert len(index.search(query, 1, probes=1).ids) == 1
    with pytest.raises(InvalidParameter, match="probes"):
        index.search(query, 1, probes=True)
    with pytest.raises(InvalidParameter, match="'k'"):
        index.search(query, True, probes=1)
    assert len(index.search(query, 2, probes=1).ids) == 2


def test_new_defaults_count_at_once(index: irli.VectorIndex) -> None:
    query = vectors(1, seed=1)[0]
    kept = index.defaults
    index.defaults = SearchParameters(probes=1)
    few = index.explain(query, 1).probed
    index.defaults = SearchParameters(probes=8)
    many = index.explain(query, 1).probed
    index.defaults = kept
    assert few[0] < many[0] == 8


# --- threads, processes and signals -------------------------------------------------------------


def run_python(code: str) -> str:
    """Run some code in a new process, which must end well; return what it printed."""
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def answers(index: irli.VectorIndex, seed: int) -> tuple[bytes, bytes]:
    found = index.search(vectors(50, seed), 5, probes=3, threads=1)
    return found.ids.tobytes(), found.distances.tobytes()


def test_many_threads_search_one_index_at_once(index: irli.VectorIndex) -> None:
    """Batches, single queries, filters and explanations side by side, each with its own memory."""
    right = [answers(index, seed) for seed in range(8)]
    single = [index.search(row, 5, probes=3).ids.tolist() for row in vectors(50, seed=1)]
    few = np.arange(200) % 3 == 0
    allowed = index.search(vectors(50, 2), 5, filter=few, threads=1).ids
    told = index.explain(vectors(9, 3), 5, probes=2)
    start = threading.Barrier(12, timeout=60)

    def work(number: int) -> None:
        start.wait()
        for turn in range(30):
            seed = (number + turn) % 8
            assert answers(index, seed) == right[seed]
            row = (7 * number + turn) % 50
            assert index.search(vectors(50, seed=1)[row], 5, probes=3).ids.tolist() == single[row]
            again = index.search(vectors(50, 2), 5, filter=few, threads=2).ids
            np.testing.assert_array_equal(again, allowed)
            np.testing.assert_array_equal(
                index.explain(vectors(9, 3), 5, probes=2).votes, told.votes
            )

    with ThreadPoolExecutor(12) as pool:
        for job in [pool.submit(work, number) for number in range(12)]:
            job.result(timeout=120)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 100, 1000])
def test_threads_change_nothing(index: irli.VectorIndex, count: int, threads: int) -> None:
    rows = vectors(count, seed=4)
    one = index.search(rows, 4, threads=1)
    many = index.search(rows, 4, threads=threads)
    np.testing.assert_array_equal(one.ids, many.ids)
    np.testing.assert_array_equal(one.distances, many.distances)


def in_child(work: Callable[[], bool]) -> bool:
    """Return what `work` says in a forked process."""
    child = os.fork()
    if child == 0:  # it must not come back into pytest
        signal.alarm(60)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
ignore_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@needs_fork
@ignore_threads
def test_a_forked_child_searches(index: irli.VectorIndex) -> None:
    """After searches of the parent, on one thread and on more."""
    right = answers(index, 1)
    index.search(vectors(500), 5, threads=2)
    both = index.search(vectors(500, 2), 5, threads=1)
    assert in_child(lambda: answers(index, 1) == right)
    assert in_child(
        lambda: index.search(vectors(500, 2), 5, threads=2).ids.tobytes() == both.ids.tobytes()
    )
    assert answers(index, 1) == right


@needs_fork
@ignore_threads
def test_forks_while_other_threads_search(index: irli.VectorIndex) -> None:
    """Scratch memory that a thread of the parent holds is lost to the child, and no more."""
    right = answers(index, 1)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            index.search(vectors(50, 1), 5, threads=1)

    others = [threading.Thread(target=work) for _ in range(3)]
    for other in others:
        other.start()
    try:
        for _ in range(10):
            assert in_child(lambda: answers(index, 1) == right)
    finally:
        done.set()
        for other in others:
            other.join()


@needs_fork
def test_a_child_forked_before_the_first_search_searches() -> None:
    """In a process of its own, where irli is imported and no more."""
    printed = run_python(f"""
import os, numpy, irli
index = irli.load({str(SAVED)!r})
rows = numpy.ones((20, 8), dtype=numpy.float32)
child = os.fork()
if child == 0:
    print(index.search(rows, k=2, threads=2).ids.tolist(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(index.search(rows, k=2, threads=2).ids.tolist())
""")
    one, other = printed.splitlines()
    assert one == other


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_batch_can_be_interrupted(threads: int) -> None:
    """Ctrl-C, sent while a search of some minutes runs. The index still works afterwards."""
    printed = run_python(f"""
import signal, time, numpy, irli
from planted import assemble_layout, random_partition, random_router
from irli.vectors.searcher import Searcher
from searching import plan

X = numpy.random.default_rng(0).normal(size=(20_000, 16)).astype(numpy.float32)
searcher = Searcher(assemble_layout([random_router(16, 4)], [random_partition(20_000, 4)], X))
rows = numpy.tile(X, (50, 1))
right = searcher.search(X[:9], plan())[1]
signal.signal(signal.SIGALRM, signal.default_int_handler)
start = time.monotonic()
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    searcher.search(rows, plan(), threads={threads})
    print("the end")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start)
assert (searcher.search(X[:9], plan(), threads={threads})[1] == right).all()
""")
    word, _, seconds = printed.partition(" ")
    assert word == "interrupted"
    assert float(seconds) < 10  # a second at most, if the machine is not busy
