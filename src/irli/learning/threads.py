"""The threads of learning. Those of torch sleep while they wait, or there is only one.

Threads of OpenMP wait for each other by spinning. Beside other programs, most wait for one that has
no core: learning then takes several times the CPU time, and longer than with a single thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_POLICY = "OMP_WAIT_POLICY"  # OpenMP reads it once, when torch is loaded
_LARGE = 1 << 27  # multiplications: they take so long that waking threads takes no time beside it

_threads = ContextVar("threads", default=1)


def let_threads_sleep() -> None:
    """Let the threads of torch sleep while they wait, if torch is not loaded yet."""
    if "torch" not in sys.modules:
        os.environ.setdefault(_POLICY, "PASSIVE")


@contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Learn with `threads` threads."""
    token = _threads.set(threads)
    try:
        yield
    finally:
        _threads.reset(token)


@contextmanager
def threads_for_step(multiplications: int) -> Iterator[None]:
    """Give torch our threads if they sleep while they wait, and if a step is worth waking them."""
    import torch

    before = torch.get_num_threads()
    sleeps = os.environ.get(_POLICY, "").upper() == "PASSIVE"
    many = sleeps and multiplications >= _LARGE
    torch.set_num_threads(current_threads() if many else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def current_threads() -> int:
    """Return the number of threads to learn with.

    Examples
    --------
    >>> with use_threads(3):
    ...     current_threads()
    3
    """
    return _threads.get()
