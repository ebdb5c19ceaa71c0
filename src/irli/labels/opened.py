"""OpenedLabels: a label index in its folder. Each change is there before its call returns.

A label index is small, and a change touches most of it. So a change writes the arrays that are new,
and the manifest takes them over in one step. Readers see that the manifest is another one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from irli.base.files import WriterLock
from irli.base.folder import MANIFEST, Folder, write_folder
from irli.errors import StorageError

FOLLOW = 0.05  # seconds after which a reader looks for changes again, at most

P = ParamSpec("P")
T = TypeVar("T")


class OpenedLabels:
    """The folder of a label index that is open, to change it or to follow its changes."""

    def __init__(self, root: Path, *, writable: bool) -> None:
        self.root = root
        self.lock = threading.RLock()
        self._writer = WriterLock(root) if writable else None
        self._looked = time.monotonic()
        self._mark = 0, 0
        self._mark = self._mark_manifest()

    def write(self, folder: Folder) -> None:
        """Let the folder hold another version. Raise if it is open for reading only."""
        if self._writer is None:
            raise StorageError(
                "The index is open for reading only. Open it with irli.open(path) to change it."
            )
        write_folder(self.root, folder)

    def has_changed(self) -> bool:
        """Whether a writer has changed the index since the last call of this reader."""
        now = time.monotonic()
        if self._writer is not None or now - self._looked < FOLLOW:
            return False
        before, self._looked, self._mark = self._mark, now, self._mark_manifest()
        return self._mark != before

    def close(self) -> None:
        """Let another process change the index."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def _mark_manifest(self) -> tuple[int, int]:
        """Return what tells one manifest from the next. What is open outlives one that is lost."""
        try:
            found = os.stat(self.root / MANIFEST)
        except OSError:
            return self._mark
        return found.st_ino, found.st_mtime_ns


class HasFolder(Protocol):
    """An index that may be open in a folder."""

    _opened: OpenedLabels | None


I = TypeVar("I", bound=HasFolder)  # noqa: E741


def one_at_a_time(
    change: Callable[Concatenate[I, P], T],
) -> Callable[Concatenate[I, P], T]:
    """Let changes of an index that is open wait for each other."""

    @wraps(change)
    def wait(self: I, /, *args: P.args, **kwargs: P.kwargs) -> T:
        opened: Any = self._opened
        if opened is None:
            return change(self, *args, **kwargs)
        with opened.lock:
            return change(self, *args, **kwargs)

    return wait
