"""Source: vectors in files, on disk or in an object store, of which any machine reads a slice."""

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
from irli.base.memory import make_array, release_pages
from irli.base.types import StrPath
from irli.base.vector_files import BIN_DTYPES, read_vectors
from irli.engine.metric import prepare_vectors
from irli.errors import DimensionMismatch, FormatError, InvalidParameter, MissingDependency

_BLOCK = 65_536  # rows read at a time


class VectorFile(NamedTuple):
    """One file of vectors, with a stamp that identifies its contents."""

    path: str
    rows: int
    dim: int
    stamp: str  # size and modification time


@dataclass(frozen=True)
class Source:
    """Vectors in one or more files. Rows are numbered through all files.

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
    def of(cls, paths: StrPath | Sequence[StrPath], name: str = "X") -> Source:
        """Inspect the files of a parameter, which must all have vectors of one dimension."""
        listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not listed:
            raise InvalidParameter(
                f"The '{name}' parameter must name at least one file. Got an empty list instead. "
                "Check the pattern that should match the files."
            )
        files = tuple(_inspect(os.fspath(path), name) for path in listed)
        for file in files:
            if file.dim != files[0].dim:
                raise DimensionMismatch(
                    f"All files of the '{name}' parameter must have {files[0].dim} dimensions, as "
                    f"{files[0].path}. Got {file.dim} in {file.path} instead. Leave it out."
                )
        return cls(files)

    @property
    def rows(self) -> int:
        """The number of vectors."""
        return sum(file.rows for file in self.files)

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self.files[0].dim

    def map(
        self, start: int, stop: int, metric: str, folder: Path | None, name: str
    ) -> NDArray[np.float32]:
        """Return rows as an index stores them, in a new file of a folder if there is one.

        They are read in blocks, so that the file may be larger than the memory.
        """
        out = make_array(folder, name, (stop - start, self.dim), np.float32)
        for low in range(start, stop, _BLOCK):
            part = self.read(low, min(stop, low + _BLOCK))
            out[low - start : low - start + len(part)] = prepare_vectors(part, metric)
            release_pages(part)
        return out

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return rows `start` to `stop`, memory-mapped if a single float32 file holds them."""
        parts, first = [], 0
        for file in self.files:
            low, high = max(start - first, 0), min(stop - first, file.rows)
            if low < high:
                parts.append(_read_part(file, low, high))
            first += file.rows
        vectors = parts[0] if len(parts) == 1 else np.concatenate(parts)
        try:
            return as_vectors(vectors, "X")
        except InvalidParameter as error:  # its row numbers count from the start of the slice
            raise InvalidParameter(f"In the rows from {start} to {stop - 1}: {error}") from None


def _inspect(path: str, name: str) -> VectorFile:
    if "://" in path:
        with _open_remote(path) as (file, stamp):
            shape, _, _ = _read_header(path, file)
        return VectorFile(path, *shape, stamp)
    vectors = read_vectors(path)
    if not isinstance(vectors, np.memmap) and not isinstance(vectors.base, np.memmap):
        raise InvalidParameter(
            f"The files of the '{name}' parameter must have a format that can be mapped. Got "
            f"{path} instead. Pass its array, or write it as .npy with irli.vectors.write_vectors."
        )
    info = os.stat(path)
    rows, dim = vectors.shape
    return VectorFile(os.path.abspath(path), rows, dim, f"{info.st_size} {info.st_mtime_ns}")


def _read_part(file: VectorFile, start: int, stop: int) -> NDArray[Any]:
    if "://" in file.path:
        with _open_remote(file.path) as (opened, _):
            shape, dtype, offset = _read_header(file.path, opened)
            row = shape[1] * dtype.itemsize
            opened.seek(offset + start * row)
            data = opened.read((stop - start) * row)
        _check_unchanged(file, shape)
        return np.frombuffer(data, dtype).reshape(stop - start, shape[1])
    vectors = read_vectors(file.path)
    _check_unchanged(file, vectors.shape)
    part: NDArray[Any] = vectors[start:stop]
    return part


def _check_unchanged(file: VectorFile, shape: tuple[int, ...]) -> None:
    if shape != (file.rows, file.dim):
        raise FormatError(
            f"{file.path} must hold vectors of shape ({file.rows}, {file.dim}), as when the build "
            f"began. It holds shape {shape} now. Start the build again."
        )


@contextmanager
def _open_remote(path: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file in an object store. Yield it with a stamp of its version."""
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Reading {path} needs fsspec, which is not installed. "
            "Install it with: pip install 'irli[cluster]'"
        ) from error
    try:
        system, inner = fsspec.core.url_to_fs(path)
        info = system.info(inner)
        stamp = " ".join(str(info.get(key)) for key in ("size", "ETag", "mtime", "created"))
        with system.open(inner, "rb") as file:
            yield file, stamp
    except (FileNotFoundError, ImportError) as error:
        raise InvalidParameter(
            f"The files of the 'X' parameter must exist. {path} cannot be opened: {error}. "
            "Check its spelling, and that the fsspec package for such addresses is installed."
        ) from error


def _read_header(path: str, file: IO[bytes]) -> tuple[tuple[int, int], np.dtype[Any], int]:
    """Return the shape, the dtype and the offset of the first value."""
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
        f"read from an object store. Got shape {shape} instead. Write it again."
    )
