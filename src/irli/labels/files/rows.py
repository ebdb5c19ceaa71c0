"""Read and write multi-label data files: XMC text with features and labels, and matrices.

====================  =========================================================================
rows, text            Extreme Classification Repository: the first line is `N D L`, each other
                      line is `label,label,... feature:value feature:value ...`
matrix, `.txt`        its newer files of features or of labels: `N D`, then `column:value ...`;
                      or dense features, as SLICE reads them: `N D`, then D values in each line
matrix, `.npz`        written by scipy.sparse.save_npz
matrix, `.npy`        a dense NumPy array
====================  =========================================================================

Text files may be compressed (`.gz`). Labels and columns are numbered from 0. A line may have no
features. A line that starts with a space has no labels.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from irli.base.checks import as_array, check_choice
from irli.base.files import open_output
from irli.base.sparse import as_label_matrix, check_sparse_format
from irli.base.types import Sparse, StrPath
from irli.base.vector_files import read_vectors, write_vectors
from irli.engine.xmc_parser import Parsed
from irli.errors import FormatError, InvalidParameter, IrliError
from irli.labels.files.xmc_text import is_dense, open_input, read_dense, read_text

_ROWS = 1 << 12  # rows written at once


class Rows(NamedTuple):
    """Instances of a multi-label problem.

    Attributes
    ----------
    features : sparse or dense float32 array of shape (n, D)
    labels : sparse float32 array of shape (n, L)
        1 where an instance has a label.
    """

    features: Sparse | NDArray[np.float32]
    labels: Sparse


def read_rows(path: StrPath) -> Rows:
    """Read a text file of the Extreme Classification Repository, plain or `.gz`.

    A label that comes twice in a line counts once. Features may be in any order. Zeros are dropped.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/train.txt").write_text("2 3 4\\n0,3 1:0.5 2:1e-1\\n 0:2\\n")
    ...     features, labels = read_rows(f"{folder}/train.txt")
    >>> features.toarray()
    array([[0. , 0.5, 0.1],
           [2. , 0. , 0. ]], dtype=float32)
    >>> labels.toarray()
    array([[1., 0., 0., 1.],
           [0., 0., 0., 0.]], dtype=float32)
    """
    file = Path(path)
    header, parsed = read_text(file, labelled=True)
    ones = np.ones(len(parsed.labels), dtype=np.float32)
    labels = _make_csr(ones, parsed.labels, parsed.label_counts, (header.rows, header.labels))
    labels.sum_duplicates()
    labels.data[:] = 1
    return Rows(_pairs_to_csr(file, parsed, (header.rows, header.columns)), labels)


def read_matrix(path: StrPath) -> Sparse | NDArray[Any]:
    """Read a matrix of features or of labels (n, D). The ending of the name decides the format.

    `.txt`, `.txt.gz` and `.npz` return a sparse array without stored zeros. `.npy`, and text whose
    rows have no colon, return a dense one; a `.npy` stays memory-mapped if it is float32. Integers
    in a `.npy` stay integers: as labels, they are label numbers.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/trn_X_Y.txt").write_text("2 3\\n2:1.0 0:1.0\\n\\n")
    ...     read_matrix(f"{folder}/trn_X_Y.txt").toarray()
    array([[1., 0., 1.],
           [0., 0., 0.]], dtype=float32)
    """
    file = Path(path)
    suffix = _check_format(file)
    if suffix == ".npz":
        return _read_npz(file)
    if suffix == ".npy":
        return _keep_integers(read_vectors(file), str(file), FormatError)
    if is_dense(file):
        return _check_dense(read_dense(file), str(file), FormatError)
    header, parsed = read_text(file, labelled=False)
    return _pairs_to_csr(file, parsed, (header.rows, header.columns))


def write_rows(path: StrPath, features: ArrayLike | Sparse, labels: ArrayLike | Sparse) -> None:
    """Write a text file of the Extreme Classification Repository, compressed if it ends in `.gz`.

    Parameters
    ----------
    features : sparse or dense array of shape (n, D)
        Real numbers. Reading returns the same float32 values.
    labels : matrix of shape (n, L), or int array of shape (n, j)
        Nonzero where an instance has a label, or label numbers: see `LabelIndex.fit`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_rows(f"{folder}/train.txt", [[0, 0.5], [2, 0]], [[0, 2], [-1, -1]])
    ...     Path(f"{folder}/train.txt").read_text()
    '2 2 3\\n0,2 1:0.5\\n 0:2.0\\n'
    """
    file = Path(path)
    x = _check_matrix(features, "features")
    y = _check_matrix(as_label_matrix(labels, "labels"), "labels")
    if x.shape[0] != y.shape[0]:
        raise InvalidParameter(
            "The 'features' and the 'labels' parameters must have one row for each instance. "
            f"Got shapes {x.shape} and {y.shape} instead. Pass rows of the same instances."
        )
    with _open_text(file) as out:
        out.write(b"%d %d %d\n" % (*x.shape, y.shape[1]))
        for names, pairs in zip(
            _format_rows(y, b",", False), _format_rows(x, b" ", True), strict=True
        ):
            out.write(b"%s %s\n" % (names, pairs))


def write_matrix(path: StrPath, matrix: ArrayLike | Sparse) -> None:
    """Write a matrix of features or of labels (n, D). The ending of the name decides the format.

    `.txt`, `.txt.gz` and `.npz` store float32 values without zeros. `.npy` is for dense arrays, and
    for label numbers.

    Examples
    --------
    >>> write_matrix("labels.npy", sp.csr_array([[0, 1]]))
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The 'matrix' parameter must be dense for a .npy file.
    Got a sparse csr_array instead. Write it as .npz.
    """
    file = Path(path)
    suffix = _check_format(file)
    if suffix == ".npy":
        if sp.issparse(matrix):
            raise InvalidParameter(
                "The 'matrix' parameter must be dense for a .npy file. "
                f"Got a sparse {type(matrix).__name__} instead. Write it as .npz."
            )
        dense = as_array(matrix, "matrix")
        write_vectors(file, _keep_integers(dense, "The 'matrix' parameter", InvalidParameter))
        return
    sparse = _check_matrix(matrix, "matrix")
    if suffix == ".npz":
        with open_output(file) as out:
            sp.save_npz(out, sparse)
        return
    with _open_text(file) as out:
        out.write(b"%d %d\n" % sparse.shape)
        for pairs in _format_rows(sparse, b" ", True):
            out.write(b"%s\n" % pairs)


def _check_matrix(x: Any, name: str) -> Sparse:
    matrix = x if sp.issparse(x) else as_array(x, name)
    return _check_sparse(matrix, f"The '{name}' parameter", InvalidParameter)


def _check_format(file: Path) -> str:
    suffix = "".join(file.suffixes[-2:]) if file.suffix == ".gz" else file.suffix
    return check_choice("extension of the path", suffix, (".txt", ".txt.gz", ".npz", ".npy"))


@contextmanager
def _open_text(file: Path) -> Iterator[IO[bytes]]:
    with open_output(file) as out:
        if file.suffix != ".gz":
            yield out
            return
        with gzip.GzipFile(file.stem, "wb", fileobj=out) as packed:
            yield cast("IO[bytes]", packed)


def _make_csr(
    values: NDArray[np.float32],
    columns: NDArray[np.int32],
    counts: NDArray[np.int64],
    shape: tuple[int, int],
) -> Sparse:
    starts = np.concatenate([[0], np.cumsum(counts)])
    # SciPy would widen the columns to the type of the starts.
    if len(columns) <= np.iinfo(columns.dtype).max:
        starts = starts.astype(columns.dtype)
    return sp.csr_array((values, columns, starts), shape=shape)


def _pairs_to_csr(file: Path, parsed: Parsed, shape: tuple[int, int]) -> Sparse:
    """Return the parsed pairs as a CSR with sorted columns. No row may have a column twice."""
    matrix = _make_csr(parsed.values, parsed.columns, parsed.pair_counts, shape)
    matrix.sort_indices()
    again = matrix.indices[1:] == matrix.indices[:-1]
    firsts = matrix.indptr[1:-1]
    again[firsts[(firsts > 0) & (firsts < matrix.nnz)] - 1] = False
    if again.any():
        entry = int(np.argmax(again))
        raise FormatError(
            f"{file}, line {_find_row(matrix.indptr, entry) + 2}: must not name a column twice. "
            f"Got column {matrix.indices[entry]} twice instead. Keep one of the values."
        )
    matrix.eliminate_zeros()
    return matrix


def _read_npz(file: Path) -> Sparse:
    with open_input(file) as stream:
        try:
            matrix = sp.load_npz(stream)
        except (ValueError, KeyError, TypeError, NotImplementedError) as error:
            raise FormatError(
                f"{file} must be a sparse matrix written by scipy.sparse.save_npz. It cannot be "
                f"read: {error}. Write it again, or as .npy if it is dense."
            ) from error
    return _check_sparse(matrix, str(file), FormatError)


def _check_sparse(x: Any, what: str, error: type[IrliError]) -> Sparse:
    """Return `x` as a CSR of finite float32, sorted and without zeros, or raise `error`."""
    if isinstance(x, np.ndarray):
        return sp.csr_array(_check_dense(x, what, error))
    _check_real(x, what, error)
    check_sparse_format(x, what, error)  # before SciPy follows its indices
    with np.errstate(over="ignore"):
        matrix: Sparse = sp.csr_array(x).astype(np.float32, copy=True)
    _check_finite(matrix.data, matrix.indptr, what, error)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _check_dense(x: NDArray[Any], what: str, error: type[IrliError]) -> NDArray[np.float32]:
    _check_real(x, what, error)
    with np.errstate(over="ignore"):
        dense = np.asanyarray(x, dtype=np.float32, order="C")
    _check_finite(dense.ravel(), np.arange(len(dense) + 1) * dense.shape[1], what, error)
    return dense


def _keep_integers(x: NDArray[Any], what: str, error: type[IrliError]) -> NDArray[Any]:
    """Return integers as they are, since float32 would round numbers from 2**24 on."""
    if x.dtype.kind in "iu" and x.ndim == 2:
        return x
    return _check_dense(x, what, error)


def _check_real(x: Any, what: str, error: type[IrliError]) -> None:
    if len(x.shape) != 2 or x.dtype.kind not in "fiub":
        raise error(
            f"{what} must hold real numbers of shape (n, d), one instance in each row. "
            f"Got {x.dtype} of shape {x.shape} instead. Convert or reshape it."
        )


def _check_finite(
    values: NDArray[np.float32], starts: NDArray[Any], what: str, error: type[IrliError]
) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        entry = int(np.argmin(finite))
        raise error(
            f"{what} must hold finite numbers (within float32). Got {values[entry]} in row "
            f"{_find_row(starts, entry)} instead. Drop or repair such rows."
        )


def _find_row(starts: NDArray[Any], entry: int) -> int:
    """Return the row of an entry, given where each row starts."""
    return int(np.searchsorted(starts, entry, side="right")) - 1


def _format_rows(matrix: Sparse, between: bytes, with_values: bool) -> Iterator[bytes]:
    """Yield the text of each row: its columns, and with `with_values` their values."""
    for start in range(0, matrix.shape[0], _ROWS):
        starts = matrix.indptr[start : start + _ROWS + 1]
        block = slice(starts[0], starts[-1])
        words = [b"%d" % column for column in matrix.indices[block].tolist()]
        if with_values:
            # NumPy writes the fewest digits that are read back as the same float32.
            values = matrix.data[block].astype("S").tolist()
            words = [b"%s:%s" % pair for pair in zip(words, values, strict=True)]
        ends = (starts - starts[0]).tolist()
        for first, last in pairwise(ends):
            yield between.join(words[first:last])
