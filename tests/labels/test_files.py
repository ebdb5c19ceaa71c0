from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from irli.errors import FormatError, InvalidParameter
from irli.labels.files import xmc_text
from irli.labels.files.rows import read_matrix, read_rows, write_matrix, write_rows

# The first example of a property test may have to wait for the parser to be compiled: no deadline.

GOOD = b"3 4 5\n4,0 3:1.5 1:-2e-1\n 0:1\n2\n"
FEATURES = np.array([[0, -0.2, 0, 1.5], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float32)
LABELS = np.array([[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=np.float32)


def matrices(rows: int) -> st.SearchStrategy[Any]:
    shape = st.tuples(st.just(rows), st.integers(1, 9))
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    return hnp.arrays(np.float32, shape, elements=floats, fill=st.just(0))


def as_text(path: Path, text: bytes) -> Path:
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6), st.data())
def test_rows_round_trip(name: str, n: int, data: st.DataObject) -> None:
    x = data.draw(matrices(n))
    y = data.draw(hnp.arrays(bool, st.tuples(st.just(n), st.integers(1, 9))))
    with tempfile.TemporaryDirectory() as folder:
        write_rows(f"{folder}/{name}", x, sp.csc_array(y))
        features, labels = read_rows(f"{folder}/{name}")
    assert features.dtype == labels.dtype == np.float32
    assert features.indices.dtype == labels.indices.dtype == np.int32
    np.testing.assert_array_equal(features.toarray(), x)
    np.testing.assert_array_equal(labels.toarray(), y)


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.npz", "x.npy"])
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.data())
def test_matrix_round_trip(name: str, n: int, data: st.DataObject) -> None:
    x = data.draw(matrices(n))
    with tempfile.TemporaryDirectory() as folder:
        write_matrix(f"{folder}/{name}", x if name == "x.npy" else sp.coo_matrix(x))
        found = read_matrix(f"{folder}/{name}")
        assert found.dtype == np.float32
        assert isinstance(found, sp.csr_array) == (name != "x.npy")
        np.testing.assert_array_equal(found.toarray() if name != "x.npy" else found, x)


@settings(deadline=None)
@given(st.text("0123456789.eE+-", max_size=12) | st.floats().map(repr))
def test_numbers_are_those_of_python(word: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = as_text(Path(folder, "x.txt"), f"1 1\n0:{word}\n".encode())
        try:
            with np.errstate(over="ignore"):
                expected = np.float32(float(word))
        except ValueError:
            expected = np.float32(np.nan)
        if np.isfinite(expected):
            np.testing.assert_array_max_ulp(read_matrix(path).toarray(), expected[None, None])
        else:
            with pytest.raises(FormatError, match=r"line 2: each value must be a finite number"):
                read_matrix(path)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("+7", 7),
        (".5", 0.5),
        ("5.", 5),
        ("-1.25E+2", -125),
        ("0e999999999999", 0),
        ("1e-999999999999", 0),
        ("1" + 60 * "0" + "e-60", 1),
        ("0." + 400 * "0" + "1e401", 1),
        ("123456789012345678901234567890e-29", 1.2345679),
        ("16777217", 16777216),
        ("3.4028235e38", np.finfo(np.float32).max),
        ("1e-45", np.finfo(np.float32).smallest_subnormal),
    ],
)
def test_numbers(word: str, value: float, tmp_path: Path) -> None:
    found = read_matrix(as_text(tmp_path / "x.txt", f"1 1\n0:{word}\n".encode()))
    assert found.toarray().item() == np.float32(value)


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.svm"])
@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.removesuffix(b"\n"),
        GOOD.replace(b" ", b"  "),
        GOOD.replace(b" ", b" \t"),
        GOOD.replace(b"\n", b" \n"),
        GOOD + b"\n \r\n",
        GOOD.replace(b"4,0", b"0,4,4,0,4"),
        GOOD.replace(b"\n 0:1", b"\n0:1"),
        GOOD.replace(b" 0:1", b" 0:1 2:0.0"),
    ],
)
def test_rows_in_other_words(name: str, text: bytes, tmp_path: Path) -> None:
    features, labels = read_rows(as_text(tmp_path / name, text))
    np.testing.assert_array_equal(features.toarray(), FEATURES)
    np.testing.assert_array_equal(labels.toarray(), LABELS)
    assert features.nnz == labels.nnz == 3
    assert features.has_canonical_format
    assert labels.has_canonical_format


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_text_is_read_in_pieces(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(size)
    x = sp.random_array((60, 9), density=0.2, rng=rng, dtype=np.float32)
    y = sp.random_array((60, 9), density=0.2, rng=rng)
    write_rows(tmp_path / "x.txt", x, y)
    monkeypatch.setattr(xmc_text, "_BYTES", size)
    features, labels = read_rows(tmp_path / "x.txt")
    np.testing.assert_array_equal(features.toarray(), x.toarray())
    np.testing.assert_array_equal(labels.toarray(), y.toarray() != 0)
    as_text(tmp_path / "x.txt", GOOD.replace(b" 0:1", b" 0:1 4:1"))
    with pytest.raises(FormatError, match=r"line 3: .* \[0, 3\].*Got '4:1'"):
        read_rows(tmp_path / "x.txt")
    as_text(tmp_path / "x.txt", GOOD + b"\n\n 0:1\n")
    with pytest.raises(FormatError, match=r"line 7: the file must end after 3 rows"):
        read_rows(tmp_path / "x.txt")


def test_rows_that_are_written(tmp_path: Path) -> None:
    write_rows(tmp_path / "x.txt", FEATURES, LABELS)
    text = b"3 4 5\n0,4 1:-0.2 3:1.5\n 0:1.0\n2 \n"
    assert (tmp_path / "x.txt").read_bytes() == text
    write_matrix(tmp_path / "y.txt", LABELS)
    assert (tmp_path / "y.txt").read_bytes() == b"3 5\n0:1.0 4:1.0\n\n2:1.0\n"


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        ((b"4,0", b"5,0"), 2, r"labels must be .* \[0, 4\]\. Got '5' instead"),
        ((b"4,0", b"4,-1"), 2, r"\[0, 4\]\. Got '-1' instead"),
        ((b"4,0", b"4,99999999999999999999999"), 2, "Got '99999999999999999999999'"),
        ((b"4,0", b"4,,0"), 2, "Got '' instead"),
        ((b"4,0", b"4,0,"), 2, "Got '' instead"),
        ((b"4,0", b"4;0"), 2, "Got '4;0' instead"),
        ((b"\n2\n", b"\ncat\n"), 4, "Got 'cat' instead"),
        ((b" 0:1", b" 4:1"), 3, r"column in the range \[0, 3\]\. Got '4:1' instead"),
        ((b" 0:1", b" -1:1"), 3, "Got '-1:1' instead"),
        ((b" 0:1", b" 0"), 3, "column:value .* Got '0' instead"),
        ((b" 0:1", b" :1"), 3, "column:value .* Got ':1' instead"),
        ((b" 0:1", b" 0 :1"), 3, "column:value .* Got '0' instead"),
        ((b" 0:1", b" " + 50 * b"x"), 3, r"Got 'x{40}\.\.\.' instead"),
        ((b" 0:1", b" 0:"), 3, "finite number within float32. Got '' instead"),
        ((b" 0:1", b" 0:1:2"), 3, "finite number within float32. Got '1:2' instead"),
        ((b" 0:1", b" 0:nan"), 3, "Got 'nan' instead"),
        ((b" 0:1", b" 0:-inf"), 3, "Got '-inf' instead"),
        ((b" 0:1", b" 0:1e39"), 3, "Got '1e39' instead"),
        ((b" 0:1", b" 0:1e"), 3, "Got '1e' instead"),
        ((b" 0:1", b" 0:0x1"), 3, "Got '0x1' instead"),
        ((b" 0:1", b" 0:\xff"), 3, r"Got '\\xff' instead"),
        ((b" 0:1", b" 2:1 0:1 2:3"), 3, "column twice. Got column 2 twice"),
        ((b"3 4 5", b"2 4 5"), 4, "end after 2 rows, as its first line says. Got '2' instead"),
        ((b"3 4 5", b"4 4 5"), 4, "must have 4 rows.* ends after 3.*cut in the middle"),
        ((b"3 4 5", b"3 4"), 1, "3 whole numbers, N D L.*Got '3 4'.*read by read_matrix"),
        ((b"3 4 5", b"3 4 -5"), 1, "Got '3 4 -5' instead"),
        ((b"3 4 5", b"3 4 5 6"), 1, "Got '3 4 5 6' instead"),
        ((b"3 4 5", b"3 4 3000000000"), 1, "at most 2147483647"),
        ((b"3 4 5", b"3 4 5" + 300 * b" "), 1, "Got '3 4 5' instead"),
        ((b"3 4 5\n", b""), 1, "Got '4,0 3:1.5 1:-2e-1' instead"),
        ((GOOD, b""), 1, "the file is empty"),
        ((GOOD, b"<!DOCTYPE html><html><body>404 not found</body></html>"), 1, "3 whole numbers"),
    ],
)
def test_faults_in_rows(
    change: tuple[bytes, bytes], line: int, message: str, tmp_path: Path
) -> None:
    path = as_text(tmp_path / "x.txt", GOOD.replace(*change))
    with pytest.raises(FormatError, match=message) as caught:
        read_rows(path)
    assert str(path) in str(caught.value)
    assert f"line {line}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 2 3\n0 1:1\n", "line 1: .*2 whole numbers, N D,.*read by read_rows"),
        (b"2 2\n0:1\n", "must have 2 rows.* in line 2"),
        (b"1 2\n0:1\n1:1\n", "line 3: the file must end after 1 rows"),
        (b"2 2\n\n2:1\n", r"line 3: .*\[0, 1\]"),
        (b"2 2\n\n0,1 1:1\n", "line 3: .*Got '0,1' instead"),
        (b"2 2\n0:1\n1:1 1:1\n", "line 3: .*column 1 twice"),
    ],
)
def test_faults_in_pairs(text: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        read_matrix(as_text(tmp_path / "x.txt", text))


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text("0123:,.e- \n\r", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = as_text(Path(folder, "x.txt"), b"3 4 5\n" + text)
        try:
            features, labels = read_rows(path)
        except FormatError:
            return
        features.check_format(full_check=True)
        labels.check_format(full_check=True)
        assert features.shape == (3, 4)
        assert labels.shape == (3, 5)
        again = Path(folder, "again.txt")
        write_rows(again, features, labels)
        np.testing.assert_array_equal(read_rows(again).features.toarray(), features.toarray())
        np.testing.assert_array_equal(read_rows(again).labels.toarray(), labels.toarray())


@pytest.mark.parametrize("read", [read_rows, read_matrix])
def test_packed_files_that_are_damaged(read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "x.txt.gz"
    x = np.random.default_rng(0).normal(size=(50, 20))
    if read is read_rows:
        write_rows(path, x, x)
    else:
        write_matrix(path, x)
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    for wrong in (whole[:-9], whole[: len(whole) // 2], whole[:12], bytes(broken), GOOD):
        path.write_bytes(wrong)
        # Bits that were changed may also make wrong text before they break the packing.
        with pytest.raises(FormatError, match=r"cannot be unpacked|line \d"):
            read(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(FormatError, match="cut in the middle"):
        read(path)


@pytest.mark.parametrize("name", ["none.txt", "none.txt.gz", "none.npz", "none.npy"])
def test_missing_files(name: str, tmp_path: Path) -> None:
    for read in (read_rows, read_matrix):
        with pytest.raises(InvalidParameter, match="There is nothing at"):
            read(tmp_path / name)
        (tmp_path / name).mkdir()
        with pytest.raises(InvalidParameter, match="There is a folder at"):
            read(tmp_path / name)
        (tmp_path / name).rmdir()


@pytest.mark.parametrize("name", ["x.csv", "x", "x.npz.gz", "x.gz"])
def test_unknown_extension(name: str, tmp_path: Path) -> None:
    as_text(tmp_path / name, GOOD)
    with pytest.raises(InvalidParameter, match=r"extension of the path.*'.txt', '.txt.gz'"):
        read_matrix(tmp_path / name)
    with pytest.raises(InvalidParameter, match=r"extension of the path.*'.npz', '.npy'"):
        write_matrix(tmp_path / name, [[1]])


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_npz_of_every_kind(kind: Callable[..., Any], dtype: type, tmp_path: Path) -> None:
    x = np.array([[0, 1, 0], [1, 0, 1]], dtype=dtype)
    sp.save_npz(tmp_path / "x.npz", kind(x))
    found = read_matrix(tmp_path / "x.npz")
    assert isinstance(found, sp.csr_array)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), x)


def test_npz_is_put_in_order(tmp_path: Path) -> None:
    data, indices, indptr = np.array([1.0, 2, 0, 3]), np.array([2, 0, 1, 0]), np.array([0, 3, 4])
    sp.save_npz(tmp_path / "x.npz", sp.csr_array((data, indices, indptr), shape=(2, 3)))
    found = read_matrix(tmp_path / "x.npz")
    assert found.indices.tolist() == [0, 2, 0]
    assert found.data.tolist() == [2, 1, 3]


def test_npz_that_holds_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"

    def refused(message: str) -> None:
        with pytest.raises(FormatError, match=message) as caught:
            read_matrix(path)
        assert str(path) in str(caught.value)

    np.savez(path, x=np.ones(3))
    refused("scipy.sparse.save_npz")
    with path.open("wb") as file:
        np.save(file, np.ones((2, 2)))
    refused("scipy.sparse.save_npz")
    path.write_bytes(b"")
    refused("cannot be")
    sp.save_npz(path, sp.csr_array(np.eye(3)))
    path.write_bytes(path.read_bytes()[:-40])
    refused("cut in the middle")
    sp.save_npz(path, sp.csr_array(np.eye(3) * 1j))
    refused("real numbers.*complex128")
    sp.save_npz(path, sp.coo_array([1.0, 2.0]))
    refused("shape")  # SciPy 1.15 itself refuses such a file
    sp.save_npz(path, sp.csc_array(np.array([[0, 1, 1], [1e300, 0, 1]])))
    refused("finite numbers.*Got inf in row 1")
    fine = sp.csr_array(np.eye(3))
    fine.indices[1] = 7
    sp.save_npz(path, fine)
    refused("well-formed")


def test_npy_that_holds_something_else(tmp_path: Path) -> None:
    for array, message in (
        (np.ones(3), r"shape \(3,\)"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[1, 2], [3, np.nan]]), "Got nan in row 1"),
    ):
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(FormatError, match=message):
            read_matrix(tmp_path / "x.npy")


def test_npy_is_mapped_and_in_rows(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    assert isinstance(read_matrix(tmp_path / "x.npy"), np.memmap)
    np.save(tmp_path / "y.npy", np.asfortranarray(x))
    found = read_matrix(tmp_path / "y.npy")
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        ([[1, 2]], [[True], [False]], r"Got shapes \(1, 2\) and \(2, 1\)"),
        ([1, 2], [[1]], r"'features'.*shape \(2,\)"),
        ([[1, 2], [3]], [[1]], "'features'.*numpy.asarray"),
        ([[1], [np.nan]], [[1], [1]], "'features'.*Got nan in row 1"),
        ([[1]], [["a"]], "'labels'.* Got list of dtype <U1"),
        ([[1]], [[1]], "'labels'.* Got nothing but 0 and 1"),
        (sp.csr_array([[1e39]]), [[1]], "'features'.*Got inf in row 0"),
    ],
)
def test_writing_refuses_what_does_not_fit(
    features: Any, labels: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        write_rows(tmp_path / "x.txt", features, labels)
    assert not list(tmp_path.iterdir())


def test_label_numbers_stay_integers(tmp_path: Path) -> None:
    """From 2**24 on, float32 would round them."""
    numbers = 2**24 + np.array([[1, 0], [3, 2]])
    write_matrix(tmp_path / "y.npy", numbers)
    found = read_matrix(tmp_path / "y.npy")
    assert found.dtype == numbers.dtype
    np.testing.assert_array_equal(found, numbers)
    write_rows(tmp_path / "x.txt", [[1.0], [2.0]], numbers)
    labels = read_rows(tmp_path / "x.txt").labels
    assert labels.indices.tolist() == [2**24, 2**24 + 1, 2**24 + 2, 2**24 + 3]


@pytest.mark.parametrize("name", ["x.txt", "x.npz", "x.npy"])
def test_writing_refuses_matrices_that_are_none(name: str, tmp_path: Path) -> None:
    for matrix in ([1, 2], [[np.inf]], [["a"]]):
        with pytest.raises(InvalidParameter, match="'matrix' parameter must hold"):
            write_matrix(tmp_path / name, matrix)
    assert not list(tmp_path.iterdir())


# --- dense text ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_dense_text_round_trip(name: str, data: st.DataObject) -> None:
    x = data.draw(matrices(data.draw(st.integers(1, 6))))
    between = data.draw(st.sampled_from([" ", "  ", "\t"]))
    lines = [" ".join(map(str, x.shape)), *(between.join(map(str, row)) for row in x)]
    with tempfile.TemporaryDirectory() as folder:
        found = read_matrix(as_text(Path(folder, name), "\n".join(lines).encode()))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 2 3\n0 1 2\n", "line 1: .*2 whole numbers, N D,"),
        (b"2 2\n0 1\n", "must have 2 rows, as its first line says. It has 1"),
        (b"1 2\n0 1\n2 3\n", "must have 1 rows, as its first line says. It has 2"),
        (b"2 2\n0 1\n2\n", "line 3: must have 2 numbers with spaces between. Got 1"),
        (b"2 2\n0 1\n0:1\n", "line 3: must have 2 numbers"),
        (b"2 2\n0 1\n0 cat\n", "line 3: must hold numbers. Got 'cat'"),
        (b"2 2\n0 1\n0 nan\n", "must hold finite numbers .* Got nan in row 1"),
    ],
)
def test_faults_in_dense_text(text: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        read_matrix(as_text(tmp_path / "x.txt", text))
