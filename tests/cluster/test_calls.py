"""Calls of replicas that work, are slow, silent or lost, or cannot open their folders.

A replica goes through a list of states. What Ray would do then is simulated, with a clock of its
own, so that minutes pass in no time.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli.base.parts.answers import Answers
from irli.cluster.shards import ray_shards
from irli.cluster.shards.ray_shards import Call, Replica
from irli.errors import DeadlineExceeded, ShardUnavailable

QUICK, NOTICE = 0.005, 1.0  # seconds of an answer, and until Ray notices that a process is lost
TICK = 1e-6  # seconds that pass while one looks at the clock


class RayError(Exception):
    """The base of Ray's errors."""


class RayTaskError(RayError):
    """An error that a method has raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorDiedError(RayError):
    """Ray has given an actor up."""


class Reference:
    """The result of a remote call, and when it is there."""

    def __init__(self, ready: float, result: Any) -> None:
        self.ready, self.result = ready, result


class State(NamedTuple):
    """What a replica does from some time on: works, silent, lost or closed."""

    start: float
    name: str
    seconds: float = QUICK  # of an answer


class FakeActor:
    """A replica of a shard, whose answer is the number of the shard."""

    def __init__(self, ray: FakeRay, shard: int, states: list[State]) -> None:
        self.ray, self.shard, self.states = ray, shard, states
        self.asked = 0
        self.call_packed = SimpleNamespace(remote=self._call)
        self.find_fault = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._ping))

    def _call(self) -> Reference:
        self.asked += 1
        return self._answer(self.shard, RayTaskError(ShardUnavailable("closed")), None)

    def _ping(self) -> Reference:
        return self._answer("", "closed", QUICK)

    def _answer(self, result: Any, closed: Any, seconds: float | None) -> Reference:
        now = self.ray.now
        for state, after in zip(self.states, [*self.states[1:], State(math.inf, "")], strict=True):
            if after.start <= now or state.name == "silent":
                now = max(now, after.start if state.name == "silent" else now)
                continue
            if state.name == "lost":
                return Reference(now + QUICK, RayError("lost"))
            if state.name == "closed":
                return Reference(now + QUICK, closed)
            ready = now + (state.seconds if seconds is None else seconds)
            if ready <= after.start:
                return Reference(ready, result)
            if after.name == "lost":
                return Reference(after.start + NOTICE, RayError("lost"))
            if after.name == "closed":  # another process by now
                return Reference(after.start + QUICK, RayError("lost"))
            now = after.start
        return Reference(math.inf, None)


class FakeRay:
    """What `Call` and `Replica` use of Ray."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, ActorDiedError=ActorDiedError
    )

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds + TICK

    def wait(
        self, references: list[Reference], num_returns: int = 1, timeout: float = math.inf
    ) -> tuple[list[Reference], list[Reference]]:
        ready = sorted(reference.ready for reference in references)[num_returns - 1]
        self.now = max(self.now, min(ready, self.now + timeout)) + TICK
        done = [reference for reference in references if reference.ready <= self.now][:num_returns]
        return done, [reference for reference in references if reference not in done]

    def get(self, given: Any, timeout: float = math.inf) -> Any:
        references = given if isinstance(given, list) else [given]
        failed = [r.ready for r in references if isinstance(r.result, Exception)]
        ready = min([*failed, max([r.ready for r in references], default=self.now)])
        self.now = max(self.now, min(ready, self.now + timeout))
        for reference in references:
            if reference.ready <= self.now and isinstance(reference.result, Exception):
                raise reference.result
        if any(reference.ready > self.now for reference in references):
            raise RayError("late")
        results = [reference.result for reference in references]
        return results if isinstance(given, list) else results[0]

    def cancel(self, reference: Reference) -> None:
        pass


class World:
    """Shards with replicas that go through these states, on a simulated Ray."""

    def __init__(self, shards: list[list[list[State]]]) -> None:
        self.ray = FakeRay()
        self.actors = [
            [FakeActor(self.ray, shard, self._shift(states)) for states in replicas]
            for shard, replicas in enumerate(shards)
        ]
        self.turn = 0
        with self.time():
            self.replicas = [
                [Replica(self.ray, lambda actor=actor: actor) for actor in actors]  # type: ignore[misc]
                for actors in self.actors
            ]

    def _shift(self, states: list[State]) -> list[State]:
        return [state._replace(start=state.start + self.ray.now) for state in states]

    def time(self) -> Any:
        patch = pytest.MonkeyPatch.context()
        return _Patched(patch, self.ray)

    def call(self, deadline: float | None = None, partial: bool = False) -> tuple[Answers, float]:
        """Return the answers, and the seconds that they took."""
        with self.time():
            begin = self.ray.now
            self.turn += 1
            requests = [("call_packed", ())] * len(self.replicas)
            call = Call(self.ray, self.replicas, requests, self.turn, deadline, partial)
            return call.run(), self.ray.now - begin


class _Patched:
    """Lets the calls see the time of a simulated Ray."""

    def __init__(self, context: Any, ray: FakeRay) -> None:
        self.context, self.ray = context, ray

    def __enter__(self) -> None:
        patch = self.context.__enter__()
        patch.setattr(ray_shards, "monotonic", lambda: self.ray.now)
        patch.setattr(ray_shards, "sleep", self.ray.sleep)
        patch.setattr(ray_shards, "_PATIENCE", 5.0)

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)


WORKS = [State(0, "works")]
DOWN = {name: [State(0, name)] for name in ("silent", "lost", "closed")}


@st.composite
def lives(draw: st.DrawFn) -> list[State]:
    """A replica that changes at some moments."""
    starts = draw(st.lists(st.floats(0.01, 8), max_size=4).map(sorted))
    return [
        State(
            start, draw(st.sampled_from(["works", *DOWN])), draw(st.sampled_from([QUICK, 0.3, 8]))
        )
        for start in (0.0, *starts)
    ]


@given(
    shards=st.lists(st.lists(lives(), max_size=2), min_size=1, max_size=3),
    place=st.integers(0, 2),
    calls=st.integers(1, 6),
)
@settings(deadline=None, max_examples=60)
def test_one_replica_that_works_is_enough(
    shards: list[list[list[State]]], place: int, calls: int
) -> None:
    for others in shards:
        others.insert(place % (len(others) + 1), WORKS)
    world = World(shards)
    for _ in range(calls):
        found, seconds = world.call(deadline=1.0)
        assert found == Answers(list(range(len(shards))), ())
        assert seconds < 0.75
        world.ray.sleep(3)


@given(
    shards=st.lists(st.lists(lives(), min_size=1, max_size=2), min_size=1, max_size=3),
    deadline=st.none() | st.floats(0, 5),
    partial=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_every_call_ends_with_right_answers_or_an_error(
    shards: list[list[list[State]]], deadline: float | None, partial: bool
) -> None:
    world = World(shards)
    for _ in range(2):
        begin = world.ray.now
        try:
            found, _ = world.call(deadline, partial)
            answered = [shard for shard in range(len(shards)) if shard not in found.missing]
            assert found.values == answered
            assert answered
            assert partial or not found.missing
        except DeadlineExceeded:
            assert deadline is not None
        except ShardUnavailable:
            pass
        # Without a deadline: until the last state, its slowest answer, and the patience.
        assert world.ray.now - begin <= (30.0 if deadline is None else deadline + 1e-3)


@pytest.mark.parametrize("name", DOWN)
def test_a_shard_that_is_down_is_not_waited_for(name: str) -> None:
    world = World([[WORKS], [DOWN[name]]])
    found, seconds = world.call(partial=True)
    assert found == Answers([0], (1,))
    assert seconds < 3
    for _ in range(20):
        found, seconds = world.call(partial=True)
        assert found == Answers([0], (1,))
        assert seconds < 0.2
        world.ray.sleep(0.5)
    with pytest.raises(ShardUnavailable, match="1 of 2"):
        world.call(deadline=1.0)
    begin = world.ray.now
    with pytest.raises(ShardUnavailable, match="1 of 2"):
        world.call()
    assert world.ray.now - begin < 10


@pytest.mark.parametrize("name", DOWN)
@pytest.mark.parametrize("pause", [0.1, 20.0])
def test_a_shard_that_is_back_takes_part(name: str, pause: float) -> None:
    """Also if nobody has called for long."""
    world = World([[WORKS], [[State(0, name), State(10, "works")]]])
    world.call(partial=True)
    while world.ray.now < 1010:
        world.ray.sleep(pause)
        world.call(partial=True)
    world.ray.sleep(0.2)
    world.call(partial=True)
    world.ray.sleep(0.2)
    assert world.call(partial=True)[0] == Answers([0, 1], ())


def test_a_replica_that_opens_during_a_call_is_asked_again() -> None:
    opens = [State(0, "closed"), State(0.01, "works")]
    for replicas in ([opens], [DOWN["silent"], opens], [opens, DOWN["lost"]]):
        found, seconds = World([replicas]).call()
        assert found.values == [0]
        assert seconds < 1


def test_a_slow_shard_is_waited_for_and_asked_once() -> None:
    world = World([[[State(0, "works", 50.0)]]])
    found, seconds = world.call()
    assert found.values == [0]
    assert 50 <= seconds < 50.1
    assert world.actors[0][0].asked == 1
    with pytest.raises(DeadlineExceeded):
        world.call(deadline=1.0)
    world = World([[[State(0, "works", 50.0)], WORKS]])
    assert all(world.call(deadline=2.0)[1] <= 1.2 for _ in range(4))


def test_a_lost_replica_is_asked_last() -> None:
    world = World([[DOWN["lost"], WORKS, WORKS]])
    for _ in range(30):
        world.call(deadline=1.0)
        world.ray.sleep(0.01)
    lost, *others = (actor.asked for actor in world.actors[0])
    assert lost <= 2
    assert min(others) > 5


def test_errors_of_a_method_are_raised_as_they_are() -> None:
    world = World([[WORKS]])
    world.actors[0][0].call_packed.remote = lambda: Reference(0, RayTaskError(KeyError("k")))
    with pytest.raises(KeyError):
        world.call()


def test_an_actor_that_ray_has_given_up_is_replaced() -> None:
    world = World([[WORKS]])
    (replica,) = world.replicas[0]
    working = world.actors[0][0]
    gone = FakeActor(world.ray, 0, WORKS)
    gone.call_packed.remote = lambda: Reference(0, ActorDiedError("dead"))
    replica.actor = gone
    world.ray.sleep(10)
    assert world.call(deadline=5.0)[0].values == [0]
    assert replica.actor is working
