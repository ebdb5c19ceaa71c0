"""Part, one part of an index; LocalParts, all in this process; Serving, what runs parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from weakref import WeakValueDictionary

from irli.base.folder import Folder, is_part, write_part
from irli.base.parts.answers import Answers, collect

Open = Callable[[str, bool, bool], Any]  # opens a part: its path, mmap, verify


class Part:
    """The base class of every part. A group also calls its `facts`."""

    pack: Callable[..., Folder]  # returns the part as a folder in memory

    def process(self) -> int:
        """Return the id of the process in which the part runs."""
        return os.getpid()

    def save(self, root: str, *options: Any) -> str:
        """Write the part into a folder that is being changed. Return the name of its manifest."""
        return write_part(Path(root), self.pack(*options))


class Serving(Protocol):
    """A backend that runs the parts of an index."""

    def __len__(self) -> int:
        """Return the number of parts."""

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        """Call a method of every part, each with its own arguments."""

    def close(self) -> None:
        """Close the parts."""


class LocalParts:
    """All parts in this process, called one after the other."""

    def __init__(self, paths: Sequence[Path], open_part: Open, mmap: bool, verify: bool) -> None:
        self.parts = [_open(open_part, path, mmap, verify) for path in paths]

    def __len__(self) -> int:
        return len(self.parts)

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        end = None if deadline is None else monotonic() + deadline
        values: list[Any] = []
        for part, given in zip(self.parts, arguments, strict=True):
            if end is not None and monotonic() > end:
                break
            values.append(getattr(part, method)(*given))
        late = range(len(values), len(self.parts))
        return collect(dict(enumerate(values)), {}, late, deadline, partial)

    def close(self) -> None:
        self.parts = []


_OPEN: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def _open(open_part: Open, path: Path, mmap: bool, verify: bool) -> Any:
    """Open a part, unless it is open in this process: a part of an index folder never changes.

    A folder that was made anew at the same place is another one, whatever its parts are called.
    """
    if not is_part(path) or not path.is_file():
        return open_part(str(path), mmap, verify)
    seen = path.stat()
    key = open_part, path, seen.st_dev, seen.st_ino, seen.st_mtime_ns, mmap, verify
    part = _OPEN.get(key)
    if part is None:
        part = _OPEN[key] = open_part(str(path), mmap, verify)
    return part
