"""Options of `fit` that do not change the result: threads, workers, device, checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from irli.base.checks import check_int
from irli.base.progress import Progress
from irli.base.threads import thread_count
from irli.base.types import StrPath


class LearnArguments(TypedDict, total=False):
    """The keyword arguments of every `fit`. `LearnOptions` explains them."""

    progress: Progress
    threads: int | None
    workers: int
    device: str
    checkpoint: StrPath | None


@dataclass(frozen=True)
class LearnOptions:
    """How learning runs. None of these options changes what is learned.

    Attributes
    ----------
    progress : bool or callable
        True shows progress bars. A function is called with (done, total, what).
    threads : int, optional
        Number of threads. By default, or with -1, one for each core.
    workers : int
        Number of processes that learn repetitions in parallel.
    device : str
        "cpu", or a device of torch, such as "cuda". With several workers, "cuda" gives each a GPU
        of its own, as far as there are so many. "torch" is torch on the CPU, to compare with.
    checkpoint : path, optional
        A folder for finished repetitions, and the last finished epoch of the others. A second call
        resumes from it, and learns the same. Two builds cannot use one folder at the same time.

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
