"""Progress bars and progress callbacks for long loops."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

# False: silent. True: a bar on stderr, or a line at the end where that is no terminal.
# A function: called with (done, total, what).
Progress = bool | Callable[[int, int, str], None]


def track(things: Iterable[T], progress: Progress, what: str) -> Iterator[T]:
    """Iterate over `things` and report the progress.

    Examples
    --------
    >>> list(track([1, 2], lambda done, total, what: print(what, done, "of", total), "step"))
    step 1 of 2
    step 2 of 2
    [1, 2]
    """
    with ticking(len(things) if isinstance(things, Sized) else 0, progress, what) as tick:
        for thing in things:
            yield thing
            tick()


@contextmanager
def ticking(total: int, progress: Progress, what: str) -> Iterator[Callable[[], None]]:
    """Give a function to call after each of `total` steps, from any thread.

    Examples
    --------
    >>> with ticking(2, lambda done, total, what: print(what, done, "of", total), "step") as tick:
    ...     tick()
    step 1 of 2
    """
    lock, done, started = Lock(), 0, time.monotonic()
    bar = _open_bar(total, what) if progress is True and _is_watched() else None

    def tick() -> None:
        nonlocal done
        with lock:
            done += 1
            if bar is not None:
                bar.update()
            elif callable(progress):
                progress(done, total, what)

    try:
        yield tick
    finally:
        if bar is not None:
            bar.close()
        elif progress is True:
            of = f" of {total}" if total else ""
            sys.stderr.write(f"{what}: {done}{of} in {time.monotonic() - started:.1f} s\n")


def _is_watched() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _open_bar(total: int, what: str) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total or None, desc=what)
