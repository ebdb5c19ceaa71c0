"""LocalShards, and open_shards, which opens the shards of an index here or on Ray.

To add a backend, write a class with the methods of `Serving`, and use it in `open_shards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from irli.base.checks import check_bool, check_float
from irli.cluster.shards.answers import Answers, collect
from irli.cluster.shards.ray_shards import RayShards


class Serving(Protocol):
    """A backend that runs the shards of an index."""

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        """Call a method of every shard, each with its own arguments."""

    def close(self) -> None:
        """Close the shards."""


class LocalShards:
    """All shards in this process, called one after the other."""

    def __init__(self, paths: Sequence[Path], kind: type, mmap: bool, verify: bool) -> None:
        self.shards = [kind(str(path), mmap, verify) for path in paths]

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        end = None if deadline is None else monotonic() + deadline
        values: list[Any] = []
        for shard, given in zip(self.shards, arguments, strict=True):
            if end is not None and monotonic() > end:
                break
            values.append(getattr(shard, method)(*given))
        late = range(len(values), len(self.shards))
        return collect(dict(enumerate(values)), {}, late, deadline, partial)

    def close(self) -> None:
        self.shards = []


def open_shards(
    paths: Sequence[Path], kind: type, mmap: bool, verify: bool, *, ray: str | None, replicas: int
) -> Serving:
    """Open the shards in these folders, in this process or, given an address, on Ray."""
    if ray is None:
        return LocalShards(paths, kind, mmap, verify)
    return RayShards(ray, paths, kind, mmap, verify, replicas)


def check_deadline(deadline: float | None, partial: bool, *, owner: str) -> float | None:
    """Check the arguments about late shards, and return the deadline."""
    check_bool("partial", partial, owner=owner)
    if deadline is None:
        return None
    return check_float("deadline", deadline, at_least=0.0, owner=owner)
