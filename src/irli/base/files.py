"""Output files and folders, atomic writes, locks, opening regular files, syncing to disk."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from irli.base.types import StrPath
from irli.errors import IndexInUse, InvalidParameter

LONGEST_LINE = 64 << 20  # bytes; more is no text, or a file made to fill the memory
# What the system says of a path that cannot be written, whatever is written.
_BLAMED = {"ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "EACCES", "EPERM", "EROFS", "ENAMETOOLONG"}
_WRITER = ".irli.writer"
_FAR = 1 << 30  # beyond what is written into a lock's file
TEMPORARY = re.compile(r"\.irli-[0-9a-f]{32}\.tmp")  # names of files that are not complete


def make_folder(path: Path, name: str) -> None:
    """Make a folder that will be written to, with those above it. Raise if that is impossible.

    Parameters
    ----------
    name : str
        What a user calls it: "'path' parameter of save".

    Examples
    --------
    >>> make_folder(Path("/dev/null/index"), "'path' parameter of save")
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'path' parameter of save must name a place to write to.
    '/dev/null/index' cannot be written: Not a directory. Choose another path, or change what is
    there.
    """
    with _blame_path(path, name):
        _make_folder(path)


def claim_file(path: Path, name: str) -> None:
    """Make the folder of a file that will be written. Raise if the file cannot be written there.

    Commands call this before their work, so that it is not in vain.
    """
    with _blame_path(path, name):
        _make_folder(path.parent)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists():
            _check_access(path)


def _make_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)
    _check_access(path)


def _check_access(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def open_output(path: StrPath, name: str = "'path' parameter") -> Iterator[IO[bytes]]:
    """Open a file to write, in a folder that is made if it is missing.

    Parameters
    ----------
    name : str
        What a user calls it, as for `make_folder`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_output(f"{folder}/new/one") as file:
    ...         _ = file.write(b"whole")
    ...     Path(folder, "new", "one").read_bytes()
    b'whole'
    """
    file = Path(path)
    claim_file(file, name)
    with _blame_path(file, name):
        stream = file.open("wb")
    with stream:
        yield stream


@contextmanager
def _blame_path(path: Path, name: str) -> Iterator[None]:
    """Turn what the system says of a path that cannot be written into an `InvalidParameter`.

    A full or broken disk is no fault of the path, and stays an OSError.
    """
    try:
        yield
    except OSError as error:
        if errno.errorcode.get(error.errno or 0) not in _BLAMED:
            raise
        raise InvalidParameter(
            f"The {name} must name a place to write to. '{path}' cannot be written: "
            f"{error.strerror or error}. Choose another path, or change what is there."
        ) from error


@contextmanager
def write_atomically(folder: Path, name: str | Callable[[], str]) -> Iterator[IO[bytes]]:
    """Open a file that gets its name only when it is complete and on disk.

    Parameters
    ----------
    name : str or function
        A function is called after the last write, for names that depend on the content.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_atomically(Path(folder), "one") as file:
    ...         _ = file.write(b"whole")
    ...     Path(folder, "one").read_bytes()
    b'whole'
    """
    temporary = folder / f".irli-{os.urandom(16).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / (name if isinstance(name, str) else name()))
    except BaseException:
        temporary.unlink(missing_ok=True)  # the disk may be full
        raise


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read, or a link to one. Raise FileNotFoundError for anything else.

    Opening a pipe may wait for ever, and a device may never end.
    """

    def open_and_check(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # still the file that was looked at
            return descriptor
        os.close(descriptor)
        raise refusal

    refusal = FileNotFoundError(errno.ENOENT, "There is no regular file", str(path))
    if not path.is_file():
        raise refusal
    return open(path, "rb", opener=open_and_check)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. The lock ends with the process that holds it.

    A thread that holds it may take it again.
    """
    from filelock import FileLock

    with FileLock(path.resolve(), is_singleton=True):
        yield


@contextmanager
def claim_folder(folder: Path, name: str, in_use: str) -> Iterator[None]:
    """Hold a folder for one user of it, or raise `InvalidParameter` with the text `in_use`.

    The claim ends with the process that holds it. Its file is removed, so that the folder can be.

    Parameters
    ----------
    name : str
        The name of the file in the folder that is locked.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with claim_folder(Path(folder), ".lock", "in use"):
    ...         [path.name for path in Path(folder).iterdir()]
    ...     list(Path(folder).iterdir())
    ['.lock']
    []
    """
    from filelock import FileLock, Timeout

    path = folder / name
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
        while not path.exists():  # its last holder removed the file after we had opened it
            lock.release()
            lock.acquire(timeout=0)
    except Timeout:
        raise InvalidParameter(in_use) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes it when the lock is released
            path.unlink()
        lock.release()


class WriterLock:
    """Hold a folder as the only one who changes it, or raise `IndexInUse`.

    The lock ends with `release`, or with the process. A forked child does not have it.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / _WRITER, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock_descriptor(self._descriptor)
        except OSError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise IndexInUse(
                f"The index at {folder} is open for changes in process {holder}, and only one may "
                "change it. Close it there, or open it here for reading."
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())
        except BaseException:  # the disk may be full
            os.close(self._descriptor)
            raise
        _HELD.add(self)

    def release(self) -> None:
        """End the lock. A second call does nothing."""
        if self in _HELD:
            _HELD.discard(self)
            os.close(self._descriptor)


_HELD: set[WriterLock] = set()


def _lock_descriptor(descriptor: int) -> None:
    """Lock an open file, or raise OSError if it is locked by another opening of it."""
    if os.name == "nt":
        import msvcrt

        os.lseek(descriptor, _FAR, os.SEEK_SET)  # what is locked cannot be read there
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release_all() -> None:
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    # A child has the same open file, and would keep it locked after its parent has ended.
    os.register_at_fork(after_in_child=_release_all)


def sync_directory(path: Path) -> None:
    """Make the renames in a directory durable, where the system can sync a directory."""
    if os.name == "nt":  # Windows cannot open a directory, and does not need to
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
