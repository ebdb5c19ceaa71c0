"""LocalShards and RayShards: call shards in this process, or as Ray actors with replicas.

To add a backend, write a class with the methods of `Serving`, and use it in `open_shards`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

from irli.base.checks import check_bool, check_float
from irli.cluster.ray_client import connect, unwrap_errors
from irli.errors import DeadlineExceeded, ShardUnavailable

_PATIENCE = 30.0  # seconds for a lost shard to come back, if there is no deadline
_PAUSE = 0.1  # seconds between two attempts
_STARTING = 300.0  # seconds for all shards to open
_AT_ONCE = 8  # calls that an actor runs concurrently


class Answers(NamedTuple):
    """The results of the shards, in their order, and the shards that did not answer."""

    values: list[Any]
    missing: tuple[int, ...]


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
        late = list(range(len(values), len(self.shards)))
        return _collect(dict(enumerate(values)), [], late, deadline, partial)

    def close(self) -> None:
        self.shards = []


class RayShards:
    """A Ray actor for each replica of each shard.

    If an actor dies, Ray restarts it on a machine with room, and it opens its folder again.
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
                "not. Check 'ray status': the cluster may have no room for them."
            )

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        """Call all shards in parallel, and call lost shards again until they answer or time is up.

        With `partial`, a shard is given up after each of its replicas was tried once.
        """
        end = monotonic() + (deadline or 0.0)
        turn = next(self._turn)
        arguments = self._share_arrays(arguments)
        found: dict[int, Any] = {}
        lost, late = list(range(len(self.actors))), list[int]()
        for attempt in itertools.count():
            timeout = None if deadline is None else max(0.0, end - monotonic())
            values, lost, late = self._call_once(method, lost, arguments, turn + attempt, timeout)
            found |= values
            # Without a deadline, the patience starts when the other shards have answered.
            if deadline is None and attempt == 0:
                end = monotonic() + _PATIENCE
            all_tried = partial and attempt + 1 >= len(self.actors[0])
            if not lost or late or all_tried or monotonic() + _PAUSE >= end:
                return _collect(found, lost, late, deadline, partial)
            sleep(_PAUSE)
        raise AssertionError("unreachable")

    def _share_arrays(self, arguments: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the arguments, with references in place of arrays that several shards get.

        So the queries are written to Ray's object store once, not once for each shard.
        """
        arrays = {id(value): value for given in arguments for value in given if _is_array(value)}
        times = Counter(id(value) for given in arguments for value in given if _is_array(value))
        references = {key: self.ray.put(arrays[key]) for key, count in times.items() if count > 1}
        return [tuple(references.get(id(value), value) for value in given) for given in arguments]

    def _call_once(
        self,
        method: str,
        shards: list[int],
        arguments: list[tuple[Any, ...]],
        turn: int,
        timeout: float | None,
    ) -> tuple[dict[int, Any], list[int], list[int]]:
        """Call one replica of each shard. Return the results, the lost shards and the late ones."""
        shard_of = {}
        for shard in shards:
            replicas = self.actors[shard]
            actor = replicas[turn % len(replicas)]
            shard_of[getattr(actor, method).remote(*arguments[shard])] = shard
        waiting = list(shard_of)
        done, late = self.ray.wait(waiting, num_returns=len(waiting), timeout=timeout)
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


def check_deadline(deadline: float | None, partial: bool, *, owner: str) -> float | None:
    """Check the arguments about late shards, and return the deadline."""
    check_bool("partial", partial, owner=owner)
    if deadline is None:
        return None
    return check_float("deadline", deadline, at_least=0.0, owner=owner)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _collect(
    found: dict[int, Any], lost: list[int], late: list[int], deadline: float | None, partial: bool
) -> Answers:
    """Return the answers, or raise if shards are missing that must answer."""
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
