"""Atomic file writes, file locks, opening regular files, and syncing a directory to disk."""

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

from irli.errors import InvalidParameter

LONGEST_LINE = 64 << 20  # bytes; more is no text, or a file made to fill the memory
TEMPORARY = re.compile(r"\.irli-[0-9a-f]{32}\.tmp")  # names of files that are not complete


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
    """Hold an exclusive lock on a file. The lock ends with the process that holds it."""
    from filelock import FileLock

    with FileLock(path):
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


def sync_directory(path: Path) -> None:
    """Make the renames in a directory durable, where the system can sync a directory."""
    if os.name == "nt":  # Windows cannot open a directory, and does not need to
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
