"""Vectors as files that any machine can open a slice of, and marks that say what is finished."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.checks import as_vectors
from irli.datasets import read_vectors
from irli.errors import DimensionMismatch, FormatError, InvalidParameter, MissingDependency

StrPath = str | os.PathLike[str]

_BIN = {".fbin": "<f4", ".u8bin": "u1", ".i8bin": "i1", ".ibin": "<i4"}


class VectorFile(NamedTuple):
    """One file of vectors, and what identifies its contents."""

    path: str
    rows: int
    dim: int
    stamp: str  # size and time of the last change


@dataclass(frozen=True)
class Source:
    """Vectors in one or more files, one after the other.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.eye(3, dtype=np.float32))
    ...     np.save(f"{folder}/b.npy", np.ones((2, 3), dtype=np.float32))
    ...     source = Source.of([f"{folder}/a.npy", f"{folder}/b.npy"])
    ...     source.rows, source.read(2, 4)
    (5, array([[0., 0., 1.],
           [1., 1., 1.]], dtype=float32))
    """

    files: tuple[VectorFile, ...]

    @classmethod
    def of(cls, paths: StrPath | Sequence[StrPath]) -> Source:
        """Look at the files, which must have vectors of one dimension."""
        listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not listed:
            raise InvalidParameter(
                "The 'X' parameter must name at least one file. Got an empty list instead. "
                "Check the pattern that made it."
            )
        files = tuple(_looked_at(os.fspath(path)) for path in listed)
        for file in files:
            if file.dim != files[0].dim:
                raise DimensionMismatch(
                    f"All files of the 'X' parameter must have {files[0].dim} dimensions, as "
                    f"{files[0].path}. Got {file.dim} in {file.path} instead. Leave it out."
                )
        return cls(files)

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        return sum(file.rows for file in self.files)

    @property
    def dim(self) -> int:
        """Their dimensions."""
        return self.files[0].dim

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return rows `start` to `stop`: mapped, if one float32 file on disk holds them all."""
        parts, first = [], 0
        for file in self.files:
            low, high = max(start - first, 0), min(stop - first, file.rows)
            if low < high:
                parts.append(_part(file, low, high))
            first += file.rows
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        try:
            return as_vectors(whole, "X")
        except InvalidParameter as error:  # it counts rows from the start of the slice
            raise InvalidParameter(f"In the rows from {start} to {stop - 1}: {error}") from None


def _looked_at(path: str) -> VectorFile:
    if "://" in path:
        with _remote(path) as (file, stamp):
            shape, _, _ = _header(path, file)
        return VectorFile(path, *shape, stamp)
    whole = read_vectors(path)
    if not isinstance(whole, np.memmap) and not isinstance(whole.base, np.memmap):
        raise InvalidParameter(
            f"The files of the 'X' parameter must be of a kind that can be mapped. Got {path} "
            "instead. Pass its array, or write it as .npy with irli.datasets.write_vectors."
        )
    about = os.stat(path)
    rows, dim = whole.shape
    return VectorFile(os.path.abspath(path), rows, dim, f"{about.st_size} {about.st_mtime_ns}")


def _part(file: VectorFile, start: int, stop: int) -> NDArray[Any]:
    if "://" in file.path:
        with _remote(file.path) as (opened, _):
            shape, dtype, offset = _header(file.path, opened)
            row = shape[1] * dtype.itemsize
            opened.seek(offset + start * row)
            data = opened.read((stop - start) * row)
        _check_same(file, shape)
        return np.frombuffer(data, dtype).reshape(stop - start, shape[1])
    whole = read_vectors(file.path)
    _check_same(file, whole.shape)
    part: NDArray[Any] = whole[start:stop]
    return part


def _check_same(file: VectorFile, shape: tuple[int, ...]) -> None:
    if shape != (file.rows, file.dim):
        raise FormatError(
            f"{file.path} must hold vectors of shape ({file.rows}, {file.dim}), as when the build "
            f"began. It holds shape {shape} now. Start the build again."
        )


@contextmanager
def _remote(path: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file of an object store, and say which version of it this is."""
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Reading {path} needs fsspec, which is not installed. "
            "Install it with: pip install 'irli[cluster]'"
        ) from error
    try:
        system, inner = fsspec.core.url_to_fs(path)
        about = system.info(inner)
        stamp = " ".join(str(about.get(key)) for key in ("size", "ETag", "mtime", "created"))
        with system.open(inner, "rb") as file:
            yield file, stamp
    except (FileNotFoundError, ImportError) as error:
        raise InvalidParameter(
            f"The files of the 'X' parameter must exist. {path} cannot be opened: {error}. "
            "Check its spelling, and that the package for such addresses is installed."
        ) from error


def _header(path: str, file: IO[bytes]) -> tuple[tuple[int, int], np.dtype[Any], int]:
    """Return shape, dtype and the place of the first value."""
    suffix = Path(path).suffix
    if suffix in _BIN:
        rows, dim = (int(number) for number in np.frombuffer(file.read(8), "<u4"))
        return (rows, dim), np.dtype(_BIN[suffix]), 8
    shape: tuple[int, ...] = ()
    if suffix == ".npy":
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
        if len(shape) == 2 and not fortran and not dtype.hasobject:
            return (shape[0], shape[1]), dtype, file.tell()
    raise FormatError(
        f"{path} must be a .npy file of shape (n, d) in C order, or one of {', '.join(_BIN)}, to "
        f"be read from an object store. Got shape {shape} instead. Write it anew."
    )


class Room:
    """A folder for the files of a build: the one that is given, or one that goes with its users."""

    def __init__(self, folder: StrPath | None) -> None:
        if folder is None:
            folder = tempfile.mkdtemp(prefix="irli-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder).resolve()
        self.path.mkdir(parents=True, exist_ok=True)


# --- what is written once ------------------------------------------------------------------------


def kept(folder: Path, name: str, array: NDArray[Any]) -> str:
    """Write an array that was given in memory to a file named by its contents; return the path."""
    array = np.ascontiguousarray(array)
    digest = hashlib.sha256(repr((array.shape, array.dtype.str)).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
    path = folder / f"{name}.{digest.hexdigest()[:16]}.npy"
    if not path.exists():
        with replaced(path) as file:
            np.save(file, array)
    return str(path)


def kept_sparse(folder: Path, name: str, array: Any) -> str:
    """Write a CSR in the same way."""
    digest = hashlib.sha256(repr(array.shape).encode())
    for part in (array.indptr, array.indices, array.data):
        digest.update(np.ascontiguousarray(part).data)
    path = folder / f"{name}.{digest.hexdigest()[:16]}.npz"
    if not path.exists():
        with replaced(path) as file:
            sp.save_npz(file, array, compressed=False)
    return str(path)


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that has its name only when it is whole and on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def seal(folder: Path, key: str) -> None:
    """Mark a folder as finished work on `key`, with the checksums of all its files."""
    said = json.dumps({"key": key, "files": _checksums(folder)}, sort_keys=True)
    with replaced(folder / _SEAL) as file:
        file.write(said.encode())


def sealed(folder: Path, key: str, *, verify: bool = True) -> bool:
    """Whether the folder holds finished work on `key`; with `verify`, all of it intact."""
    try:
        said = json.loads((folder / _SEAL).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    if not verify:
        return bool(said["key"] == key)
    return bool(said == {"key": key, "files": _checksums(folder)})


def unseal(folder: Path) -> None:
    """Say that the folder does not hold finished work."""
    (folder / _SEAL).unlink(missing_ok=True)


_SEAL = "finished.json"


def _checksums(folder: Path) -> dict[str, str]:
    sums = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _SEAL and not path.name.startswith("."):
            with path.open("rb") as file:
                sums[str(path.relative_to(folder))] = hashlib.file_digest(
                    file, "sha256"
                ).hexdigest()
    return sums
