"""Part, one part of an index; LocalParts, all in this process; Serving, what runs parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from irli.base.folder import read_manifest
from irli.base.parts.answers import Answers, collect


class Part:
    """The methods of every part. A part is an index, opened from a folder of its own."""

    index: Any

    def process(self) -> int:
        """Return the id of the process in which the part runs."""
        return os.getpid()

    def save(self, path: str, options: dict[str, Any]) -> str:
        """Save the index of this part, and return the checksum of its manifest."""
        self.index.save(path, **options)
        return str(read_manifest(path)["checksum"])


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

    def __init__(self, paths: Sequence[Path], kind: type, mmap: bool, verify: bool) -> None:
        self.parts = [kind(str(path), mmap, verify) for path in paths]

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
