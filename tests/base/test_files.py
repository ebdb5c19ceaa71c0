from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from irli.base.files import TEMPORARY, claim_folder, lock_file, sync_directory, write_atomically
from irli.errors import InvalidParameter


class Interrupted(BaseException):
    """What Ctrl-C or a full disk does in the middle of a write."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- atomic writes ------------------------------------------------------------------------------


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    with write_atomically(tmp_path, "one") as file:
        file.write(b"half")
        file.flush()
        assert (tmp_path / "one").read_bytes() == b"old"
        [temporary] = set(names(tmp_path)) - {"one"}
        assert TEMPORARY.fullmatch(temporary)
        file.write(b" and half")
    assert (tmp_path / "one").read_bytes() == b"half and half"
    assert names(tmp_path) == ["one"]


def test_a_name_may_depend_on_the_content(tmp_path: Path) -> None:
    written = []
    with write_atomically(tmp_path, lambda: f"of-{len(written)}-bytes") as file:
        written += [file.write(b"x") for _ in range(3)]
    assert names(tmp_path) == ["of-3-bytes"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, Interrupted])
def test_an_interrupted_write_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def write_half() -> None:
        with write_atomically(tmp_path, "one") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert names(tmp_path) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_at_its_end_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    (tmp_path / "one").write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"), write_atomically(tmp_path, "one") as file:
        file.write(b"new")
    assert names(tmp_path) == ["one"]
    assert (tmp_path / "one").read_bytes() == b"old"


def test_a_name_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def name() -> str:
        raise Interrupted

    with pytest.raises(Interrupted), write_atomically(tmp_path, name) as file:
        file.write(b"whole")
    assert names(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with write_atomically(tmp_path, "one"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o666 & ~umask


def test_the_content_is_on_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), replace(*paths)))
    with write_atomically(tmp_path, "one") as file:
        file.write(b"whole")
    sync_directory(tmp_path)
    assert steps == ["fsync", "replace"] + ["fsync"] * (os.name != "nt")


# --- locks --------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from irli.base.files import lock_file

with lock_file(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


class Waiting:
    """Threads that want a lock."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def is_free(self, path: Path) -> bool:
        """Tell whether a thread gets the lock at once; one that does not goes on waiting."""
        got = threading.Event()

        def take() -> None:
            with lock_file(path):
                got.set()

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        thread.join(timeout=0.3)
        self.threads.append(thread)
        return got.is_set()

    def end(self) -> None:
        for thread in self.threads:
            thread.join(timeout=10)
            assert not thread.is_alive()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """Whoever waits for a lock in a test must have it in the end."""
    threads = Waiting()
    yield threads
    threads.end()


def test_a_lock_excludes_another_thread(tmp_path: Path, waiting: Waiting) -> None:
    path = tmp_path / "lock"
    with lock_file(path):
        assert not waiting.is_free(path)
        assert waiting.is_free(tmp_path / "other")
    assert waiting.is_free(path)


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_a_lock_excludes_another_process(tmp_path: Path, waiting: Waiting, end: str) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert not waiting.is_free(path)
        if end == "leaves":
            other.stdin.write("\n")
            other.stdin.flush()
        else:
            other.kill()
        other.wait(timeout=10)
    waiting.end()
    assert waiting.is_free(path)


def test_a_lock_ends_with_an_error(tmp_path: Path, waiting: Waiting) -> None:
    with pytest.raises(Interrupted), lock_file(tmp_path / "lock"):
        raise Interrupted
    assert waiting.is_free(tmp_path / "lock")


def test_locks_are_those_of_filelock(tmp_path: Path, waiting: Waiting) -> None:
    """It works on Windows too, which has no fcntl."""
    with FileLock(tmp_path / "lock"):
        assert not waiting.is_free(tmp_path / "lock")


def test_irli_does_without_fcntl() -> None:
    """As on Windows; filelock itself has another way there."""
    code = """
import sys
sys.modules["fcntl"] = None
import irli, irli.base.files, irli.base.folder, irli.cluster, irli.loading, irli.cli.vectors
print(irli.VectorIndex("l2"))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("VectorIndex(")


def test_a_claim_is_refused_to_others_and_leaves_nothing(tmp_path: Path) -> None:
    with claim_folder(tmp_path, ".claim", "it is in use"):
        refused = pytest.raises(InvalidParameter, match="it is in use")
        with refused, claim_folder(tmp_path, ".claim", "it is in use"):
            pass
        with claim_folder(tmp_path, ".another", "it is in use"):
            pass
        assert [path.name for path in tmp_path.iterdir()] == [".claim"]
    assert not list(tmp_path.iterdir())


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".claim")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InvalidParameter), claim_folder(tmp_path, ".claim", "it is in use"):
            pass
        other.kill()
        other.wait()
    with claim_folder(tmp_path, ".claim", "it is in use"):
        pass
    assert not list(tmp_path.iterdir())
