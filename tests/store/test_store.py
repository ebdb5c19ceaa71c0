"""The store: every change is there for who opens it next, and none is seen in part."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from irli.base.folder import Folder, changing, publish, read_folder, read_manifest, write_folder
from irli.errors import FormatError, IndexInUse, InvalidParameter, IrliWarning, StorageError
from irli.store import tail as tail_module
from irli.store.filters import field
from irli.store.store import Folded, Store
from irli.store.tail import read_rows

sys.path.insert(0, str(Path(__file__).parent))
from toy import DIM, Toy


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows in a chunk, so that few rows make several files and mappings."""
    monkeypatch.setattr(tail_module, "_CHUNK_BYTES", 4 * DIM * 8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "index"


def item(number: float, payload: Any = None) -> tuple[tuple[float, ...], Any]:
    return (float(number), number + 0.5, -float(number)), payload


def test_what_was_written_is_there_again(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({1: item(1, {"a": 1}), 2: item(2)})
    toy.change({2: item(22, {"b": [1, "ž", None, 2**70]})}, remove=[2])
    toy.change({}, remove=[1])
    state = toy.state()
    assert state == {2: item(22, {"b": [1, "ž", None, 2**70]})}
    toy.close()
    again = Toy.open(root)
    assert again.state() == state
    again.close()


@pytest.mark.parametrize("texts", [False, True])
def test_a_compaction_changes_nothing_that_is_seen(root: Path, texts: bool) -> None:
    name = (lambda n: f"id {n}\0") if texts else (lambda n: n)
    toy = Toy.create(root, texts=texts)
    for start in range(0, 100, 10):
        toy.change({name(n): item(n, {"n": n}) for n in range(start, start + 10)})
    toy.change({}, remove=[name(n) for n in range(0, 100, 3)])
    state = toy.state()
    before = toy.store.stats()
    toy.compact()
    assert toy.state() == state
    after = toy.store.stats()
    assert after.log_rows == 0 < before.log_rows
    assert after.tail_bytes == 0 < before.tail_bytes
    assert toy.find(field("n") < 10) == {name(n) for n in range(10) if n % 3}
    toy.change({name(0): item(5)})
    state = toy.state()
    toy.close()
    again = Toy.open(root)
    assert again.state() == state
    again.close()
    assert sorted(read_manifest(root)["files"]) == sorted(
        ["keys", "vectors"] + (["ids_bytes", "ids_offsets"] if texts else ["ids"])
    )


def test_rows_stay_where_they_are(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({n: item(n) for n in range(5)})
    chunk = toy.store.chunk(0)
    place = chunk.ctypes.data
    for n in range(5, 800):
        toy.change({n: item(n)})
    assert toy.store.chunk(0).ctypes.data == place
    assert not chunk.flags.writeable
    assert read_rows(toy.store.tail, 0, 800).tolist() == [list(item(n)[0]) for n in range(800)]
    toy.compact()
    assert chunk[4].tolist() == list(item(4)[0])  # who still holds it may read it
    toy.close()


def test_a_reader_follows(root: Path) -> None:
    toy = Toy.create(root)
    reader = Toy.open(root, writable=False)
    assert reader.store.changed()
    assert not reader.store.changed()
    toy.change({1: item(1), 2: item(2, {"a": 1})})
    assert reader.store.changed()
    reader.follow()
    assert reader.state() == toy.state()
    toy.set_payload([1], {"a": 1})
    reader.follow()
    assert reader.find(field("a") == 1) == {1, 2}
    toy.overwrite_payload([2], {"b": 1})
    toy.change({1: item(10, {"b": 2})}, remove=[1])
    reader.follow()
    assert reader.state() == toy.state()
    assert reader.find(field("a").exists()) == set()
    toy.compact()
    toy.change({3: item(3)})
    reader.seq -= 1  # as if it had not read the last change before the fold
    with pytest.raises(Folded):
        reader.follow()
    reader.close()
    reader = Toy.open(root, writable=False)
    assert reader.state() == toy.state()
    with pytest.raises(StorageError, match="reading only"):
        reader.change({4: item(4)})
    reader.close()
    toy.close()


def test_payloads_are_edited(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({n: item(n, {"a": {"b": 1, "c": 2}, "d": n}) for n in range(3)} | {3: item(3)})
    keys = [toy.key_of(n) for n in range(4)]
    toy.store.set_payload(keys[1:], {"a": 5, "e": None})
    toy.store.delete_payload_keys(keys[:2], ["a.b", "d"])
    toy.store.clear_payload(keys[2])
    assert toy.store.payloads(keys) == [
        {"a": {"c": 2}},
        {"a": 5, "e": None},
        None,
        {"a": 5, "e": None},
    ]
    assert toy.store.scroll(1, limit=2) == [(1, {"a": 5, "e": None}), (3, {"a": 5, "e": None})]
    with pytest.raises(InvalidParameter, match="JSON"):
        toy.store.set_payload(keys, {"a": float("nan")})
    toy.close()


def test_keys_and_ids(root: Path) -> None:
    toy = Toy.create(root, texts=True)
    uuid = UUID("12345678-1234-5678-1234-567812345678")
    zeros = np.zeros((2, DIM), np.float32)
    batch = toy.store.write(vectors=zeros, places=zeros[:, :2], ids=[uuid, "x"])
    assert batch.ids == [str(uuid), "x"]
    assert toy.store.find_keys([uuid, "x", "y", 1]).tolist() == [0, 1, -1, -1]
    toy.store.write(removed=[1])
    toy.store.write(vectors=zeros[:1], places=zeros[:1, :2], ids=["x"])
    assert toy.store.find_keys(["x"]).tolist() == [2]
    assert toy.store.find_ids([0, 1, 2, 3, -1]) == [str(uuid), "x", "x", None, None]
    toy.close()


def test_wrong_arguments_change_nothing(root: Path) -> None:
    toy = Toy.create(root)
    zeros = np.zeros((2, DIM), np.float32)
    with pytest.raises(InvalidParameter, match="'ids'"):
        toy.store.write(vectors=zeros, ids=[1])
    with pytest.raises(InvalidParameter, match="'payloads'"):
        toy.store.write(vectors=zeros, ids=[1, 2], payloads=[{}])
    with pytest.raises(ValueError, match="dimensions"):
        toy.store.write(vectors=np.zeros((1, 2)), ids=[1])
    with pytest.raises(InvalidParameter, match="row 1"):
        toy.store.write(vectors=zeros, ids=[1, 2], payloads=[{}, {1: 2}])
    assert toy.store.last_seq == 0
    toy.close()
    with pytest.raises(StorageError, match="closed"):
        toy.change({1: item(1)})


@pytest.mark.parametrize(
    "payload",
    [
        {"a": float("nan")},
        {"a": float("inf")},
        {1: 2},
        {"a": (1, 2)},
        {"a": {1, 2}},
        {"a": np.float32(1)},
        {"a": "\ud800"},
        [1],
        "text",
        {"a": "x" * (1 << 20)},
        {"a": json.loads("[" * 40 + "]" * 40)},
    ],
)
def test_payloads_that_json_cannot_say(payload: Any) -> None:
    with Store.in_memory(DIM) as store, pytest.raises(InvalidParameter, match="JSON objects"):
        store.write(vectors=np.zeros((1, DIM)), ids=[1], payloads=[payload])


def test_one_writer(root: Path) -> None:
    toy = Toy.create(root)
    with pytest.raises(IndexInUse, match=f"process {os.getpid()}"):
        Toy.open(root)
    code = "import sys; from toy import Toy; from pathlib import Path; Toy.open(Path(sys.argv[1]))"
    run = subprocess.run(
        [sys.executable, "-c", code, str(root)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"IndexInUse: The index at {root} is open for changes in process {os.getpid()}" in (
        run.stderr
    )
    with pytest.raises(IndexInUse):  # a save of another index over it
        write_folder(root, Folder("vectors", {}, {}, {}))
    toy.close()
    Toy.open(root).close()


def test_a_save_over_it_removes_the_store(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({1: item(1)})
    toy.close()
    write_folder(root, Folder("vectors", {}, {}, {}))
    assert not list(root.glob("store.*"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_must_open_its_own(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({1: item(1)})
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        code = 1
        try:
            try:
                toy.change({2: item(2)})
            except StorageError as error:
                code = 0 if "forked" in str(error) else 2
            reader = Toy.open(root, writable=False)
            code += 4 * (reader.state() != {1: item(1)})
            reader.close()
            del toy, reader
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    toy.change({3: item(3)})
    toy.close()
    again = Toy.open(root)
    assert set(again.state()) == {1, 3}
    again.close()


def test_a_child_does_not_keep_the_lock(root: Path) -> None:
    """A writer that forks and ends must not leave its lock with the child."""
    code = (
        "import os, sys, time; from toy import Toy; from pathlib import Path\n"
        "toy = Toy.create(Path(sys.argv[1]))\n"
        "if os.fork() == 0:\n"
        "    print('up', flush=True); sys.stdin.read(); os._exit(0)\n"
        "time.sleep(0.2); os._exit(0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        process.wait()
        Toy.open(root).close()
        process.stdin.close()


def test_snapshots_hold_what_was_acknowledged(root: Path, tmp_path: Path) -> None:
    toy = Toy.create(root)
    toy.change({n: item(n, {"n": n}) for n in range(20)})
    toy.compact()
    toy.change({n: item(n, {"n": n}) for n in range(20, 50)}, remove=[1, 2])
    state = toy.state()
    toy.snapshot(tmp_path / "copy")
    toy.change({100: item(100)})
    toy.compact()
    toy.snapshot(tmp_path / "folded")
    with pytest.raises(InvalidParameter, match="empty folder"):
        toy.snapshot(tmp_path / "copy")
    restored = Toy.open(tmp_path / "copy")
    assert restored.state() == state
    restored.change({200: item(200)})
    restored.compact()
    restored.close()
    assert 200 not in toy.state()
    folded = Toy.open(tmp_path / "folded", writable=False)
    assert folded.state() == toy.state()
    folded.close()
    toy.close()


def test_an_index_in_memory_can_be_saved(tmp_path: Path) -> None:
    with Store.in_memory(DIM) as store:
        zeros = np.zeros((3, DIM), np.float32)
        store.write(vectors=zeros, ids=[5, 6, 7], payloads=[{"n": n} for n in range(3)])
        store.write(removed=[1])
        seq = store.seal()
        with changing(tmp_path):
            entry = store.write_copy(tmp_path, seq)
            arrays = {"keys": np.array([0, 2])}
            publish(tmp_path, Folder("vectors", {}, arrays, {}, store=entry))
    entry = read_folder(tmp_path).store
    assert entry is not None
    with Store.open(tmp_path, entry, writable=True) as saved:
        assert saved.read_since(saved.applied) == []
        assert saved.payloads([0, 1, 2]) == [{"n": 0}, None, {"n": 2}]
        batch = saved.write(vectors=zeros[:1], ids=[8])
        assert batch.first_key == 3
        assert batch.seq > seq


def test_items_of_the_arrays_have_payloads(root: Path) -> None:
    with changing(root):
        store = Store.create(root, DIM, first_key=2)
        store.add_payloads(0, [None, {"a": 1}])
        publish(root, Folder("vectors", {}, {}, {}, store=store.entry(0)))
    assert store.payloads([0, 1]) == [None, {"a": 1}]
    assert store.write(vectors=np.zeros((1, DIM)), ids=[9]).first_key == 2
    assert store.read_since(0)[0].first_key == 2
    store.close()


def test_a_folder_that_nobody_can_write_to(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({1: item(1)})
    toy.close()
    code = "import sys; from toy import Toy; from pathlib import Path\n" + (
        "toy = Toy.open(Path(sys.argv[1]), writable=False); print(toy.state()); toy.close()"
    )
    root.chmod(0o555)
    try:
        run = subprocess.run(
            [sys.executable, "-c", code, str(root)],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        root.chmod(0o755)
    assert run.stdout.strip() == str({1: item(1)})


# --- damage ---


def damage(root: Path, pattern: str) -> Path:
    (path,) = root.glob(pattern)
    return path


def test_lost_bytes_of_a_power_cut_are_dropped(root: Path) -> None:
    toy = Toy.create(root, sync="normal")
    toy.change({n: item(n, {"n": n}) for n in range(4)})
    toy.compact()
    for n in range(4, 10):
        toy.change({n: item(n, {"n": n})})
    state = toy.state()
    _crash(toy)
    with open(damage(root, "*.tail.*"), "r+b") as file:
        file.seek(4 * DIM * 4)  # the fifth row, of item 8
        file.write(bytes(4 * DIM))
    with pytest.warns(IrliWarning, match="last 2 changes"):
        reader = Toy.open(root, writable=False)
    kept = {id: value for id, value in state.items() if id < 8}
    assert reader.state() == kept
    reader.close()
    with pytest.warns(IrliWarning, match="last 2 changes"):
        again = Toy.open(root)
    assert again.state() == kept
    assert again.store.scroll(0)[-1] == (7, {"n": 7})
    again.change({8: item(88)})
    state = again.state()
    again.close()
    again = Toy.open(root)
    assert again.state() == state
    again.close()


@pytest.mark.parametrize("how", ["other bytes", "cut", "missing"])
def test_damage_of_what_was_synced_is_an_error(root: Path, how: str) -> None:
    toy = Toy.create(root, sync="full")
    for n in range(6):
        toy.change({n: item(n)})
    _crash(toy)
    path = damage(root, "*.tail.*")
    if how == "missing":
        path.unlink()
    else:
        with open(path, "r+b") as file:
            if how == "cut":
                file.truncate(10)
            file.seek(4 * DIM * 3)
            file.write(b"no")
    for writable in (False, True):
        with pytest.raises(FormatError, match="damaged"):
            Toy.open(root, writable=writable)


def test_a_database_of_strangers_is_refused(root: Path) -> None:
    toy = Toy.create(root)
    toy.change({1: item(1)})
    toy.close()
    path = damage(root, "*.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TRIGGER t AFTER INSERT ON ops BEGIN DELETE FROM items; END")
    connection.commit()
    connection.close()
    with pytest.raises(FormatError, match="tables of a store"):
        Toy.open(root)
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(FormatError, match="damaged"):
        Toy.open(root)
    path.unlink()
    with pytest.raises(FormatError, match="missing"):
        Toy.open(root)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ops SET ids = x'00'",
        "UPDATE ops SET ids = 'no json'",
        "UPDATE ops SET places = x'000000'",
        "UPDATE ops SET count = 3",
        "UPDATE ops SET count = -1",
        "UPDATE ops SET slot = 1 << 40",
        "UPDATE ops SET slot = -8",
        "UPDATE ops SET removed = x'00'",
        "UPDATE ops SET first_key = 'x'",
        "UPDATE ops SET crc = 1",
        "UPDATE meta SET value = -3 WHERE name = 'dim'",
        "UPDATE meta SET value = 1 << 40 WHERE name = 'bits'",
        "DELETE FROM meta",
        "DELETE FROM tails",
        "UPDATE tails SET start = -1",
        "UPDATE meta SET value = 'x'",
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_a_forged_log_is_refused(root: Path, change: str, writable: bool) -> None:
    toy = Toy.create(root)
    toy.change({1: item(1), 2: item(2)})
    toy.close()
    connection = sqlite3.connect(damage(root, "*.sqlite"))
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(FormatError):
        Toy.open(root, writable=writable)


def test_an_old_manifest_beside_a_new_store(root: Path) -> None:
    toy = Toy.create(root)
    old = (root / "manifest.json").read_bytes()
    toy.change({1: item(1)})
    toy.compact()
    toy.close()
    new = (root / "manifest.json").read_bytes()
    (root / "manifest.json").write_bytes(old)
    entry = read_manifest(root)["store"]
    with pytest.raises(Folded):
        Store.open(root, entry)
    (root / "manifest.json").write_bytes(new)
    entry = read_manifest(root)["store"] | {"applied": 10}
    with pytest.raises(FormatError, match="ends at the change 1"):
        Store.open(root, entry)


def _crash(toy: Toy) -> None:
    """End a writer as a crash does: nothing is copied or removed. Others may open the index."""
    store = toy.store
    assert store.path is not None
    files = {path: path.read_bytes() for path in store.path.parent.glob("store.*")}
    store.close()
    for path in store.path.parent.glob("store.*"):
        path.unlink()
    for path, content in files.items():
        if not path.name.endswith("-shm"):
            path.write_bytes(content)


# --- a model ---

IDS = st.integers(0, 30)
PAYLOADS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "c.d", "$e", ""]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(0, 3)),
    max_size=3,
)


class StoreMachine(RuleBasedStateMachine):
    """A store in a folder, one in memory and a reader, against a dictionary."""

    texts = False

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.place = tempfile.TemporaryDirectory()
        self.root = Path(self.place.name) / "index"
        self.model: dict[Any, Any] = {}
        self.serial = 0
        self.copies = 0

    @initialize(sync=st.sampled_from(["full", "normal"]), texts=st.booleans())
    def create(self, sync: str, texts: bool) -> None:
        self.sync, self.texts = sync, texts
        self.toy = Toy.create(self.root, sync=sync, texts=texts)
        self.memory = Toy.in_memory()
        self.reader = Toy.open(self.root, writable=False)

    def name(self, number: int) -> Any:
        return f"n{number}" if self.texts else number

    @rule(numbers=st.sets(IDS, max_size=12), payload=PAYLOADS, data=st.data())
    def upsert(self, numbers: set[int], payload: Any, data: Any) -> None:
        add = {}
        for number in numbers:
            self.serial += 1
            add[self.name(number)] = item(self.serial, payload)
        gone = [id for id in add if id in self.model]
        others = [id for id in self.model if id not in add]
        if others:
            gone += data.draw(st.lists(st.sampled_from(others), unique=True, max_size=3))
        for toy in (self.toy, self.memory):
            toy.change(add, gone)
        for id in gone:
            del self.model[id]
        self.model |= add

    @precondition(lambda self: self.model)
    @rule(payload=PAYLOADS, overwrite=st.booleans(), data=st.data())
    def edit(self, payload: Any, overwrite: bool, data: Any) -> None:
        ids = data.draw(st.lists(st.sampled_from(list(self.model)), unique=True, min_size=1))
        for toy in (self.toy, self.memory):
            if overwrite or payload is None:
                toy.overwrite_payload(ids, payload)
            else:
                toy.set_payload(ids, payload)
        for id in ids:
            vector, old = self.model[id]
            merged = payload if overwrite or payload is None else {**(old or {}), **payload}
            self.model[id] = (vector, merged)

    @rule()
    def compact(self) -> None:
        self.toy.compact()
        self.memory.compact()

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        self.reader.close()
        if crash:
            _crash(self.toy)
        else:
            self.toy.close()
        self.toy = Toy.open(self.root, sync=self.sync)
        self.reader = Toy.open(self.root, writable=False)
        self.check()

    @rule()
    def follow(self) -> None:
        try:
            self.reader.follow()
        except Folded:
            self.reader.close()
            self.reader = Toy.open(self.root, writable=False)
        assert self.reader.state() == self.model

    @rule(again=st.booleans())
    def snapshot(self, again: bool) -> None:
        self.copies += 1
        copy = Path(self.place.name) / f"copy {self.copies}"
        self.toy.snapshot(copy)
        toy = Toy.open(copy, writable=again)
        assert toy.state() == self.model
        toy.close()

    @rule()
    def check(self) -> None:
        assert self.toy.state() == self.model
        assert self.memory.state() == self.model

    @rule(name=st.sampled_from(["a", "b", r"c\.d", r"\$e", ""]), value=st.integers(0, 3))
    def filter(self, name: str, value: int) -> None:
        key = name.replace("\\", "")
        wanted = set()
        for id, (_, payload) in self.model.items():
            found = (payload or {}).get(key)
            if any(
                type(v) is int and v >= value
                for v in (found if isinstance(found, list) else [found])
            ):
                wanted.add(id)
        for toy in (self.toy, self.memory):
            assert toy.find(field(name) >= value) == wanted

    def teardown(self) -> None:
        if hasattr(self, "toy"):
            self.check()
            for toy in (self.toy, self.memory, self.reader):
                toy.close()
        self.place.cleanup()


def test_a_store_is_a_dictionary() -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=int(os.environ.get("IRLI_EXAMPLES", "25")),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
