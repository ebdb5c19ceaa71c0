"""The tail: vectors of items that were added, as raw float32 rows in files that only grow.

Rows are numbered by *slots*. A chunk has 2^bits slots, about a megabyte. Its disk space is
allocated before it is written, so that a full disk is an error of the write. It is written through
the file, and read through a mapping that is made once and never moves. Nobody reads what no log row
names.

A file starts at a chunk and ends where the next one starts. It is as long as its mappings need,
which may be longer than what is allocated: the rest takes no space.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from irli.base.data_files import damage_error
from irli.base.files import sync_directory

Vectors = NDArray[np.float32]

_CHUNK_BYTES = 1 << 20
_GRAIN = 1 << 16  # mappings start at multiples of this: pages are 4 or 16 kB, Windows has 64
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_WRITE = os.O_RDWR | getattr(os, "O_BINARY", 0)
_WIDEST = 64  # chunks of one mapping; every mapping keeps a file descriptor


class SyncFailed(OSError):
    """What was written may never reach the disk, and a second attempt would not tell."""


def choose_bits(dim: int) -> int:
    """Return the bits of a slot within its chunk.

    Examples
    --------
    >>> choose_bits(50), choose_bits(384), choose_bits(1_000_000)
    (12, 9, 0)
    """
    return max(0, (_CHUNK_BYTES // (4 * dim)).bit_length() - 1)


class Tail(Protocol):
    """Rows by slot, in memory or in files."""

    dim: int
    bits: int

    def chunk(self, number: int) -> Vectors:
        """Return a chunk (2^bits, d), always the same memory. Only written rows mean anything."""

    def write(self, slot: int, vectors: Vectors) -> None:
        """Write rows (n, d) at a slot and those that follow."""

    def sync(self) -> None:
        """Wait until all that was written is on disk."""

    def start(self, slot: int) -> int:
        """Start a new file at the next chunk, and return its first slot."""

    def drop(self, slot: int | None) -> None:
        """Remove what lies before the first slot that is needed. None is: nothing is needed."""

    def close(self) -> None:
        """Close what is written to. Chunks stay readable."""

    @property
    def nbytes(self) -> int:
        """The disk space, or the memory, that it takes."""


def read_rows(tail: Tail, slot: int, count: int) -> Vectors:
    """Return rows (count, d): a view if they lie in one chunk, else a copy."""
    parts = [tail.chunk(chunk)[first:last] for chunk, first, last in _split(tail, slot, count)]
    return parts[0] if len(parts) == 1 else np.concatenate([_no_rows(tail), *parts])


def as_bytes(rows: Vectors) -> memoryview:
    """Return the bytes of rows (n, d), as a file has them."""
    plain: Any = np.ascontiguousarray(rows, "<f4").reshape(-1).view(np.uint8)
    return memoryview(plain)


def _no_rows(tail: Tail) -> Vectors:
    return np.empty((0, tail.dim), np.float32)


def _split(tail: Tail, slot: int, count: int) -> list[tuple[int, int, int]]:
    """Return the chunks of rows that follow each other, and the rows in each."""
    size, end, pieces = 1 << tail.bits, slot + count, []
    while slot < end:
        chunk, first = slot >> tail.bits, slot & (size - 1)
        last = min(size, first + end - slot)
        pieces.append((chunk, first, last))
        slot += last - first
    return pieces


def _round_up(slot: int, bits: int) -> int:
    return (slot + (1 << bits) - 1) >> bits << bits


class MemoryTail:
    """Rows in memory, for an index that has no folder."""

    def __init__(self, dim: int, bits: int) -> None:
        self.dim, self.bits = dim, bits
        self._chunks: dict[int, Vectors] = {}

    def chunk(self, number: int) -> Vectors:
        return self._chunks[number]

    def write(self, slot: int, vectors: Vectors) -> None:
        done = 0
        for chunk, first, last in _split(self, slot, len(vectors)):
            if chunk not in self._chunks:
                self._chunks[chunk] = np.zeros((1 << self.bits, self.dim), np.float32)
            self._chunks[chunk][first:last] = vectors[done : done + last - first]
            done += last - first

    def sync(self) -> None:
        pass

    def start(self, slot: int) -> int:
        return _round_up(slot, self.bits)

    def drop(self, slot: int | None) -> None:
        for chunk in list(self._chunks):
            if slot is None or chunk < slot >> self.bits:
                del self._chunks[chunk]

    def close(self) -> None:
        pass

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in self._chunks.values())


class FileTail:
    """Rows in files of a folder: ``<name>.tail.<first chunk>``.

    Parameters
    ----------
    starts : list of int
        The first chunks of the files that are there.
    """

    def __init__(self, root: Path, name: str, dim: int, bits: int, starts: list[int]) -> None:
        self.root, self.name, self.dim, self.bits = root, name, dim, bits
        self.starts = sorted(starts)
        self._chunks: dict[int, Vectors] = {}
        self._mappings: dict[tuple[int, int], mmap.mmap] = {}
        self._descriptor: int | None = None  # of the last file, to write to
        self._allocated = 0  # chunks of it that have disk space, as far as this process knows
        self._stride = -(-(4 * dim << bits) // _GRAIN) * _GRAIN  # bytes of a chunk in the file

    def path(self, start: int) -> Path:
        """Return the path of the file that starts at a chunk."""
        return self.root / f"{self.name}.tail.{start}"

    def chunk(self, number: int) -> Vectors:
        rows = self._chunks.get(number)
        return self._map(number) if rows is None else rows

    def _map(self, number: int) -> Vectors:
        start = self._start_of(number)
        first, width = _find_mapping(number - start)
        mapping = self._mappings.get((start, first))
        if mapping is None:
            mapping = self._mappings[start, first] = self._open_mapping(start, first, width)
        rows: Vectors = np.frombuffer(
            mapping, "<f4", self.dim << self.bits, (number - start - first) * self._stride
        ).reshape(-1, self.dim)
        self._chunks[number] = rows
        return rows

    def _start_of(self, chunk: int) -> int:
        place = bisect_right(self.starts, chunk)
        if place == 0:
            raise damage_error(self.root, f"no file of {self.name} has the chunk {chunk}")
        return self.starts[place - 1]

    def _open_mapping(self, start: int, first: int, width: int) -> mmap.mmap:
        path, end = self.path(start), (first + width) * self._stride
        try:
            descriptor = os.open(path, _READ)
        except FileNotFoundError:
            raise damage_error(self.root, f"{path.name} is missing") from None
        try:
            if (size := os.fstat(descriptor).st_size) < end:
                what = f"{path.name} has {size} bytes, and at least {end} are needed"
                raise damage_error(self.root, what)
            offset, length = first * self._stride, width * self._stride
            return mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=offset)
        finally:
            os.close(descriptor)

    def write(self, slot: int, vectors: Vectors) -> None:
        data = as_bytes(vectors)
        done = 0
        for chunk, first, last in _split(self, slot, len(vectors)):
            size = 4 * self.dim * (last - first)
            local = chunk - self.starts[-1]
            descriptor = self._allocate(local)
            offset = local * self._stride + 4 * self.dim * first
            _write_all(descriptor, data[done : done + size], offset)
            done += size

    def _allocate(self, local: int) -> int:
        """Get disk space for a chunk of the last file, and make the file as long as its mapping.

        Return the descriptor of the file.
        """
        descriptor = self._open()
        if local >= self._allocated:
            _allocate(descriptor, local * self._stride, self._stride)
            end = sum(_find_mapping(local)) * self._stride
            if os.fstat(descriptor).st_size < end:
                os.ftruncate(descriptor, end)
            self._allocated = local + 1
        return descriptor

    def _open(self) -> int:
        """Return the descriptor of the last file, to write to."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path(self.starts[-1]), _WRITE)
            self._allocated = 0
        return self._descriptor

    def sync(self) -> None:
        if self.starts:
            # Also what another process has written and not synced: files before the last are.
            try:
                _sync_data(self._open())
            except OSError as error:
                raise SyncFailed(error.errno, error.strerror) from error

    def start(self, slot: int) -> int:
        slot = _round_up(slot, self.bits)
        start = slot >> self.bits
        self.sync()
        self.close()
        # Whoever started it before was killed before it was named.
        self._descriptor = os.open(self.path(start), _WRITE | os.O_CREAT | os.O_TRUNC, 0o666)
        self._allocated = 0
        try:
            sync_directory(self.root)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error
        self.starts.append(start)
        return slot

    def list_needed(self, slot: int | None) -> list[int]:
        """Return the starts of the files that have this slot or a later one."""
        if slot is None:
            return []
        return self.starts[max(0, bisect_right(self.starts, slot >> self.bits) - 1) :]

    def drop(self, slot: int | None) -> None:
        if slot is None:
            self.close()
        self.starts = self.list_needed(slot)
        self._chunks = {chunk: rows for chunk, rows in self._chunks.items() if self._covers(chunk)}
        self._mappings = {at: m for at, m in self._mappings.items() if at[0] in self.starts}
        known = {self.path(start) for start in self.starts}
        # Also what a process left that was killed.
        for path in set(self.root.glob(f"{self.name}.tail.*")) - known:
            with suppress(OSError):  # Windows keeps what is mapped; the next one removes it
                path.unlink()

    def _covers(self, chunk: int) -> bool:
        return bool(self.starts) and chunk >= self.starts[0]

    def copy_to(self, root: Path, slots: list[tuple[int, int]]) -> None:
        """Copy the files into another folder, as far as rows are in them: from slot to slot."""
        ends = dict.fromkeys(self.starts, 0)
        for _, end in slots:
            start = self._start_of(end - 1 >> self.bits)
            ends[start] = max(ends[start], end)
        copy = FileTail(root, self.name, self.dim, self.bits, self.starts)
        for start, end in ends.items():
            chunks = (_round_up(end, self.bits) >> self.bits) - start if end else 0
            length = sum(_find_mapping(chunks - 1)) * self._stride if chunks else 0
            with open(self.path(start), "rb") as source, open(copy.path(start), "xb") as target:
                left = max(0, chunks) * self._stride
                while left and (block := source.read(min(left, _CHUNK_BYTES))):
                    target.write(block)
                    left -= len(block)
                target.truncate(length)
                target.flush()
                os.fsync(target.fileno())

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def nbytes(self) -> int:
        total = 0
        for start in self.starts:
            with suppress(FileNotFoundError):
                found = os.stat(self.path(start))
                total += getattr(found, "st_blocks", found.st_size // 512) * 512
        return total


def _find_mapping(local: int) -> tuple[int, int]:
    """Return the first chunk and the width of the mapping of a chunk of a file.

    The widths are 1, 1, 2, 4, and so on to the widest, so that a small tail is a small file.

    Examples
    --------
    >>> [_find_mapping(local) for local in (0, 1, 3, 5, 200)]
    [(0, 1), (1, 1), (2, 2), (4, 4), (192, 64)]
    """
    if local == 0:
        return 0, 1
    width = min(1 << local.bit_length() - 1, _WIDEST)
    return local // width * width, width


def _allocate(descriptor: int, offset: int, length: int) -> None:
    """Get disk space for a part of a file, where the system can. Elsewhere a write gets it."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, offset, length)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        if hasattr(os, "pwrite"):
            written = os.pwrite(descriptor, data, offset)
        else:
            os.lseek(descriptor, offset, os.SEEK_SET)
            written = os.write(descriptor, data)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, offset = data[written:], offset + written


def _sync_data(descriptor: int) -> None:
    full = _find_full_sync()
    if full is not None:
        full(descriptor)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def _find_full_sync() -> Any:
    """Return what makes macOS empty the cache of the disk, or None elsewhere: fsync does not."""
    if sys.platform != "darwin":
        return None
    import fcntl

    return lambda descriptor: fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
