"""Vectors as files of which any machine can open a slice, on disk or in an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import as_vectors
from irli.base.types import StrPath
from irli.base.vector_files import BIN_DTYPES, read_vectors
from irli.errors import DimensionMismatch, FormatError, InvalidParameter, MissingDependency


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
    >>> import tempfile
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
        files = tuple(_look_at(os.fspath(path)) for path in listed)
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
                parts.append(_read_part(file, low, high))
            first += file.rows
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        try:
            return as_vectors(whole, "X")
        except InvalidParameter as error:  # it counts rows from the start of the slice
            raise InvalidParameter(f"In the rows from {start} to {stop - 1}: {error}") from None


def _look_at(path: str) -> VectorFile:
    if "://" in path:
        with _open_remote(path) as (file, stamp):
            shape, _, _ = _read_header(path, file)
        return VectorFile(path, *shape, stamp)
    whole = read_vectors(path)
    if not isinstance(whole, np.memmap) and not isinstance(whole.base, np.memmap):
        raise InvalidParameter(
            f"The files of the 'X' parameter must be of a kind that can be mapped. Got {path} "
            "instead. Pass its array, or write it as .npy with irli.vectors.write_vectors."
        )
    about = os.stat(path)
    rows, dim = whole.shape
    return VectorFile(os.path.abspath(path), rows, dim, f"{about.st_size} {about.st_mtime_ns}")


def _read_part(file: VectorFile, start: int, stop: int) -> NDArray[Any]:
    if "://" in file.path:
        with _open_remote(file.path) as (opened, _):
            shape, dtype, offset = _read_header(file.path, opened)
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
def _open_remote(path: str) -> Iterator[tuple[IO[bytes], str]]:
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


def _read_header(path: str, file: IO[bytes]) -> tuple[tuple[int, int], np.dtype[Any], int]:
    """Return shape, dtype and the place of the first value."""
    suffix = Path(path).suffix
    if suffix in BIN_DTYPES:
        rows, dim = (int(number) for number in np.frombuffer(file.read(8), "<u4"))
        return (rows, dim), BIN_DTYPES[suffix], 8
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
        f"{path} must be a .npy file of shape (n, d) in C order, or {', '.join(BIN_DTYPES)}, to be "
        f"read from an object store. Got shape {shape} instead. Write it anew."
    )
