"""The number of threads, and running jobs and batches on them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from irli.base.checks import check_int
from irli.errors import InvalidParameter

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_PARTS_PER_THREAD = 4  # no thread waits for more than a quarter of another's share

_lock = Lock()
_pool: ThreadPoolExecutor | None = None
_default: int | None = None


def set_threads(threads: int | None) -> None:
    """Set the default number of threads. -1: one for each core.

    None goes back to the environment variable IRLI_NUM_THREADS, or without it to one for each core.
    """
    global _default
    if threads is not None and threads != -1:
        threads = check_int("threads", threads, at_least=1)
    _default = threads


def thread_count(threads: int | None) -> int:
    """Return the number of threads to use. None: the default. -1: one for each core.

    Examples
    --------
    >>> thread_count(3)
    3
    """
    if threads is None:
        threads = _default or _read_environment() or -1
    if threads == -1:
        affinity = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    return check_int("threads", threads, at_least=1)


def _read_environment() -> int | None:
    text = os.environ.get("IRLI_NUM_THREADS")
    if text is None:
        return None
    if text != "-1" and not (text.isdecimal() and int(text) > 0):
        raise InvalidParameter(
            "The environment variable IRLI_NUM_THREADS must be a number of threads, 1 or more, or "
            f"-1 for one on each core. Got {text!r} instead. Unset it to use every core."
        )
    return int(text)


@contextmanager
def limit_blas() -> Iterator[None]:
    """Let the products of NumPy run on one thread.

    Those of more threads spin while they wait: beside other programs, small products then take many
    times the CPU time. What is worth several threads here has threads of its own.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def run_all(jobs: Sequence[Callable[[], None]], threads: int) -> None:
    """Run `jobs`, `threads` at a time, and wait for all of them."""
    if threads == 1 or len(jobs) == 1:
        for job in jobs:
            job()
        return
    left = deque(jobs)

    def work() -> None:
        while True:
            try:
                job = left.popleft()
            except IndexError:
                return
            job()

    # The calling thread works, too. So a search proceeds even if others occupy the whole pool.
    others = [_get_pool().submit(work) for _ in range(min(threads, len(jobs)) - 1)]
    try:
        work()
    finally:
        for other in others:
            if not other.cancel():
                other.result()


def run_batch(work: Callable[[int, int], int], count: int, threads: int, block: int) -> None:
    """Call `work(first, last)` on spans of `count` rows, on `threads` threads, until all are done.

    `work` returns the row that it reached. Native code returns early now and then, so that Python
    sees an interrupt (Ctrl-C). The rest of the span goes back to the queue. After an exception, the
    other threads stop at the end of their current call, and then it is raised.

    Examples
    --------
    >>> rows = []
    >>> def work(first: int, last: int) -> int:
    ...     rows.append(first)
    ...     return first + 1
    >>> run_batch(work, count=3, threads=1, block=8)
    >>> rows
    [0, 1, 2]
    """
    if threads == 1 or count <= block:
        first = 0
        while first < count:
            first = work(first, count)
        return
    from concurrent.futures import wait

    parts = split_batch(count, threads, block)
    left = deque((part.start, min(part.stop, count)) for part in parts)
    stopped = False

    def run() -> None:
        nonlocal stopped
        try:
            while not stopped:
                try:
                    first, last = left.popleft()
                except IndexError:
                    return
                reached = work(first, last)
                if reached < last:
                    left.appendleft((reached, last))
        except BaseException:
            stopped = True
            raise

    # The calling thread works, too. So a batch proceeds even if others occupy the whole pool.
    others: list[Future[None]] = []
    try:
        for _ in range(min(threads, len(parts)) - 1):
            others.append(_get_pool().submit(run))
        run()
        others = [other for other in others if not other.cancel()]
        for other in others:
            other.result()
    except BaseException:
        stopped = True
        wait([other for other in others if not other.cancel()])
        raise


def split_batch(count: int, threads: int, block: int) -> list[slice]:
    """Cut a batch into parts of whole blocks: several for each thread, to balance the work.

    Examples
    --------
    >>> split_batch(20, threads=1, block=8)
    [slice(0, 24, None)]
    """
    parts = 1 if threads == 1 else threads * _PARTS_PER_THREAD
    step = block * max(1, -(-count // (block * parts)))
    return [slice(start, start + step) for start in range(0, count, step)]


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            from concurrent.futures import ThreadPoolExecutor

            cores = os.cpu_count() or 1
            _pool = ThreadPoolExecutor(max(4, 2 * cores), thread_name_prefix="irli")
        return _pool


def _forget_pool() -> None:
    """Drop the pool in a forked child, which has none of the pool's threads."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
