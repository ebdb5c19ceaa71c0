"""The threads of learning: those of torch sleep while they wait, or there is only one.

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
    """Learn with `threads` threads. torch gets them if they sleep while they wait, else one."""
    import torch

    token, before = _threads.set(threads), torch.get_num_threads()
    torch.set_num_threads(threads if os.environ.get(_POLICY, "").upper() == "PASSIVE" else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _threads.reset(token)


@contextmanager
def threads_for_step(multiplications: int) -> Iterator[None]:
    """Let torch use one thread if a step takes few multiplications: waking others takes longer."""
    with use_threads(current_threads() if multiplications >= _LARGE else 1):
        yield


def current_threads() -> int:
    """Return the number of threads to learn with.

    Examples
    --------
    >>> with use_threads(3):
    ...     current_threads()
    3
    """
    return _threads.get()
