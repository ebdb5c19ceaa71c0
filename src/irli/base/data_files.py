"""Data files: `.npy` arrays and safetensors, named by their content, that never change.

A manifest has an entry for each: its name, bytes and checksum, and the dtype and shape of an array.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from irli.base.files import open_regular, write_atomically
from irli.base.memory import empty_at_line, release_pages
from irli.errors import FormatError

Array = np.ndarray[Any, np.dtype[Any]]

DIGITS = 16  # of a checksum, in the name of a file
_CHUNK = 16 << 20


class _Mapped(np.memmap[Any, Any]):
    """A mapped array that knows its file: the entry of the manifest, and which file it was."""

    entry: dict[str, Any]
    seen: tuple[int, ...]
    verified: bool


_MAPPED: WeakValueDictionary[tuple[Any, ...], _Mapped] = WeakValueDictionary()


def write_npy(root: Path, name: str, array: Array) -> dict[str, Any]:
    """Write an array unless its file is there. Return its entry in the manifest."""
    if (entry := _find_mapped(root, name, array)) is not None:
        return entry
    dtype = array.dtype.newbyteorder("<")
    size = len(make_npy_header(dtype, array.shape)) + array.nbytes
    written = _write_new(root, name + ".{}.npy", size, partial(_iterate_npy, array, dtype))
    return written | {"dtype": dtype.str, "shape": list(array.shape)}


def _find_mapped(root: Path, name: str, array: Array) -> dict[str, Any] | None:
    """Return the entry of an array that is a whole file of this folder, as it was mapped."""
    mapped: Any = array
    while mapped is not None and not hasattr(mapped, "seen"):
        mapped = getattr(mapped, "base", None)
    if mapped is None or not mapped.entry["file"].startswith(f"{name}."):
        return None
    same = array.dtype == mapped.dtype and array.shape == mapped.shape
    if not same or array.ctypes.data != mapped.ctypes.data or not array.flags.c_contiguous:
        return None
    with suppress(FileNotFoundError), open_regular(root / mapped.entry["file"]) as file:
        return dict(mapped.entry) if _look_at(file) == mapped.seen else None
    return None


def _look_at(file: BufferedReader) -> tuple[int, ...]:
    """Return which file this is, its size and when it was written."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _iterate_npy(array: Array, dtype: np.dtype[Any]) -> Iterator[Any]:
    """Yield the bytes of a C-ordered ``.npy`` file. A C-ordered array is not copied."""
    yield make_npy_header(dtype, array.shape)
    rows = np.atleast_1d(array)
    step = max(1, _CHUNK * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), step):
        block = np.ascontiguousarray(rows[start : start + step], dtype=dtype)
        yield block.reshape(-1).view(np.uint8)
        release_pages(array)


def write_tensors(root: Path, name: str, tensors: dict[str, Array]) -> dict[str, Any]:
    """Write a safetensors file unless it is there. Return its entry in the manifest."""
    from safetensors.numpy import save

    # safetensors copies raw memory, which would scramble a transposed or strided array.
    plain = {
        name: np.asarray(tensor, dtype=tensor.dtype.newbyteorder("<"), order="C")
        for name, tensor in tensors.items()
    }
    content = save(plain)
    return _write_new(root, name + ".{}.safetensors", len(content), lambda: [content])


def _write_new(
    root: Path, pattern: str, size: int, make_chunks: Callable[[], Iterable[Any]]
) -> dict[str, Any]:
    """Write a file of `size` bytes unless it is there, intact. Return its entry."""
    if any(path.stat().st_size == size for path in root.glob(pattern.format("*"))):
        digest = hashlib.sha256()
        for chunk in make_chunks():
            digest.update(chunk)
        name = pattern.format(digest.hexdigest()[:DIGITS])
        with suppress(FileNotFoundError), open_regular(root / name) as file:
            if hashlib.file_digest(file, "sha256").digest() == digest.digest():
                return {"file": name, "bytes": size, "sha256": digest.hexdigest()}
    return write_named(root, pattern, make_chunks())


def write_named(root: Path, pattern: str, chunks: Iterable[Any]) -> dict[str, Any]:
    """Write a file. The pattern of its name is filled in with a part of the checksum."""
    digest, size = hashlib.sha256(), 0

    def format_name() -> str:
        return pattern.format(digest.hexdigest()[:DIGITS])

    with write_atomically(root, format_name) as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
        size = file.tell()
    return {"file": format_name(), "bytes": size, "sha256": digest.hexdigest()}


def check_size(root: Path, entry: dict[str, Any], file: BufferedReader) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != entry["bytes"]:
        raise damage_error(root, f"{entry['file']} has {size} bytes instead of {entry['bytes']}")


def _verify(root: Path, entry: dict[str, Any], file: BufferedReader) -> None:
    """Compare the checksum of a file, and go back to its start."""
    if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
        raise damage_error(root, f"the content of {entry['file']} does not match its checksum")
    file.seek(0)


def read_tensors(
    root: Path, entry: dict[str, Any], file: BufferedReader, verify: bool
) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if verify:
        _verify(root, entry, file)
    try:
        return load(file.read())
    except SafetensorError as error:
        raise damage_error(root, f"{entry['file']} is not a safetensors file ({error})") from None


def map_npy(root: Path, entry: dict[str, Any], file: BufferedReader, verify: bool) -> Array:
    """Map a file, unless it is mapped, and verify it, unless it was."""
    seen = _look_at(file)
    key = *seen, entry["sha256"], entry["dtype"], *entry["shape"]
    mapped = _MAPPED.get(key)
    if verify and not (mapped is not None and mapped.verified):
        _verify(root, entry, file)
    if mapped is None:
        dtype, shape, start = _read_npy_header(root, entry, file)
        mapped = _Mapped(file, dtype=dtype, mode="r", offset=start, shape=shape)
        mapped.entry, mapped.seen, mapped.verified = entry, seen, False
        _MAPPED[key] = mapped
    mapped.verified |= verify
    return mapped


def read_npy(root: Path, entry: dict[str, Any], file: BufferedReader, verify: bool) -> Array:
    if verify:
        _verify(root, entry, file)
    dtype, shape, _ = _read_npy_header(root, entry, file)
    array = empty_at_line(shape, dtype)
    # A file that was cut since its size was compared would leave memory that is not its own.
    if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
        raise damage_error(root, f"{entry['file']} was cut while it was read")
    return array


def _read_npy_header(
    root: Path, entry: dict[str, Any], file: BufferedReader
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return dtype, shape and where the numbers start."""
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    header, count = make_npy_header(dtype, shape), math.prod(shape)
    # The header is compared, not parsed: no header can demand pickle or unexpected memory.
    if file.read(len(header)) != header or len(header) + count * dtype.itemsize != entry["bytes"]:
        raise damage_error(root, f"{entry['file']} is not a .npy file of {dtype} {list(shape)}")
    return dtype, shape, len(header)


def make_npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return a ``.npy`` header of version 1.0. Written here so that its bytes never change."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def damage_error(root: Path, what: str) -> FormatError:
    return FormatError(
        f"The index at {root} is damaged: {what}. Restore the folder from a copy or build it again."
    )
