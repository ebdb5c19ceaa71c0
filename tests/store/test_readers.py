"""Readers in other processes and threads, while one writes: they see changes whole, and soon."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from irli.store.store import Folded

sys.path.insert(0, str(Path(__file__).parent))
from toy import Toy

READERS = 3
CHANGES = 120

# A reader follows until it sees the last change. Every state must be whole: one item says how many
# there are, and the number of a change never falls.
READER = """
import sys
from pathlib import Path
from test_readers import follow
print("up", flush=True)
follow(Path(sys.argv[1]))
"""


def follow(root: Path) -> None:
    """Check every state of an index until the last."""
    toy = Toy.open(root, writable=False)
    last = 0.0
    while last < CHANGES:
        if toy.store.changed():
            try:
                toy.follow()
            except Folded:
                toy.close()
                toy = Toy.open(root, writable=False)
        items = toy.state()
        if items:
            (number, count, _), payload = items["whole"]
            assert len(items) == count
            assert number >= last
            assert payload is None or payload["number"] >= number  # payloads are as they are now
            last = number
    toy.close()


def write(toy: Toy) -> None:
    live: list[str] = []
    for number in range(1, CHANGES + 1):
        add = [f"{number} {place}" for place in range(number % 7)]
        gone = live[: number % 5]
        count = len(live) - len(gone) + len(add) + 1.0
        whole = {"whole": ((float(number), count, 0.0), {"number": number})}
        items = {id: ((1.0, 2.0, 3.0), None) for id in add}
        toy.change(whole | items, gone + (["whole"] if number > 1 else []))
        live = live[len(gone) :] + add
        if number % 17 == 0:
            toy.compact()


def test_processes_follow_a_writer(tmp_path: Path) -> None:
    root = tmp_path / "index"
    toy = Toy.create(root, sync="normal", texts=True)
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(root)],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(READERS)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"up\n"
    write(toy)
    for reader in readers:
        _, errors = reader.communicate(timeout=120)
        assert reader.returncode == 0, errors.decode()
    toy.close()


def test_threads_read_payloads_while_one_writes(tmp_path: Path) -> None:
    toy = Toy.create(tmp_path / "index", sync="normal")
    toy.change({n: ((1.0, 2.0, 3.0), {"a": 0, "b": 0}) for n in range(50)})
    keys = [toy.key_of(n) for n in range(50)]
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                for payload in toy.store.payloads(keys):
                    assert payload is not None
                    assert payload["a"] == payload["b"]
                toy.store.stats()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(150):
        toy.store.set_payload(keys, {"a": number, "b": number})
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    toy.close()


def test_a_column_is_made_while_payloads_change() -> None:
    """What changes while a column is read is in it."""
    toy = Toy.in_memory()
    toy.change({n: ((1.0, 2.0, 3.0), {"a": 0}) for n in range(10)})
    source = toy.columns.source

    def interrupted(rows: object) -> object:
        texts = source(rows)  # type: ignore[arg-type]
        toy.columns.source = source
        toy.set_payload([3], {"a": 5})
        return texts

    toy.columns.source = interrupted  # type: ignore[assignment]
    assert toy.find({"a": 5}) == {3}
    assert toy.find({"a": 0}) == {n for n in range(10) if n != 3}
    toy.close()
