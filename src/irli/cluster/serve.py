"""Serving shards: one object for each, in this process or as Ray actors that come back.

To add a backend: a class with the methods of `Serving`, and a line in `open_shards`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

from irli.cluster.ray_client import connect, unwrap_errors
from irli.errors import DeadlineExceeded, ShardUnavailable

_PATIENCE = 30.0  # seconds for a lost shard to come back, unless the deadline is nearer
_PAUSE = 0.1  # between two attempts
_STARTING = 300.0  # seconds for all shards to open
_AT_ONCE = 8  # calls that an actor works on side by side


class Answers(NamedTuple):
    """What the shards answered, in their order, and those that did not."""

    values: list[Any]
    missing: tuple[int, ...]


class Serving(Protocol):
    """Shards that can be called."""

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
        for shard, own in zip(self.shards, arguments, strict=True):
            if end is not None and monotonic() > end:
                break
            values.append(getattr(shard, method)(*own))
        late = list(range(len(values), len(self.shards)))
        return _collect(dict(enumerate(values)), [], late, deadline, partial)

    def close(self) -> None:
        self.shards = []


class RayShards:
    """A Ray actor for each shard, and for each of its replicas.

    An actor that dies is started again by Ray, where there is room, and opens its folder anew.
    """

    def __init__(
        self,
        address: str,
        paths: Sequence[Path],
        kind: type,
        mmap: bool,
        verify: bool,
        replicas: int,
    ) -> None:
        self.ray = connect(address)
        actor = self.ray.remote(kind).options(
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=_AT_ONCE,
            scheduling_strategy="SPREAD",
        )
        self.actors = [
            [actor.remote(str(path), mmap, verify) for _ in range(replicas)] for path in paths
        ]
        self._turn = itertools.count()
        self._wait_until_open()

    def _wait_until_open(self) -> None:
        """Wait until every replica of every shard has opened its folder."""
        waiting = [one.process.remote() for replicas in self.actors for one in replicas]
        done, late = self.ray.wait(waiting, num_returns=len(waiting), timeout=_STARTING)
        with unwrap_errors():
            self.ray.get(done)
        if late:
            raise ShardUnavailable(
                f"All shards must open within {_STARTING:g} s. {len(late)} of {len(waiting)} have "
                "not. Look at 'ray status': the cluster may have no room for them."
            )

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        """Ask all shards at once; those that are lost again, as long as there is hope.

        With `partial`, a shard is given up when none of its replicas is there; else when it has
        not come back in time.
        """
        end = monotonic() + (deadline or 0.0)
        turn = next(self._turn)
        arguments = self._share_arrays(arguments)
        found: dict[int, Any] = {}
        lost, late = list(range(len(self.actors))), list[int]()
        for attempt in itertools.count():
            left = None if deadline is None else max(0.0, end - monotonic())
            values, lost, late = self._ask(method, lost, arguments, turn + attempt, left)
            found |= values
            if deadline is None and attempt == 0:  # however long the others took
                end = monotonic() + _PATIENCE
            hopeless = partial and attempt + 1 >= len(self.actors[0])
            if not lost or late or hopeless or monotonic() + _PAUSE >= end:
                return _collect(found, lost, late, deadline, partial)
            sleep(_PAUSE)
        raise AssertionError("unreachable")

    def _share_arrays(self, arguments: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the arguments with references to arrays that several shards are given.

        So the queries are written to the object store once, not once for each shard.
        """
        arrays = {id(value): value for own in arguments for value in own if _is_array(value)}
        times = Counter(id(value) for own in arguments for value in own if _is_array(value))
        kept = {key: self.ray.put(arrays[key]) for key, count in times.items() if count > 1}
        return [tuple(kept.get(id(value), value) for value in own) for own in arguments]

    def _ask(
        self,
        method: str,
        shards: list[int],
        arguments: list[tuple[Any, ...]],
        turn: int,
        left: float | None,
    ) -> tuple[dict[int, Any], list[int], list[int]]:
        """Ask one replica of each shard; return values, lost shards and late ones."""
        shard_of = {}
        for shard in shards:
            replicas = self.actors[shard]
            actor = replicas[turn % len(replicas)]
            shard_of[getattr(actor, method).remote(*arguments[shard])] = shard
        waiting = list(shard_of)
        done, late = self.ray.wait(waiting, num_returns=len(waiting), timeout=left)
        values, lost = {}, []
        for reference in done:
            try:
                values[shard_of[reference]] = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self.ray.exceptions.RayError:
                lost.append(shard_of[reference])
        for reference in late:
            self.ray.cancel(reference)
        return values, lost, [shard_of[reference] for reference in late]

    def close(self) -> None:
        for replicas in self.actors:
            for actor in replicas:
                self.ray.kill(actor)
        self.actors = []


def open_shards(
    paths: Sequence[Path], kind: type, mmap: bool, verify: bool, *, ray: str | None, replicas: int
) -> Serving:
    """Open the shards in these folders, in this process or, given an address, on Ray."""
    if ray is None:
        return LocalShards(paths, kind, mmap, verify)
    return RayShards(ray, paths, kind, mmap, verify, replicas)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _collect(
    found: dict[int, Any], lost: list[int], late: list[int], deadline: float | None, partial: bool
) -> Answers:
    """Return the answers, or raise if they are too few."""
    missing = tuple(sorted([*lost, *late]))
    if missing and (not partial or not found):
        names = ", ".join(map(str, missing))
        advice = "Pass partial=True to do without them." if found else "No shard has answered."
        if lost:
            raise ShardUnavailable(
                f"All shards must answer, and {names} of {len(found) + len(missing)} did not: lost "
                f"and not back in time. {advice}"
            )
        raise DeadlineExceeded(
            f"All shards must answer within {deadline:g} s, and {names} of "
            f"{len(found) + len(missing)} did not. Give a longer deadline. {advice}"
        )
    return Answers([found[shard] for shard in sorted(found)], missing)
