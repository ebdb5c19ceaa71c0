"""Crash a writer at every operation, cut the power, fill the disk: what was acknowledged is there.

A workload of changes, compactions and snapshots on a toy index runs in children of one process that
has `faults.c` loaded. Each child reports what it begins and what was acknowledged. Then a child
without faults opens the folder. It must hold what was acknowledged, or that and the change that was
under way. It must take further changes, too.

    python tests/store/crashes.py kill          # at every operation, for some seeds
    python tests/store/crashes.py random 1000   # at random operations of random workloads
    python tests/store/crashes.py fail          # every operation fails once, or from then on
    python tests/store/crashes.py power         # what power cuts may leave of the operations
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOTHING, KILL, FAIL, FAIL_ON = range(4)
PAGE = 4096
CRASHED = 3


def compile_faults(folder: Path) -> Path | None:
    """Return the compiled library of faults, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "faults.so"
    source = [str(HERE / "faults.c"), "-o", str(library)]
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", *source, "-ldl"], check=True)
    return library


def restart_with_faults() -> None:
    """Start this program again, with the library loaded."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_faults(Path(folder))
        if library is None:
            sys.exit("It takes Linux and a C compiler.")
        environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
        environment["OPENBLAS_NUM_THREADS"] = "1"
        sys.exit(subprocess.call([sys.executable, *sys.argv], env=environment))


# --- the workload ---


@dataclass
class Run:
    """What a child did: how many steps were acknowledged, and how it ended."""

    acknowledged: int
    failed: list[int] = field(default_factory=list)  # steps that raised an error
    code: int = 0
    operations: int = 0
    snapshots: dict[int, Path] = field(default_factory=dict)


def make_steps(seed: int) -> list[tuple[Any, ...]]:
    """Return a workload: what is added, removed, edited, compacted, copied and opened again."""
    random_ = random.Random(seed)
    live: set[str] = set()
    steps: list[tuple[Any, ...]] = []
    serial = 0
    for number in range(14):
        kind = random_.choice(["change"] * 3 + ["edit", "compact", "open", "leave", "snapshot"])
        if kind == "edit" and live:
            ids = random_.sample(sorted(live), min(3, len(live)))
            steps.append(("edit", ids, {"edited": number}))
        elif kind in ("compact", "open", "leave", "snapshot"):
            steps.append((kind,))
        else:
            add: dict[str, Any] = {}
            for _ in range(random_.choice([0, 1, 3, 20])):
                serial += 1
                payload = random_.choice([None, {"n": serial}, {"text": "x" * serial * 40}])
                add[f"i{random_.randrange(40)}"] = ((serial * 1.0, 0.5, -1.0), payload)
            gone = [id for id in sorted(live) if id in add or random_.random() < 0.1]
            steps.append(("change", add, gone))
            live = (live - set(gone)) | set(add)
    return steps


def make_states(steps: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return what the index holds before each step, and in the end."""
    states: list[dict[str, Any]] = [{}]
    for step in steps:
        state = dict(states[-1])
        if step[0] == "change":
            for id in step[2]:
                del state[id]
            state |= step[1]
        elif step[0] == "edit":
            for id in step[1]:
                vector, payload = state[id]
                state[id] = (vector, {**(payload or {}), **step[2]})
        states.append(state)
    return states


def take_step(toy: Any, step: tuple[Any, ...], root: Path, number: int, sync: str) -> Any:
    from toy import Toy

    if step[0] == "change":
        toy.change(step[1], step[2])
    elif step[0] == "edit":
        toy.set_payload(step[1], step[2])
    elif step[0] == "compact":
        toy.compact()
    elif step[0] == "snapshot":
        toy.snapshot(root / f"copy{number}")
    else:
        if step[0] == "leave":  # as when nobody closes it: nothing is synced
            toy.store._close()
        toy.close()
        toy = Toy.open(root / "index", sync=sync)
    return toy


class Faults:
    """The library that is loaded into this process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)
        self.library.faults_count.restype = ctypes.c_long

    def arm(
        self, root: Path, mode: int = NOTHING, at: int = 0, code: int = 0, syncs: bool = False,
        log: int = -1,
    ) -> None:  # fmt: skip
        arguments = [ctypes.c_char_p(str(root).encode()), mode, ctypes.c_long(at), code, int(syncs)]
        self.library.faults_arm(*arguments, log)

    def note(self, text: str) -> None:
        self.library.faults_note(ctypes.c_char_p(text.encode()))

    @property
    def count(self) -> int:
        return int(self.library.faults_count())


def in_child(work: Callable[[Callable[[Any], None]], None]) -> tuple[int, list[Any]]:
    """Run a function in a child. Return how the child ended, and what it reported."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = CRASHED
        try:
            os.close(reading)
            work(lambda what: (os.write(writing, json.dumps(what).encode() + b"\n"), None)[1])
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as file:
        reported = [json.loads(line) for line in file if line.endswith(b"\n")]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), reported


def run_workload(
    root: Path,
    steps: list[tuple[Any, ...]],
    sync: str,
    mode: int = NOTHING,
    at: int = 0,
    code: int = 0,
    syncs: bool = False,
    log: int = -1,
) -> Run:
    """Run a workload in a child with a fault. The index is made before, without one."""

    def work(report: Callable[[Any], None]) -> None:
        from toy import Toy

        from irli.errors import IrliError

        toy = Toy.create(root / "index", sync=sync, texts=True)
        faults = Faults()
        faults.arm(root, mode, at, code, syncs, log)
        for number, step in enumerate(steps):
            try:
                toy = take_step(toy, step, root, number, sync)
                report(["ack", number])
            except OSError as error:
                if mode not in (FAIL, FAIL_ON):
                    raise
                count = faults.count
                faults.arm(root)  # the disk has room again
                report(["fail", number])
                report(["count", count])
                if isinstance(error, IrliError) and error.errno is None:
                    check_after_error(toy, steps, number, str(error))
                return
            faults.note(f"ack {number}")
        report(["count", faults.count])

    ended, reported = in_child(work)
    run = Run(0, code=ended)
    for what, number in reported:
        if what == "ack":
            run.acknowledged = number + 1
            if steps[number][0] == "snapshot":
                run.snapshots[number] = root / f"copy{number}"
        elif what == "fail":
            run.failed.append(number)
        else:
            run.operations = number
    return run


def check_after_error(toy: Any, steps: list[tuple[Any, ...]], number: int, message: str) -> None:
    """After an error searches go on, and with room again so do changes, unless a sync failed."""
    states = make_states(steps)
    step = steps[number]
    if step[0] in ("open", "leave"):
        return
    assert toy.state() == states[number] or step[0] in ("change", "edit"), message
    if step[0] in ("change", "edit") and toy.store._broken is None:
        assert toy.state() == states[number], message
        take_step(toy, step, Path(), number, "full")
        assert toy.state() == states[number + 1]
        # What is reported is the state without the change.
        if step[0] == "change":
            old = {id: states[number][id] for id in step[2]}
            toy.change(old, list(step[1]))
        else:
            for id in step[1]:
                toy.overwrite_payload([id], states[number][id][1])
        assert toy.state() == states[number]
    toy.close()


def check_folder(root: Path, expected: list[dict[str, Any]], sync: str, lossy: bool) -> None:
    """Open a folder in a child. It must hold one of these states, and take changes."""

    def work(report: Callable[[Any], None]) -> None:
        from toy import Toy

        if lossy:
            warnings.simplefilter("ignore")
        reader = Toy.open(root, writable=False)
        seen = reader.state()
        reader.close()
        toy = Toy.open(root, sync=sync)
        state = toy.state()
        assert state in expected, f"the state is none of {len(expected)}: {sorted(state)}"
        assert seen == state
        toy.change({"new": ((9.0, 9.0, 9.0), {"new": True})})
        state = toy.state()
        toy.compact()
        assert toy.state() == state
        toy.close()
        toy = Toy.open(root)
        assert toy.state() == state
        toy.close()
        names = {path.name.split(".")[0] for path in root.iterdir()} - {""}
        assert names <= {"manifest", "store", "keys", "vectors", "ids_bytes", "ids_offsets"}

    ended, _ = in_child(work)
    assert ended == 0, f"{root} does not hold what it must"


@contextlib.contextmanager
def new_root() -> Iterator[Path]:
    """A folder in memory, where a sync costs nothing."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base, prefix="irli-") as folder:
        yield Path(folder)


def check_run(root: Path, steps: list[tuple[Any, ...]], run: Run, sync: str) -> None:
    states = make_states(steps)
    done = run.acknowledged
    check_folder(root / "index", states[done : done + 2], sync, lossy=False)
    for number, copy in run.snapshots.items():
        check_folder(copy, [states[number]], sync, lossy=False)


# --- kinds of crashes ---


def kill_everywhere(seeds: list[int], sync: str, step: int = 1) -> int:
    """Kill the workload at every operation. Return how often."""
    kills = 0
    for seed in seeds:
        steps = make_steps(seed)
        with new_root() as root:
            operations = run_workload(root, steps, sync).operations
        for at in range(1, operations + 1, step):
            kills += kill_at(steps, sync, at)
    return kills


def kill_at(steps: list[tuple[Any, ...]], sync: str, at: int) -> bool:
    with new_root() as root:
        run = run_workload(root, steps, sync, KILL, at)
        if run.code == 0:
            return False  # the workload came to its end before
        assert run.code == -signal.SIGKILL, run
        check_run(root, steps, run, sync)
    return True


def kill_at_random(count: int, seed: int) -> int:
    random_ = random.Random(seed)
    kills = 0
    while kills < count:
        steps = make_steps(random_.randrange(1 << 30))
        sync = random_.choice(["full", "normal"])
        kills += kill_at(steps, sync, random_.randrange(1, 400))
        if kills % 100 == 0:
            print(f"{kills} kills", flush=True)
    return kills


def fail_everywhere(seeds: list[int], sync: str, step: int = 1) -> int:
    """Let every operation fail: as on a full disk until it has room, or once; syncs with EIO."""
    faults = 0
    kinds = ((FAIL, errno.ENOSPC, False), (FAIL_ON, errno.ENOSPC, False), (FAIL, errno.EIO, True))
    for seed in seeds:
        steps = make_steps(seed)
        with new_root() as root:
            operations = run_workload(root, steps, sync).operations
        for mode, code, syncs in kinds:
            for at in range(1, operations + 1, step):
                with new_root() as root:
                    run = run_workload(root, steps, sync, mode, at, code, syncs)
                    assert run.code == 0, f"seed {seed}, {mode=}, {at=}, {code=}, {run}"
                    check_run(root, steps, run, sync)
                faults += bool(run.failed)
    return faults


# --- power cuts ---


@dataclass
class Inode:
    """A file: what is surely on disk, and what was written since."""

    durable: bytes = b""
    current: bytearray = field(default_factory=bytearray)
    touched: set[int] = field(default_factory=set)  # pages

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if len(self.current) < end:
            self.current += bytes(end - len(self.current))
        self.current[offset:end] = data
        self.touched.update(range(offset // PAGE, -(-end // PAGE)))

    def sync(self) -> None:
        self.durable, self.touched = bytes(self.current), set()

    def after_cut(self, random_: random.Random, share: float) -> bytes:
        """Return what a power cut leaves: each page that was not synced is new or old."""
        if share == 0:
            return self.durable
        content = bytearray(self.durable)
        if random_.random() < share or share == 1:
            content += bytes(max(0, len(self.current) - len(content)))
            del content[len(self.current) :]
        for page in sorted(self.touched):
            if share == 1 or random_.random() < share:
                new = self.current[page * PAGE : (page + 1) * PAGE]
                if page * PAGE <= len(content):
                    content[page * PAGE : page * PAGE + len(new)] = new
        return bytes(content)


class Disk:
    """Replays recorded operations, and knows what a power cut may leave of them."""

    def __init__(self, root: str, start: dict[str, bytes]) -> None:
        self.root = root
        self.names = {name: Inode(data, bytearray(data)) for name, data in start.items()}
        self.durable = dict(self.names)
        self.changes: list[dict[str, Inode]] = []  # of the folder, since it was synced

    def apply(self, what: str, path: str, other: str, offset: int, data: bytes) -> None:
        name = path[len(self.root) + 1 :]
        if what == "create":
            self.names[name] = Inode()
        elif what == "write":
            self.names[name].write(offset, data)
        elif what == "truncate":
            inode = self.names[name]
            del inode.current[offset:]
            inode.current += bytes(offset - len(inode.current))
        elif what == "allocate":
            inode = self.names[name]
            inode.current += bytes(max(0, offset - len(inode.current)))
        elif what == "rename":
            self.names[other[len(self.root) + 1 :]] = self.names.pop(name)
        elif what == "unlink":
            del self.names[name]
        elif name:
            self.names[name].sync()
        else:
            self.durable, self.changes = dict(self.names), []
        if what in ("create", "rename", "unlink"):
            self.changes.append(dict(self.names))

    def cut(self, folder: Path, random_: random.Random, share: float) -> None:
        """Write what is left into a folder. Changes of a directory reach the disk in order."""
        names = self.durable
        kept = round(len(self.changes) * (share if share in (0, 1) else random_.random()))
        if kept:
            names = self.changes[kept - 1]
        for name, inode in names.items():
            (folder / name).write_bytes(inode.after_cut(random_, share))


def read_record(path: Path) -> Iterator[tuple[str, str, str, int, bytes]]:
    with open(path, "rb") as file:
        for line in file:
            what, name, other, offset, size = line.decode().rstrip("\n").split("\t")
            yield what, name, other, int(offset), file.read(int(size)) if what == "write" else b""


def cut_power(seeds: list[int], sync: str, step: int = 1) -> int:
    """Replay what power cuts leave of workloads. Return how many were checked."""
    cuts = 0
    for seed in seeds:
        steps = [step for step in make_steps(seed) if step[0] != "snapshot"]
        states = make_states(steps)
        random_ = random.Random(seed)
        with new_root() as root:
            record = root / "record"
            start = _record(root, record, steps, sync)
            disk = Disk(str(root / "index"), start)
            acknowledged = durable = 0
            for number, (what, path, other, offset, data) in enumerate(read_record(record)):
                if what == "note":
                    acknowledged = int(path.split()[1]) + 1
                    if sync == "full" or steps[acknowledged - 1][0] in ("compact", "open"):
                        durable = acknowledged
                else:
                    disk.apply(what, path, other, offset, data)
                if number % step:
                    continue
                for share in (0, random_.choice([0.3, 0.5, 0.8]), 1):
                    with new_root() as left:
                        disk.cut(left, random_, share)
                        try:
                            check_folder(left, states[durable : acknowledged + 2], sync, lossy=True)
                        except AssertionError as error:
                            raise AssertionError(f"{seed=} {sync=} {number=} {share=}") from error
                    cuts += 1
    return cuts


def _record(root: Path, record: Path, steps: list[Any], sync: str) -> dict[str, bytes]:
    """Run a workload and record its operations. Return the files before it."""
    start: dict[str, bytes] = {}
    log = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def work(report: Callable[[Any], None]) -> None:
        from toy import Toy

        faults = Faults()
        toy = Toy.create(root / "index", sync=sync, texts=True)
        toy.close()
        toy = Toy.open(root / "index", sync=sync)
        for path in (root / "index").iterdir():
            if not path.name.endswith("-shm"):
                report([path.name, path.read_bytes().hex()])
        faults.arm(root / "index", log=log)
        for number, step in enumerate(steps):
            toy = take_step(toy, step, root, number, sync)
            faults.note(f"ack {number}")
        faults.arm(root / "nothing")

    ended, reported = in_child(work)
    os.close(log)
    assert ended == 0
    for name, content in reported:
        start[name] = bytes.fromhex(content)
    return start


def warm_up() -> None:
    """Import all that the children need, and make chunks small: few rows make several."""
    sys.path[:0] = [str(HERE)]
    import irli.store.tail

    irli.store.tail._CHUNK_BYTES = 4 * 3 * 8
    from toy import Toy

    with new_root() as root:
        toy = Toy.create(root / "index", texts=True)
        for number, step in enumerate([("change", {"a": ((1, 2, 3), {})}, []), ("snapshot",)]):
            take_step(toy, step, root, number, "full")
        toy.compact()
        toy.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["kill", "random", "fail", "power"])
    parser.add_argument("count", nargs="?", type=int, default=1, help="seeds, or kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int, default=1, help="take every so many-th operation")
    given = parser.parse_args()
    warm_up()
    total = 0
    if given.kind == "random":
        total = kill_at_random(given.count, given.seed)
    else:
        seeds = list(range(given.seed, given.seed + given.count))
        every = {"kill": kill_everywhere, "fail": fail_everywhere, "power": cut_power}[given.kind]
        for sync in ("full", "normal"):
            total += every(seeds, sync, given.step)
    print(f"{given.kind}: {total} crashes, nothing lost")


if __name__ == "__main__":
    if "faults.so" not in os.environ.get("LD_PRELOAD", ""):
        restart_with_faults()
    main()
