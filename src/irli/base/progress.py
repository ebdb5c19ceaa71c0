"""Progress bars and progress callbacks for long loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

# False: silent. True: a bar on stderr. A function: called with (done, total, what).
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
    if progress is False:
        yield from things
        return
    if progress is True:
        from tqdm.auto import tqdm

        yield from tqdm(things, desc=what, leave=False)
        return
    total = len(things) if isinstance(things, Sized) else 0
    for done, thing in enumerate(things, start=1):
        yield thing
        progress(done, total, what)


@contextmanager
def ticking(total: int, progress: Progress, what: str) -> Iterator[Callable[[], None]]:
    """Give a function to call after each of `total` steps, from any thread.

    Examples
    --------
    >>> with ticking(2, lambda done, total, what: print(what, done, "of", total), "step") as tick:
    ...     tick()
    step 1 of 2
    """
    if progress is False:
        yield lambda: None
        return
    lock, done = Lock(), 0
    if progress is True:
        from tqdm.auto import tqdm

        with tqdm(total=total, desc=what, leave=False) as bar:

            def update() -> None:
                with lock:
                    bar.update()

            yield update
        return

    def report() -> None:
        nonlocal done
        with lock:
            done += 1
            progress(done, total, what)

    yield report
