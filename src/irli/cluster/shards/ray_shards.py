"""RayShards: call shards that Ray actors serve, some of which may be dead, silent or slow.

A call asks one replica of each shard, and usually all answer. If a replica fails, another one is
asked at once. If it says nothing for a moment, it is pinged, in a thread of its own that no search
can block. If it is silent to that, too, another replica is asked as well, and the answer that comes
first counts. What a call finds out about a replica is remembered, so that the next calls begin
with replicas that work.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from irli.base.folder import read_manifest
from irli.base.logs import get_logger
from irli.base.parts.answers import Answers, collect
from irli.base.parts.local import Open
from irli.cluster.shards.actor import ShardActor
from irli.cluster.shards.ray_client import connect, unwrap_errors
from irli.errors import ClusterError, IrliError, ShardUnavailable

log = get_logger(__name__)

_STARTING = 300.0  # seconds for all shards to open
_AT_ONCE = 8  # calls that an actor runs concurrently
_PATIENCE = 30.0  # seconds for a lost shard to come back, if there is no deadline
_MOMENT = (
    0.1  # seconds without an answer until a replica is pinged, and then until another is asked
)
_SLOW = 0.5  # seconds without an answer to a ping that a slow replica may take
_DOWN = 2.0  # seconds without an answer to a ping until a replica counts as down
_MEMORY = 3.0  # seconds after a failure for which a replica counts as down
_PAUSE = 0.1  # seconds between two attempts to ask a replica that failed
_REVIVAL = 5.0  # seconds between two attempts to replace an actor that Ray has given up
_PIECE = 96 << 10  # bytes; Ray sends arguments up to 100 kB with the call, and stores larger ones
_PACKED = 1 << 20  # bytes of the largest request that is sent in such pieces


class Replica:
    """An actor that serves a shard, and what is known about it. Threads may share it."""

    def __init__(self, ray: Any, start: Callable[[], Any]) -> None:
        self.ray, self._start = ray, start
        self.actor = start()
        self._started = monotonic()
        self._failure = ""
        self._failed = -_MEMORY  # when
        self._ping: Any = None
        self._pinged = 0.0  # when
        self._lock = threading.RLock()

    @property
    def is_down(self) -> bool:
        """Whether it failed just now, or is silent to a ping for long.

        A failure is soon forgotten, since nobody looks after an actor between two calls.
        """
        return self._has_failed or self.is_silent(_DOWN)

    def is_silent(self, seconds: float) -> bool:
        """Whether it has not answered to a ping for some time."""
        return self._ping is not None and monotonic() - self._pinged > seconds

    @property
    def reason(self) -> str:
        """Why it is down."""
        return self._failure if self._has_failed else "it does not answer"

    @property
    def _has_failed(self) -> bool:
        return monotonic() - self._failed < _MEMORY

    def note_answer(self) -> None:
        """Note that it works."""
        with self._lock:
            self._failed, self._ping = -_MEMORY, None

    def note_failure(self, reason: str) -> None:
        """Note that it failed."""
        with self._lock:
            self._failed = monotonic()
            self._failure = reason.strip().partition("\n")[0].rstrip(".")

    def note_loss(self, error: Exception) -> None:
        """Note that its actor is lost. If Ray has given it up, start another one."""
        with self._lock:
            self.note_failure(str(error))
            given_up = isinstance(error, self.ray.exceptions.ActorDiedError)
            if given_up and monotonic() - self._started > _REVIVAL:
                log.warning("an actor is lost for good and is replaced: %s", self._failure)
                self._started = monotonic()
                self.actor, self._ping = self._start(), None

    def check(self) -> None:
        """Send a ping, or look whether the last one is answered."""
        with self._lock:
            if self._ping is None:
                if monotonic() - self._pinged > _PAUSE:
                    self._pinged = monotonic()
                    self._ping = self.actor.find_fault.options(concurrency_group="health").remote()
            elif self.ray.wait([self._ping], timeout=0)[0]:
                self._take_ping()

    def _take_ping(self) -> None:
        ping, self._ping = self._ping, None
        try:
            fault = self.ray.get(ping)
        except self.ray.exceptions.RayError as error:
            self.note_loss(error)
            return
        if fault:
            self.note_failure(fault)
        else:
            self.note_answer()


class RayShards:
    """A Ray actor for each replica of each shard.

    If an actor dies, Ray restarts it on a machine with room, and it opens its folder again.
    """

    def __init__(
        self,
        address: str,
        paths: Sequence[Path],
        open_part: Open,
        mmap: bool,
        verify: bool,
        replicas: int,
    ) -> None:
        self.ray = connect(address)
        actor = self.ray.remote(
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=_AT_ONCE,
            concurrency_groups={"health": 1},
            allow_out_of_order_execution=True,
            scheduling_strategy="SPREAD",
        )(ShardActor)

        def make_start(path: Path) -> Callable[[], Any]:
            checksum = read_manifest(path)["checksum"]
            return lambda: actor.remote(open_part, str(path), checksum, mmap, verify)

        starts = [make_start(path) for path in paths]
        self.replicas = [[Replica(self.ray, start) for _ in range(replicas)] for start in starts]
        self._turn = itertools.count()
        self._wait_until_open()

    def _wait_until_open(self) -> None:
        """Wait until every replica of every shard has opened its folder."""
        shard_of = {
            replica.actor.wait.remote(): shard
            for shard, replicas in enumerate(self.replicas)
            for replica in replicas
        }
        waiting = list(shard_of)
        done, late = self.ray.wait(waiting, num_returns=len(waiting), timeout=_STARTING)
        for reference in done:
            try:
                with unwrap_errors():
                    self.ray.get(reference)
            except (IrliError, OSError) as error:
                raise ClusterError(
                    f"Shard {shard_of[reference]} cannot be opened on the cluster: {error}"
                ) from error
        if late:
            raise ShardUnavailable(
                f"All shards must open within {_STARTING:g} s. {len(late)} of {len(waiting)} have "
                "not. Check 'ray status': the cluster may have no room for them."
            )

    def __len__(self) -> int:
        return len(self.replicas)

    def __getstate__(self) -> Any:
        raise ClusterError(
            "An index on Ray cannot be pickled or deep-copied: its shards live in the cluster. "
            "Save it, and open the folder where it is needed: ShardedIndex.load(path, ray=...)."
        )

    def call(
        self, method: str, arguments: list[tuple[Any, ...]], deadline: float | None, partial: bool
    ) -> Answers:
        """Call all shards in parallel. See `Call` for what happens if some do not answer."""
        requests = self._pack(method, arguments)
        return Call(self.ray, self.replicas, requests, next(self._turn), deadline, partial).run()

    def _pack(self, method: str, arguments: list[tuple[Any, ...]]) -> list[tuple[str, Any]]:
        """Return the name and the arguments of the actor's method for each shard.

        Ray needs milliseconds to pickle arguments for each shard, or to store them. So small ones
        are pickled once, for all shards, and sent with the call. Of large ones, Ray stores the
        arrays that several shards get.
        """
        if (
            sum(map(_count_bytes, {id(v): v for given in arguments for v in given}.values()))
            > _PACKED
        ):
            return [("call", (method, *given)) for given in self._share_arrays(arguments)]
        packed: dict[tuple[int, ...], tuple[bytes, ...]] = {}
        for given in arguments:
            key = tuple(map(id, given))
            if key not in packed:
                # Not by pickle: a filter may be a function of the user's program.
                request = self.ray.cloudpickle.dumps((method, given), protocol=5)
                packed[key] = tuple(
                    request[start : start + _PIECE] for start in range(0, len(request), _PIECE)
                )
        return [("call_packed", packed[tuple(map(id, given))]) for given in arguments]

    def _share_arrays(self, arguments: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the arguments, with references in place of arrays that several shards get.

        So the queries are written to Ray's object store once, not once for each shard.
        """
        arrays = {id(value): value for given in arguments for value in given if _is_array(value)}
        times = Counter(id(value) for given in arguments for value in given if _is_array(value))
        references = {key: self.ray.put(arrays[key]) for key, count in times.items() if count > 1}
        return [tuple(references.get(id(value), value) for value in given) for given in arguments]

    def close(self) -> None:
        for replica in itertools.chain(*self.replicas):
            self.ray.kill(replica.actor)
        self.replicas = []


class Call:
    """One call of all shards.

    A shard that is down is tried again until it answers, until the deadline or, without one, for
    some time. With `partial`, it is left out as soon as each of its replicas is known to be down.

    Parameters
    ----------
    requests : list of (str, tuple)
        For each shard, a method of `ShardActor` and its arguments.
    turn : int
        The number of the call. Calls go to the replicas in turn.
    """

    def __init__(
        self,
        ray: Any,
        replicas: list[list[Replica]],
        requests: list[tuple[str, Any]],
        turn: int,
        deadline: float | None,
        partial: bool,
    ) -> None:
        self.ray, self.requests = ray, requests
        self.deadline, self.partial = deadline, partial
        self.begin = monotonic()
        self.moment = _MOMENT if deadline is None else min(_MOMENT, deadline / 4)
        self.replicas = [_order(each, turn) for each in replicas]
        self.found: dict[int, Any] = {}
        self.waiting: dict[Any, tuple[int, Replica]] = {}
        self.asked: list[dict[int, float]] = [{} for _ in replicas]  # when, by number of replica
        self.down: dict[int, float] = {}  # since when, by shard

    def run(self) -> Answers:
        """Return the answers of the shards, or raise if shards are missing that must answer."""
        for shard, replicas in enumerate(self.replicas):
            if not (self.partial and all(replica.is_down for replica in replicas)):
                self._ask(shard, 0)
        try:
            if self._take_all():
                return collect(self.found, {}, (), self.deadline, self.partial)
            while not self._is_over():
                self._take_some()
                for shard in self._missing():
                    self._ask_others(shard)
        finally:
            for reference in self.waiting:  # answers that come too late for this call
                self.ray.cancel(reference)
        lost = {s: self.replicas[s][0].reason for s in self._missing() if self._is_lost(s)}
        late = tuple(shard for shard in self._missing() if shard not in lost)
        return collect(self.found, lost, late, self.deadline, self.partial)

    def _missing(self) -> list[int]:
        return [shard for shard in range(len(self.replicas)) if shard not in self.found]

    def _is_down(self, shard: int) -> bool:
        return all(replica.is_down for replica in self.replicas[shard])

    def _is_lost(self, shard: int) -> bool:
        """Whether a shard rather is down than slow, as far as one can tell so soon."""
        return all(each.is_down or each.is_silent(_SLOW) for each in self.replicas[shard])

    def _is_over(self) -> bool:
        missing, now = self._missing(), monotonic()
        if not missing or (self.deadline is not None and now - self.begin >= self.deadline):
            return True
        self.down = {s: self.down.get(s, now) for s in missing if self._is_down(s)}
        if self.partial:
            return len(self.down) == len(missing)
        # Without a deadline, a shard that works may take any time, and a lost one may come back.
        return self.deadline is None and any(now - s > _PATIENCE for s in self.down.values())

    # --- asking --------------------------------------------------------------------------------

    def _ask(self, shard: int, number: int) -> None:
        method, arguments = self.requests[shard]
        replica = self.replicas[shard][number]
        self.asked[shard][number] = monotonic()
        reference = getattr(replica.actor, method).remote(*arguments)
        self.waiting[reference] = shard, replica

    def _ask_others(self, shard: int) -> None:
        """Ask another replica of a shard, if those that were asked fail or are silent."""
        now = monotonic()
        pending = {id(replica) for at, replica in self.waiting.values() if at == shard}
        working = False
        for number, asked in self.asked[shard].items():
            replica = self.replicas[shard][number]
            if id(replica) in pending:
                if now - asked > self.moment:
                    replica.check()
                working |= not replica.is_down and not replica.is_silent(self.moment)
        if working and not self._is_urgent():
            return
        rest = [n for n in range(len(self.replicas[shard])) if n not in self.asked[shard]]
        if rest:
            self._ask(shard, rest[0])
            return
        for number, replica in enumerate(self.replicas[shard]):
            if id(replica) not in pending and now - self.asked[shard][number] > _PAUSE:
                self._ask(shard, number)

    def _is_urgent(self) -> bool:
        """Whether half of the time is over, so that even a replica that works may be too slow."""
        return self.deadline is not None and monotonic() - self.begin > self.deadline / 2

    # --- taking answers ------------------------------------------------------------------------

    def _take_all(self) -> bool:
        """Wait a moment for all answers, which is the usual case. Return whether all came."""
        try:
            values = self.ray.get(list(self.waiting), timeout=self.moment)
        except self.ray.exceptions.RayError:  # one is late, or has failed
            return False
        for (shard, replica), value in zip(self.waiting.values(), values, strict=True):
            replica.note_answer()
            self.found[shard] = _unpack(value)
        self.waiting = {}
        return not self._missing()

    def _take_some(self) -> None:
        """Wait a moment for the next answer, and take all that are there."""
        timeout = self.moment
        if self.deadline is not None:
            timeout = min(timeout, max(0.0, self.begin + self.deadline - monotonic()))
        if not self.waiting:
            sleep(min(timeout, _PAUSE))
            return
        waiting = list(self.waiting)
        done, _ = self.ray.wait(waiting, num_returns=1, timeout=timeout)
        if done:
            done, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for reference in done:
            self._take(reference)

    def _take(self, reference: Any) -> None:
        shard, replica = self.waiting.pop(reference)
        try:
            value = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, ShardUnavailable):
                raise error.cause from None
            replica.note_failure(str(error.cause))
        except self.ray.exceptions.RayError as error:
            replica.note_loss(error)
        else:
            replica.note_answer()
            self.found.setdefault(shard, _unpack(value))


def _order(replicas: list[Replica], turn: int) -> list[Replica]:
    """Return the replicas in the order in which to ask them: those that work, in turn, first."""
    for replica in replicas:
        if replica.is_down:
            replica.check()
    first = turn % len(replicas)
    rotated = replicas[first:] + replicas[:first]
    return sorted(rotated, key=lambda replica: replica.is_down or replica.is_silent(_MOMENT))


def _unpack(value: Any) -> Any:
    """Return the result of `ShardActor.call` or `call_packed`. No method of a shard gives bytes."""
    return pickle.loads(value) if isinstance(value, bytes) else value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _count_bytes(value: Any) -> int:
    """Return the bytes of an array or a sparse matrix, and 0 for anything else that is small."""
    if hasattr(value, "indptr"):
        return sum(int(part.nbytes) for part in (value.data, value.indices, value.indptr))
    return int(getattr(value, "nbytes", 0))
