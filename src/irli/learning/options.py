"""How learning runs: threads, processes, device, checkpoint, progress. Never what is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from irli.base.checks import check_int
from irli.base.progress import Progress
from irli.base.threads import thread_count
from irli.base.types import StrPath


class LearnArguments(TypedDict, total=False):
    """The keyword arguments of every `fit`; `LearnOptions` says what they mean."""

    progress: Progress
    threads: int | None
    workers: int
    device: str
    checkpoint: StrPath | None


@dataclass(frozen=True)
class LearnOptions:
    """How learning runs.

    Attributes
    ----------
    progress : bool or callable
        True shows bars; a function is called with (done, total, what).
    threads : int, optional
        Threads to learn with: one for each core by default, or with -1.
    workers : int
        Processes that learn repetitions side by side.
    device : str
        Where torch learns: "cpu", "cuda".
    checkpoint : path, optional
        A folder that keeps finished repetitions, so that a second call resumes there.

    Examples
    --------
    >>> LearnOptions(threads=3).thread_count
    3
    """

    progress: Progress = False
    threads: int | None = None
    workers: int = 1
    device: str = "cpu"
    checkpoint: StrPath | None = None

    def __post_init__(self) -> None:
        check_int("workers", self.workers, at_least=1, owner="fit")
        thread_count(self.threads)

    @property
    def thread_count(self) -> int:
        """The number of threads."""
        return thread_count(self.threads)
