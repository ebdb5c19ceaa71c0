"""Kill a process that changes an index, and fail its disk: what was acknowledged is there.

The workload changes an index in every way: items, payloads, compactions, refreshes, snapshots. It
runs in children of one process that has `tests/store/faults.c` loaded. Each child reports what was
acknowledged. Then another child opens the folder, to read and to write. Ids, vectors and payloads
must be those of a dictionary after what was acknowledged, or after that and the change that was
under way.

    python tests/vectors/index_crashes.py kill 1000   # at random operations on files
    python tests/vectors/index_crashes.py time 1000   # at random times, with maintenance
    python tests/vectors/index_crashes.py fail 1000   # a random operation fails, or all from it on
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "store")]

import numpy as np  # noqa: E402
from crashes import (  # noqa: E402
    FAIL,
    FAIL_ON,
    KILL,
    Faults,
    in_child,
    new_root,
    restart_with_faults,
)

DIM = 4
FITTED = 90  # items of the index to begin with
STEPS = 12
STEP = tuple[Any, ...]
State = dict[Any, tuple[tuple[float, ...], Any]]


# --- the workload --------------------------------------------------------------------------------


def make_vector(number: int) -> tuple[float, ...]:
    rng = np.random.default_rng(number)
    vector = 3 * np.eye(DIM)[number % DIM] + rng.normal(size=DIM)
    return tuple(vector.astype(np.float32).tolist())


def start_state(text: bool) -> State:
    return {(f"i{i}" if text else i): (make_vector(i), None) for i in range(FITTED)}


def make_steps(seed: int, text: bool, state: State, *, whole: bool) -> Iterator[tuple[STEP, State]]:
    """Yield changes without end, each with what the index holds after it.

    With `whole`, compactions, refreshes and snapshots are among them, and the index is opened
    again.
    """
    random_ = random.Random(seed)
    state, serial = dict(state), 1000
    changes = ["add", "add", "upsert", "remove", "remove_by", "set", "overwrite", "delete"]
    others = ["compact", "refresh", "open", "snapshot"] if whole else []
    while True:
        kind = random_.choice(changes + others)
        some = random_.sample(sorted(state), min(len(state), random_.choice([1, 3, 12])))
        step: STEP = (kind,)
        if kind in ("add", "upsert"):
            items: State = {}
            for id in some if kind == "upsert" else []:
                serial += 1
                items[id] = make_vector(serial), random_.choice([None, {"n": serial % 50}])
            for _ in range(random_.choice([1, 2, 25])):
                serial += 1
                payload = random_.choice([None, {"n": serial % 50, "text": "x" * serial}])
                items[f"i{serial}" if text else serial] = make_vector(serial), payload
            step = (kind, items)
            state = state | items
        elif kind == "remove":
            step = (kind, some)
            state = {id: item for id, item in state.items() if id not in some}
        elif kind == "remove_by":
            bound = random_.randrange(50)
            step = (kind, bound)
            state = {
                id: (vector, payload)
                for id, (vector, payload) in state.items()
                if (payload or {}).get("n", 0) <= bound
            }
        elif kind in ("set", "overwrite", "delete") and some:
            state = dict(state)
            for id in some:
                vector, payload = state[id]
                if kind == "set":
                    new: Any = {**(payload or {}), "n": serial % 50}
                elif kind == "overwrite":
                    new = {"text": "y"}
                else:
                    new = payload and {k: v for k, v in payload.items() if k != "n"}
                state[id] = vector, new
            step = (kind, some, serial % 50)
        elif kind not in others:
            continue
        yield step, state


def take_step(index: Any, step: STEP, root: Path, number: int, sync: str) -> Any:
    kind = step[0]
    if kind in ("add", "upsert"):
        vectors, payloads = zip(*step[1].values(), strict=True)
        getattr(index, kind)(vectors, ids=list(step[1]), payloads=payloads)
    elif kind == "remove":
        index.remove(step[1])
    elif kind == "remove_by":
        index.remove(filter={"n": {"$gt": step[1]}})
    elif kind == "set":
        index.set_payload(step[1], {"n": step[2]})
    elif kind == "overwrite":
        index.overwrite_payload(step[1], {"text": "y"})
    elif kind == "delete":
        index.delete_payload(step[1], ["n"])
    elif kind == "open":
        index.close()
        index = open_index(root / "index", sync)
    elif kind == "snapshot":
        index.snapshot(root / f"copy{number}")
    else:
        getattr(index, kind)()
    return index


def open_index(root: Path, sync: str, **given: Any) -> Any:
    import irli

    recipe = irli.recipe("default", epochs=1, epoch_size=128, hidden=4, pieces=4)
    given = {"sync": sync, "maintain": "manual", "recipe": recipe} | given
    if not (root / "manifest.json").exists():
        given |= {"metric": "l2", "dim": DIM}
    return irli.open(root, **given)


def state_of(index: Any) -> State:
    ids = list(index)
    if not ids:
        return {}
    vectors = map(tuple, index.vector(ids).tolist())
    found: State = dict(zip(ids, zip(vectors, index.payload(ids), strict=True), strict=True))
    assert len(found) == len(index) == len(ids)
    return found


def check_searches(index: Any, state: State) -> None:
    """Exact searches find what a dictionary says, others nothing that is not there."""
    query = np.array(make_vector(7))
    exact, near = index.search(query, 5, exact=True), index.search(query, 5)
    vectors = np.array([vector for vector, _ in state.values()], np.float32).reshape(-1, DIM)
    true = np.sort(((vectors - query) ** 2).sum(axis=1))[:5]
    np.testing.assert_allclose(exact.distances[: len(true)], true, rtol=1e-4, atol=1e-5)
    for found in (exact, near):
        ids = found.ids[: found.counts].tolist()
        assert len(ids) == len(true)
        assert len(set(ids)) == len(ids)
        assert all(id in state for id in ids)
    bound = {"n": {"$gt": 10}}
    wanted = {id for id, (_, payload) in state.items() if (payload or {}).get("n", 0) > 10}
    found = index.search(query, len(state) + 1, filter=bound)
    assert set(found.ids[: found.counts].tolist()) == wanted


class Workload:
    """A workload of a seed: where it begins, its steps, and what the index holds between them."""

    def __init__(self, seed: int) -> None:
        random_ = random.Random(seed)
        self.seed, self.sync = seed, random_.choice(["full", "normal"])
        self.text, self.learned = random_.random() < 0.5, random_.random() < 0.7
        self.start = start_state(self.text) if self.learned else {}

    def place(self, root: Path) -> None:
        """Put the index that it begins with into `root`."""
        if self.learned:
            shutil.copytree(LEARNED / str(self.text), root / "index")

    def steps(self, *, whole: bool = True) -> Iterator[tuple[STEP, State]]:
        return make_steps(self.seed, self.text, self.start, whole=whole)

    def plan(self) -> tuple[list[STEP], list[State]]:
        """Return some steps, and what the index holds before each, and in the end."""
        steps, states = zip(*islice(self.steps(), STEPS), strict=True)
        return list(steps), [self.start, *states]


# --- checking ------------------------------------------------------------------------------------


def check_folder(root: Path, expected: list[State], what: str, *, text: bool) -> None:
    """Open a folder in a child. It must hold one of these states, and take changes."""

    def work(report: Callable[[Any], None]) -> None:
        import irli

        if not (root / "manifest.json").exists():  # it was killed before there was an index
            assert expected[0] == {}
            expected[1:] = []
        else:
            reader = (
                irli.load(root) if os.getpid() % 2 else open_index(root, "full", writable=False)
            )
            seen = state_of(reader)
            check_searches(reader, seen)
        index = open_index(root, "full")
        state = state_of(index)
        assert state in expected, say_difference(state, expected)
        if expected[1:]:
            assert seen == state
        check_searches(index, state)
        items: State = {("new" if text else 10**9): (make_vector(5), {"n": 40})}
        index = take_step(index, ("add", items), root, 0, "full")
        state |= items
        index.compact()
        assert state_of(index) == state
        check_searches(index, state)
        index.close()
        index = open_index(root, "full")
        assert state_of(index) == state
        index.close()
        leftovers = [path.name for path in root.iterdir() if path.name.endswith(".tmp")]
        assert not leftovers

    ended, _ = in_child(work)
    assert ended == 0, f"{what}: {root} does not hold what it must"


def say_difference(state: State, expected: list[State]) -> str:
    told = [f"none of {len(expected)} states:"]
    for other in expected:
        lost, more = other.keys() - state.keys(), state.keys() - other.keys()
        wrong = [id for id in state.keys() & other.keys() if state[id] != other[id]]
        told.append(f"lost {sorted(lost)}, more {sorted(more)}, wrong {sorted(wrong)}")
    return "\n".join(told)


# --- crashes -------------------------------------------------------------------------------------


def kill_at(seed: int, at: int) -> bool:
    """Kill a workload at an operation. Return whether it came so far."""
    workload = Workload(seed)
    steps, states = workload.plan()
    text = workload.text
    what = f"kill {seed=} {at=} {workload.sync=}"
    with new_root() as root:

        def work(report: Callable[[Any], None]) -> None:
            workload.place(root)
            Faults().arm(root, KILL, at)
            index = open_index(root / "index", workload.sync)
            for number, step in enumerate(steps):
                index = take_step(index, step, root, number, workload.sync)
                report(number)

        ended, acknowledged = in_child(work)
        if ended == 0:
            return False
        assert ended == -signal.SIGKILL, f"{what}: {ended}"
        done = len(acknowledged)
        check_folder(root / "index", states[done : done + 2], what, text=text)
        for number in acknowledged:
            if steps[number][0] == "snapshot":
                check_folder(
                    root / f"copy{number}", [states[number]], f"{what} {number}", text=text
                )
    return True


def kill_after(seed: int, seconds: float, *, real: bool) -> bool:
    """Kill a process that changes an index, with maintenance in the background, after a time.

    The maintenance learns in another process if `real`.
    """
    workload = Workload(seed)
    what = f"time {seed=} {seconds=} {workload.sync=}"
    with new_root() as root:

        def work(report: Callable[[Any], None]) -> None:
            workload.place(root)
            if real:
                learn_elsewhere()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            index = open_index(root / "index", workload.sync, maintain="auto")
            for number, (step, _) in enumerate(workload.steps()):
                index = take_step(index, step, root, number, workload.sync)
                report(number)

        ended, acknowledged = in_child(work)
        assert ended == -signal.SIGALRM, f"{what}: {ended}"
        done = len(acknowledged)
        states = [workload.start, *(state for _, state in islice(workload.steps(), done + 1))]
        check_folder(root / "index", states[done : done + 2], what, text=workload.text)
    return True


def fail_at(seed: int, at: int, mode: int, code: int) -> bool:
    """Fail an operation, or all from it on until an error was raised. Then the disk works again.

    Searches go on, and the step succeeds when it is repeated: at once, or after opening the index
    again if a sync has failed. Return whether an error was raised.
    """
    workload = Workload(seed)
    steps, states = workload.plan()
    text = workload.text
    what = f"fail {seed=} {at=} {mode=} {code=} {workload.sync=}"
    with new_root() as root:

        def work(report: Callable[[Any], None]) -> None:
            workload.place(root)
            faults = Faults()
            faults.arm(root, mode, at, code)
            index, number = None, 0
            while number < len(steps):
                try:
                    if index is None:
                        index = open_index(root / "index", workload.sync)
                    index = take_step(index, steps[number], root, number, workload.sync)
                except OSError as error:
                    faults.arm(root / "nothing")
                    report(str(error))
                    index, number = go_on(index, error, steps, states, number, root, workload.sync)
                    continue
                number += 1
            faults.arm(root / "nothing")
            assert state_of(index) == states[-1], say_difference(state_of(index), states[-1:])
            check_searches(index, states[-1])
            index.close()

        ended, failed = in_child(work)
        assert ended == 0, f"{what}: {failed}"
        assert len(failed) <= 1, f"{what}: it failed again: {failed}"
        check_folder(root / "index", states[-1:], what, text=text)
        for number, step in enumerate(steps):
            if step[0] == "snapshot":
                check_folder(
                    root / f"copy{number}", [states[number]], f"{what} {number}", text=text
                )
    return bool(failed)


def go_on(
    index: Any, error: OSError, steps: list[STEP], states: list[State], number: int, root: Path,
    sync: str,
) -> tuple[Any, int]:  # fmt: skip
    """Check an index after an error. Return the index and the number of the step to go on with."""
    kind = steps[number][0]
    if kind == "snapshot":
        shutil.rmtree(root / f"copy{number}", ignore_errors=True)
    if index is None:
        return None, number
    if kind == "open":
        index.close()
    else:
        assert state_of(index) == states[number], say_difference(state_of(index), [states[number]])
        check_searches(index, states[number])
        if index._living.store._broken is None:
            return index, number
        assert "open the index again" in str(error), error
        index.close()
    index = open_index(root / "index", sync)
    state = state_of(index)
    assert state in states[number : number + 2], say_difference(state, states[number : number + 2])
    return index, number + (state != states[number])


# --- many of them --------------------------------------------------------------------------------

LEARNED = Path()


def learn_elsewhere() -> None:
    """Learn in another process, as users do."""
    from irli.vectors.changes import maintenance, refit

    maintenance.refit = refit.refit


def warm_up() -> None:
    """Import all that the children need, make indexes to begin with, and make everything small."""
    global LEARNED
    import irli.store.tail
    from irli.vectors.changes import growth, health, maintenance
    from irli.vectors.changes.refit import _run  # noqa: F401
    from irli.vectors.index import VectorIndex

    LEARNED = Path(tempfile.mkdtemp(prefix="irli-learned-"))
    irli.store.tail._CHUNK_BYTES = 4 * DIM * 8
    health._FEW, maintenance._LEAST, maintenance._AGAIN = 20, 30, 0.0
    growth._RATIO = 3
    warnings.simplefilter("ignore")

    def learn_here(
        folder: Path, contents: Any, recipe: Any, queries: Any, *_: Any, **__: Any
    ) -> Any:
        """Learn in this process: that is quick, and counts its operations."""
        index = VectorIndex(contents.metric, recipe=recipe)
        index.fit(contents.layout.vectors, queries=queries, threads=1)
        return index._fitted().contents

    maintenance.refit = learn_here

    def work(report: Callable[[Any], None]) -> None:
        from irli.vectors.index import VectorIndex

        for text in (False, True):
            index = open_index(LEARNED / "empty", "normal")
            recipe = index._given["recipe"]
            index.close()
            state = start_state(text)
            X = np.array([vector for vector, _ in state.values()], np.float32)
            made = VectorIndex(recipe=recipe).fit(X, ids=list(state), threads=1)
            made.save(LEARNED / str(text))

    ended, _ = in_child(work)
    assert ended == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["kill", "time", "fail"])
    parser.add_argument("count", nargs="?", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warm_up()
    random_ = random.Random(given.seed)
    done = 0
    try:
        while done < given.count:
            seed, at = random_.randrange(1 << 30), random_.randrange(1, 250)
            if given.kind == "kill":
                done += kill_at(seed, at)
            elif given.kind == "fail":
                mode = random_.choice([FAIL, FAIL_ON])
                done += fail_at(seed, at, mode, random_.choice([errno.EIO, errno.ENOSPC]))
            else:
                real = done % 10 == 0
                seconds = random_.uniform(0.05, 2 if real else 0.6)
                done += kill_after(seed, seconds, real=real)
            if done % 100 == 0:
                print(f"{done} of {given.count}", flush=True)
    finally:
        shutil.rmtree(LEARNED)
    print(f"{given.kind}: {done} crashes, nothing lost")


if __name__ == "__main__":
    if "faults.so" not in os.environ.get("LD_PRELOAD", ""):
        restart_with_faults()
    main()
