"""Read and write files of vectors and ground truth: .npy, .fvecs, .fbin, HDF5, GloVe and others.

========================  =====================================================================
`.npy`                    NumPy
`.fvecs .ivecs .bvecs`    TEXMEX: each row is its dimension (int32) followed by its values
`.fbin .u8bin .i8bin      big-ann-benchmarks: number of rows and dimension (uint32), then all
.ibin`                    values
`.hdf5 .h5`               ann-benchmarks: named arrays
`.txt`                    GloVe: each line is a word followed by its values
========================  =====================================================================

All formats but HDF5 and text are memory-mapped: they take no memory until the values are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irli.base.checks import check_choice
from irli.base.distance import ALIASES, METRICS
from irli.base.files import LONGEST_LINE, open_output
from irli.base.text_rows import parse_rows, read_lines
from irli.base.types import StrPath
from irli.errors import FormatError, InvalidParameter, MissingDependency

_VECS: dict[str, np.dtype[Any]] = {
    ".fvecs": np.dtype("<f4"),
    ".ivecs": np.dtype("<i4"),
    ".bvecs": np.dtype("u1"),
}
BIN_DTYPES: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"),
    ".u8bin": np.dtype("u1"),
    ".i8bin": np.dtype("i1"),
    ".ibin": np.dtype("<i4"),
}
HDF5 = (".hdf5", ".h5")
TEXT = ".txt"
METRIC_OF = {name: name for name in METRICS} | ALIASES  # by the attribute 'distance' of HDF5 files


class AnnBenchmark(NamedTuple):
    """A data set of ann-benchmarks: base vectors, queries and their exact neighbours.

    Attributes
    ----------
    train : array of shape (n, d)
        The base vectors.
    test : array of shape (n_queries, d)
    neighbors : int array of shape (n_queries, j)
        Rows of `train`, nearest first.
    distances : array of shape (n_queries, j)
        As stored. For "l2" ann-benchmarks takes the square root, and irli does not.
    metric : str
        "l2", "cosine" or "ip".
    """

    train: NDArray[Any]
    test: NDArray[Any]
    neighbors: NDArray[Any]
    distances: NDArray[Any]
    metric: str


def read_vectors(path: StrPath, key: str | None = None) -> NDArray[Any]:
    """Return the array of shape (n, d) in a file. The extension of the file names the format.

    Parameters
    ----------
    key : str, optional
        The name of the array in an HDF5 file. The default is "train".

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_vectors(f"{folder}/base.fvecs", [[1, 2], [3, 4]])
    ...     np.array(read_vectors(f"{folder}/base.fvecs"))
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    file = check_file(path)
    kinds = (".npy", *_VECS, *BIN_DTYPES, *HDF5, TEXT)
    kind = check_choice("extension of the path", file.suffix, kinds)
    if kind in HDF5:
        with _open_hdf5(file) as arrays:
            return _read_array(file, arrays, key or "train")
    if key is not None:
        raise InvalidParameter(
            f"The 'key' parameter must be None for {kind} files, which hold one array. "
            f"Got {key!r} instead. Leave it out."
        )
    if kind == TEXT:
        return read_glove(file)[1]
    if kind == ".npy":
        return _read_npy(file)
    return _read_vecs(file, _VECS[kind]) if kind in _VECS else _read_bin(file, BIN_DTYPES[kind])


def read_glove(path: StrPath) -> tuple[list[str], NDArray[np.float32]]:
    """Return the words of a GloVe file and their vectors (n, d).

    A line is a word followed by its values. A first line of two whole numbers, n and d, is taken as
    the head that word2vec and fastText write.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/glove.txt").write_text("the 0.5 -1\\nof 2 1e-1\\n")
    ...     words, vectors = read_glove(f"{folder}/glove.txt")
    >>> words, vectors
    (['the', 'of'], array([[ 0.5, -1. ],
           [ 2. ,  0.1]], dtype=float32))
    """
    file = check_file(path)
    with file.open("rb") as stream:
        first = stream.readline(LONGEST_LINE).split()
        headed = len(first) == 2 and all(word.isdigit() for word in first)
        width = int(first[1]) if headed else len(first) - 1
        if width < 1:
            raise FormatError(
                f"{file}, line 1: must be a word and its values with spaces between. "
                f"Got {len(first)} words instead. It is empty or of another format."
            )
        stream.seek(0)
        lines = read_lines(file, stream, 1)
        if headed:
            next(lines)
        words: list[str] = []

        def split_words() -> Iterator[bytes]:
            for line in lines:
                word, *values = line.rsplit(b" ", width)  # a word may have spaces in it
                words.append(word.decode("utf-8", "backslashreplace"))
                yield b" ".join(values)

        vectors = parse_rows(file, split_words(), width, 2 if headed else 1)
    if headed and len(vectors) != int(first[0]):
        raise FormatError(
            f"{file} must have {int(first[0])} words, as its first line says. It has "
            f"{len(vectors)} instead. Was it cut in the middle? Download it again."
        )
    return words, vectors


def write_vectors(path: StrPath, x: ArrayLike) -> None:
    """Write an array of shape (n, d) in the format that the extension names (no HDF5, no text).

    A value that the format cannot hold raises an error. `.npy` keeps the dtype. A folder that is
    missing is made.

    Examples
    --------
    >>> write_vectors("colours.bvecs", [[0, 300]])
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'x' parameter must hold whole numbers that fit into uint8 for
    a .bvecs file. Got 300 in row 0 instead. Choose a wider format.
    """
    file = Path(path)
    kind = check_choice("extension of the path", file.suffix, (".npy", *_VECS, *BIN_DTYPES))
    array = np.asarray(x)
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "fiub":
        raise InvalidParameter(
            "The 'x' parameter must be an array of real numbers of shape (n, d), not empty. "
            f"Got {array.dtype} of shape {array.shape} instead. Put one vector into each row."
        )
    if kind == ".npy":
        with open_output(file) as out:
            np.save(out, array)
        return
    dtype = _VECS[kind] if kind in _VECS else BIN_DTYPES[kind]
    array = _cast_exactly(array, dtype, kind)
    with open_output(file) as out:
        if kind in _VECS:
            rows = np.empty(len(array), dtype=_make_vecs_dtype(array.shape[1], dtype))
            rows["dim"] = array.shape[1]
            rows["values"] = array
            out.write(rows.tobytes())
        else:
            out.write(np.array(array.shape, dtype="<u4").tobytes())
            out.write(array.tobytes())


def read_ground_truth(path: StrPath) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return the exact neighbours of queries: ids (n_queries, k), and distances if there are any.

    `.ivecs` and `.npy` files hold ids only. Any other file is read as big-ann-benchmarks writes
    it: two uint32 (n_queries, k), int32 ids, and then float32 distances, which may be missing.
    """
    file = check_file(path)
    if file.suffix in (".ivecs", ".npy"):
        ids = read_vectors(file)
        if ids.dtype.kind not in "iu":
            raise FormatError(
                f"{file} must hold integers, the rows of the true neighbours. "
                f"It holds {ids.dtype} instead. Check that it is not the file of the vectors."
            )
        return ids, None
    n, k = _read_bin_header(file)
    size = file.stat().st_size
    part = 4 * n * k
    if size not in (8 + part, 8 + 2 * part):
        raise FormatError(
            f"The header of {file} says shape ({n}, {k}), so it must have {8 + part} "
            f"bytes, or {8 + 2 * part} with distances. It has {size} instead. Download it again."
        )
    ids = np.memmap(file, dtype="<i4", mode="r", offset=8, shape=(n, k))
    if size == 8 + part:
        return ids, None
    return ids, np.memmap(file, dtype="<f4", mode="r", offset=8 + part, shape=(n, k))


def read_ann_benchmark(path: StrPath, queries: str = "test") -> AnnBenchmark:
    """Read an ann-benchmarks HDF5 file with one of its sets of queries.

    Parameters
    ----------
    queries : str
        The name of the set: "test", or another one. "test_ood" is read with "neighbors_ood" and
        "distances_ood".
    """
    file = check_file(path)
    check_choice("extension of the path", file.suffix, HDF5)
    with _open_hdf5(file) as arrays:
        check_choice("queries", queries, [key for key in arrays if key.startswith("test")])
        suffix = queries.removeprefix("test")
        metric = _read_metric(file, arrays)
        data = AnnBenchmark(
            train=_read_array(file, arrays, "train"),
            test=_read_array(file, arrays, queries),
            neighbors=_read_array(file, arrays, "neighbors" + suffix),
            distances=_read_array(file, arrays, "distances" + suffix),
            metric=metric,
        )
    _check_agreement(file, data)
    return data


def read_hdf5_metric(path: StrPath) -> str:
    """Return the metric that an HDF5 file of ann-benchmarks names, and "l2" for other files."""
    file = check_file(path)
    if file.suffix not in HDF5:
        return "l2"
    with _open_hdf5(file) as arrays:
        return _read_metric(file, arrays)


def _read_metric(file: Path, arrays: Any) -> str:
    distance = str(arrays.attrs.get("distance"))
    if distance not in METRIC_OF:
        raise FormatError(
            f"{file} must have an attribute 'distance' that is one of "
            f"{', '.join(map(repr, METRIC_OF))}. It has {distance!r} instead. "
            "Read its arrays one by one with read_vectors(path, key=...), or give irli build a "
            "--metric."
        )
    return METRIC_OF[distance]


def check_file(path: StrPath) -> Path:
    """Return a path. Raise unless a regular file is there: a pipe or a device may never end."""
    file = Path(path)
    if not file.is_file():
        got = "a folder" if file.is_dir() else "a pipe or a device" if file.exists() else "nothing"
        raise InvalidParameter(
            f"The 'path' parameter must be an existing file. There is {got} at '{file}'. "
            "Check the spelling and the working directory."
        )
    return file


def _read_npy(file: Path) -> NDArray[Any]:
    try:
        array = np.lib.format.open_memmap(file, mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(
            f"{file} must be a whole .npy file of numbers. It cannot be read: "
            f"{str(error).rstrip('.')}. Write it again with numpy.save."
        ) from error
    if array.ndim != 2:
        raise FormatError(
            f"{file} must hold an array of shape (n, d). It holds shape {array.shape} instead. "
            "Save one vector in each row."
        )
    return array


def _read_vecs(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    size = file.stat().st_size
    with file.open("rb") as start:
        head = start.read(4)
    dim = int.from_bytes(head, "little", signed=True) if len(head) == 4 else 0
    row_size = 4 + dim * dtype.itemsize
    if dim < 1 or size % row_size:
        raise FormatError(
            f"{file} must be whole rows of a dimension (int32) and as many {dtype.name} values. "
            f"Its first dimension is {dim} and its size {size} bytes. "
            "It is truncated or in another format. Download it again or rename it."
        )
    rows = np.memmap(file, dtype=_make_vecs_dtype(dim, dtype), mode="r")
    wrong = rows["dim"] != dim
    if wrong.any():
        row = int(np.argmax(wrong))
        raise FormatError(
            f"{file} must have the same dimension in each row. Row 0 has {dim} and row {row} has "
            f"{rows['dim'][row]} instead. It is damaged or in another format."
        )
    values: NDArray[Any] = rows["values"]
    return values


def _read_bin(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    n, dim = _read_bin_header(file)
    size, expected = file.stat().st_size, 8 + n * dim * dtype.itemsize
    if size != expected:
        raise FormatError(
            f"The header of {file} says shape ({n}, {dim}), so with {dtype.name} values it must "
            f"have {expected} bytes. It has {size} instead. Download it again, or use "
            "read_ground_truth if it holds exact neighbours."
        )
    return np.memmap(file, dtype=dtype, mode="r", offset=8, shape=(n, dim))


def _read_bin_header(file: Path) -> tuple[int, int]:
    header = np.fromfile(file, dtype="<u4", count=2)
    if len(header) < 2 or not header.all():
        raise FormatError(
            f"{file} must start with two uint32 above 0, the number of rows and the dimension. "
            f"It starts with {header.tolist()} instead. It is empty, damaged or in another format."
        )
    return int(header[0]), int(header[1])


def _make_vecs_dtype(dim: int, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([("dim", "<i4"), ("values", dtype, (dim,))])


def _cast_exactly(array: NDArray[Any], dtype: np.dtype[Any], kind: str) -> NDArray[Any]:
    """Return `array` as `dtype`; only rounding to float32 may change its values."""
    # NumPy warns about a value that does not fit. The comparison below reports it instead.
    with np.errstate(invalid="ignore", over="ignore"):
        fitted = array.astype(dtype)
    numbers, lossy = "whole numbers", fitted != array
    if dtype.kind == "f":
        numbers, lossy = "numbers", np.isinf(fitted) & ~np.isinf(array)
    if lossy.any():
        row, column = np.argwhere(lossy)[0]
        raise InvalidParameter(
            f"The 'x' parameter must hold {numbers} that fit into {dtype.name} for a {kind} "
            f"file. Got {array[row, column]} in row {row} instead. Choose a wider format."
        )
    return fitted


@contextmanager
def _open_hdf5(file: Path) -> Iterator[Any]:
    try:
        import h5py  # imported here because it slows down the start of every process
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Reading {file} needs h5py, which is not installed. "
            "Install it with: pip install 'irli[hdf5]'"
        ) from error

    try:
        with h5py.File(file, "r") as arrays:
            yield arrays
    except OSError as error:
        raise FormatError(
            f"{file} must be a whole HDF5 file. It cannot be read: {error}. Download it again."
        ) from error


def _read_array(file: Path, arrays: Mapping[str, Any], key: str) -> NDArray[Any]:
    if key not in arrays:
        raise FormatError(
            f"{file} must hold an array '{key}'. It holds {', '.join(sorted(arrays)) or 'none'} "
            "instead. Name one of them."
        )
    stored = arrays[key]
    if getattr(stored, "ndim", 0) != 2:
        raise FormatError(
            f"{file} must hold an array '{key}' of shape (n, d). "
            f"It holds {stored} instead. Name another one."
        )
    values: NDArray[Any] = stored[()]
    return values


def _check_agreement(file: Path, data: AnnBenchmark) -> None:
    """Raise unless the shapes of base vectors, queries and neighbours agree."""
    train, test, neighbors, distances, _ = data
    if train.shape[1] != test.shape[1]:
        raise FormatError(
            f"{file} must hold base vectors and queries of one dimension. "
            f"It holds {train.shape[1]} and {test.shape[1]} instead. Download it again."
        )
    if len(neighbors) != len(test) or neighbors.shape != distances.shape:
        raise FormatError(
            f"{file} must hold neighbours and distances for each of its {len(test)} queries. "
            f"It has shapes {neighbors.shape} and {distances.shape} instead. Download it again."
        )
    if neighbors.size and neighbors.max() >= len(train):
        raise FormatError(
            f"{file} must hold neighbours among its {len(train)} base vectors. "
            f"It holds number {neighbors.max()} instead. Download it again."
        )
