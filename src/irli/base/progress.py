"""Progress bars and progress callbacks: for a long loop, and one over all phases of a fit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from threading import Lock
from typing import Any, Self, TypeVar

T = TypeVar("T")

_SHOWN = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"  # the bar of a fit

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
def ticking(total: int, progress: Progress, what: str) -> Iterator[Callable[..., None]]:
    """Give a function to call after each of `total` steps, or after so many, from any thread.

    Examples
    --------
    >>> with ticking(2, lambda done, total, what: print(what, done, "of", total), "step") as tick:
    ...     tick()
    step 1 of 2
    """
    lock, done, started = Lock(), 0, time.monotonic()
    bar = _open_bar(total, what) if progress is True and _is_watched() else None

    def tick(steps: int = 1) -> None:
        nonlocal done
        with lock:
            done += steps
            if bar is not None:
                bar.update(steps)
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


class Phases:
    """One bar over all phases of a fit: which one it is, and how many seconds are left.

    The time that phases have taken so far, beside what was expected, tells what the others will
    take. A function as `progress` is told the steps of each phase instead.

    Parameters
    ----------
    progress : Progress
    expected : mapping
        The phases in order, and about how many seconds each takes.

    Examples
    --------
    >>> with Phases(False, {"neighbours": 1, "learning": 3}) as phases:
    ...     progress = phases.begin("neighbours")
    ...     progress = phases.begin("learning")
    >>> progress
    False
    """

    def __init__(
        self,
        progress: Progress,
        expected: Mapping[str, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress, self.expected, self._clock = progress, dict(expected), clock
        self.taken: dict[str, float] = {}  # seconds of each phase that has begun
        self._began = clock()
        self._loops, self._finished, self._part, self._what = 1, 0, 0.0, ""
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self.progress is True and _is_watched():
            self._bar = _open_bar(100, "", _SHOWN)
        return self

    def __exit__(self, failed: Any, *_: object) -> None:
        self._end(failed is not None)
        if self._bar is not None:
            self._bar.close()
        elif self.progress is True:
            parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.taken.items())
            sys.stderr.write(f"{sum(self.taken.values()):.1f} s: {parts}\n")

    def begin(self, phase: str, loops: int = 1) -> Progress:
        """End the phase before, and begin the next one, of so many loops. Return their progress."""
        self._end(False)
        self.taken[phase] = 0.0
        self._began, self._loops, self._finished, self._part = self._clock(), loops, 0, 0.0
        self._what = ""
        self._show()
        return (
            self._report if self._bar is not None else self.progress is not True and self.progress
        )

    def _end(self, failed: bool) -> None:
        if self.taken:
            self.taken[list(self.taken)[-1]] = self._clock() - self._began
            self._part = self._part if failed else 1.0
            self._show()

    def _report(self, done: int, total: int, what: str) -> None:
        """Take note of a step of a loop of this phase."""
        self._finished += bool(self._what) and what != self._what
        self._what = what
        part = (self._finished + (done / total if total else 0.0)) / self._loops
        self._part = min(1.0, max(self._part, part))
        self._show()

    def estimate(self) -> tuple[float, float]:
        """Return the share that is done, and how many seconds are left."""
        *before, phase = self.taken
        here = self.taken[phase] or self._clock() - self._began
        done = sum(self.expected[name] for name in before) + self._part * self.expected[phase]
        spent = sum(self.taken[name] for name in before) + (here if self._part > 0 else 0.0)
        whole = sum(self.expected.values())
        slower = spent / done if done > 0 else 1.0
        return done / whole, (whole - done) * slower

    def _show(self) -> None:
        if self._bar is None:
            return
        share, left = self.estimate()
        self._bar.set_description_str(list(self.taken)[-1], refresh=False)
        self._bar.set_postfix_str(f"about {left:.0f} s left", refresh=False)
        self._bar.n = round(100 * share)
        self._bar.refresh()


def _is_watched() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _open_bar(total: int, what: str, form: str | None = None) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total or None, desc=what, bar_format=form)
