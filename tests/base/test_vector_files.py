from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from irli.base.vector_files import (
    read_ann_benchmark,
    read_glove,
    read_ground_truth,
    read_vectors,
    write_vectors,
)
from irli.errors import FormatError, InvalidParameter

FORMATS = {
    ".fvecs": np.float32,
    ".ivecs": np.int32,
    ".bvecs": np.uint8,
    ".fbin": np.float32,
    ".u8bin": np.uint8,
    ".i8bin": np.int8,
    ".ibin": np.int32,
    ".npy": np.float32,
}


@pytest.mark.parametrize(("suffix", "dtype"), FORMATS.items())
@settings(max_examples=30)
@given(data=st.data())
def test_round_trip(suffix: str, dtype: type, data: st.DataObject) -> None:
    shape = hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)
    x = data.draw(hnp.arrays(dtype, shape))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        write_vectors(path, x)
        found = read_vectors(str(path))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(("suffix", "dtype"), FORMATS.items())
@pytest.mark.parametrize("cut", [1, 3, 8, 10_000])
def test_truncated_files_are_refused(suffix: str, dtype: type, cut: int, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    write_vectors(path, np.arange(1, 71).reshape(10, 7).astype(dtype))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(FormatError, match="must"):
        read_vectors(path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_foreign_files_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"<!DOCTYPE html><html><body>404 not found</body></html>")
    with pytest.raises(FormatError):
        read_vectors(path)


def test_reading_maps_the_file(tmp_path: Path) -> None:
    for suffix in FORMATS:
        path = tmp_path / f"x{suffix}"
        write_vectors(path, [[1, 2, 3]])
        assert isinstance(read_vectors(path), np.memmap), suffix


def test_vecs_row_of_another_dimension(tmp_path: Path) -> None:
    path = tmp_path / "x.ivecs"
    np.array([2, 0, 0, 2, 0, 0, 3, 0, 0], dtype="<i4").tofile(path)
    with pytest.raises(FormatError, match="Row 0 has 2 and row 2 has 3"):
        read_vectors(path)


def test_bin_layout_is_that_of_big_ann(tmp_path: Path) -> None:
    path = tmp_path / "x.u8bin"
    path.write_bytes(np.array([2, 3], dtype="<u4").tobytes() + bytes(range(6)))
    np.testing.assert_array_equal(read_vectors(path), [[0, 1, 2], [3, 4, 5]])


def test_vecs_layout_is_that_of_texmex(tmp_path: Path) -> None:
    path = tmp_path / "x.bvecs"
    path.write_bytes(b"\x02\0\0\0\x07\x08" * 2)
    np.testing.assert_array_equal(read_vectors(path), [[7, 8], [7, 8]])


@pytest.mark.parametrize("read", [read_vectors, read_ground_truth, read_ann_benchmark])
def test_missing_file(read: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="There is nothing at"):
        read(tmp_path / "none.hdf5")
    with pytest.raises(InvalidParameter, match="There is a folder at"):
        read(tmp_path)


def test_unknown_extension(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2")
    with pytest.raises(InvalidParameter, match=r"Got '.csv' instead"):
        read_vectors(tmp_path / "x.csv")
    with pytest.raises(InvalidParameter, match=r"Got '.hdf5' instead"):
        write_vectors(tmp_path / "x.hdf5", [[1]])


def test_npy_that_holds_something_else(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.ones(3))
    with pytest.raises(FormatError, match=r"shape \(3,\)"):
        read_vectors(tmp_path / "flat.npy")
    np.save(tmp_path / "objects.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(FormatError, match="cannot be read"):
        read_vectors(tmp_path / "objects.npy")


def test_key_is_for_hdf5_only(tmp_path: Path) -> None:
    write_vectors(tmp_path / "x.fbin", [[1]])
    with pytest.raises(InvalidParameter, match="'key' parameter must be None"):
        read_vectors(tmp_path / "x.fbin", key="train")


@pytest.mark.parametrize(
    ("suffix", "x", "message"),
    [
        (".bvecs", [[0], [-1]], "Got -1 in row 1"),
        (".i8bin", [[128]], "fit into int8"),
        (".ivecs", [[0.5]], "whole numbers"),
        (".ibin", [[np.nan]], "Got nan"),
        (".fvecs", [1.0, 2.0], r"shape \(2,\)"),
        (".npy", np.empty((0, 3)), "not empty"),
        (".fbin", [["a"]], "real numbers"),
    ],
)
def test_writing_refuses_what_does_not_fit(
    suffix: str, x: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        write_vectors(tmp_path / f"x{suffix}", x)
    assert not list(tmp_path.iterdir())


def test_ground_truth_with_and_without_distances(tmp_path: Path) -> None:
    ids = np.array([[3, 1], [0, 2], [5, 4]], dtype=np.int32)
    distances = np.array([[0.5, 1], [1, 2], [3, 4]], dtype=np.float32)
    write_vectors(tmp_path / "ids.ibin", ids)
    found_ids, found_distances = read_ground_truth(tmp_path / "ids.ibin")
    np.testing.assert_array_equal(found_ids, ids)
    assert found_distances is None

    path = tmp_path / "both.ibin"
    path.write_bytes((tmp_path / "ids.ibin").read_bytes() + distances.tobytes())
    found_ids, found_distances = read_ground_truth(path)
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_array_equal(found_distances, distances)
    with pytest.raises(FormatError, match="read_ground_truth"):
        read_vectors(path)

    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FormatError, match="It has 52 instead"):
        read_ground_truth(path)


def test_ground_truth_of_ids_only(tmp_path: Path) -> None:
    write_vectors(tmp_path / "ids.ivecs", [[3, 1]])
    ids, distances = read_ground_truth(tmp_path / "ids.ivecs")
    assert ids.tolist() == [[3, 1]]
    assert distances is None
    write_vectors(tmp_path / "vectors.npy", [[0.5]])
    with pytest.raises(FormatError, match="must hold integers"):
        read_ground_truth(tmp_path / "vectors.npy")


def write_hdf5(path: Path, distance: str | None = "angular", **change: Any) -> Path:
    arrays: dict[str, Any] = {
        "train": np.eye(4, 3, dtype=np.float32),
        "test": np.ones((2, 3), dtype=np.float32),
        "neighbors": np.array([[0, 1], [3, 2]]),
        "distances": np.zeros((2, 2), dtype=np.float32),
        "test_ood": np.full((1, 3), 5, dtype=np.float32),
        "neighbors_ood": np.array([[2]]),
        "distances_ood": np.ones((1, 1), dtype=np.float32),
    } | change
    with h5py.File(path, "w") as file:
        for key, value in arrays.items():
            if value is not None:
                file[key] = value
        if distance is not None:
            file.attrs["distance"] = distance
    return path


@pytest.mark.parametrize(
    ("distance", "metric"),
    [("euclidean", "l2"), ("angular", "cosine"), ("ip", "ip"), ("dot", "ip")],
)
def test_ann_benchmark(distance: str, metric: str, tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "x.hdf5", distance)
    data = read_ann_benchmark(path)
    assert data.metric == metric
    np.testing.assert_array_equal(data.train, np.eye(4, 3))
    np.testing.assert_array_equal(data.neighbors, [[0, 1], [3, 2]])
    other = read_ann_benchmark(path, queries="test_ood")
    np.testing.assert_array_equal(other.test, [[5, 5, 5]])
    np.testing.assert_array_equal(other.neighbors, [[2]])
    np.testing.assert_array_equal(other.distances, [[1]])


def test_hdf5_arrays_by_key(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "x.h5")
    np.testing.assert_array_equal(read_vectors(path), np.eye(4, 3))
    np.testing.assert_array_equal(read_vectors(path, key="test_ood"), [[5, 5, 5]])
    with pytest.raises(FormatError, match=r"must hold an array 'base'\. It holds distances"):
        read_vectors(path, key="base")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"distance": "jaccard"}, "'jaccard'"),
        ({"distance": None}, "attribute 'distance'"),
        ({"train": None}, "must hold an array 'train'"),
        ({"neighbors": None}, "must hold an array 'neighbors'"),
        ({"test": np.ones(3)}, r"array 'test' of shape \(n, d\)"),
        ({"test": np.ones((2, 5))}, "It holds 3 and 5 instead"),
        ({"test": np.ones((9, 3))}, "each of its 9 queries"),
        ({"neighbors": np.array([[0, 1], [3, 4]])}, "It holds number 4"),
    ],
)
def test_ann_benchmark_that_is_wrong(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        read_ann_benchmark(write_hdf5(tmp_path / "x.hdf5", **change))


def test_ann_benchmark_without_such_queries(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "x.hdf5")
    with pytest.raises(InvalidParameter, match=r"'test', 'test_ood'.*Did you mean 'test_ood'"):
        read_ann_benchmark(path, queries="test_odd")


def test_hdf5_that_is_damaged(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "x.hdf5")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FormatError, match="whole HDF5 file"):
        read_vectors(path)


# --- words ---------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=st.data(), headed=st.booleans())
def test_words_round_trip(data: st.DataObject, headed: bool) -> None:
    shape = hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = data.draw(hnp.arrays(np.float32, shape, elements=finite))
    plain = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=5)
    # From the second line on, a word may have spaces in it, as in the files of Common Crawl.
    spaced = st.lists(plain, min_size=1, max_size=3).map(" ".join)
    words = [data.draw(plain if row == 0 else spaced) for row in range(len(x))]
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, x, strict=True)]
    if headed:
        lines.insert(0, f"{len(x)} {x.shape[1]}")
    elif words[0].isascii() and words[0].isdigit():
        words[0], lines[0] = "a" + words[0], "a" + lines[0]  # else it may look like a head
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "glove.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        found, vectors = read_glove(path)
        assert found == words
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, x)
        np.testing.assert_array_equal(read_vectors(path), x)


def test_words_that_are_no_utf8_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(b"\xff 1 2\n\xfe 3 4\n\xc2\x85 5 6\n")  # the last is a line break in Unicode
    words, vectors = read_glove(path)
    assert words == ["\\xff", "\\xfe", "\x85"]
    np.testing.assert_array_equal(vectors, [[1, 2], [3, 4], [5, 6]])


def test_words_of_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"w{i} {i} 1\n" for i in range(10_000)))
    words, vectors = read_glove(path)
    assert words[9_999] == "w9999"
    np.testing.assert_array_equal(vectors[:, 0], np.arange(10_000))
    path.write_text("".join(f"w{i} {i} 1\n" for i in range(9_000)) + "w\n")
    with pytest.raises(FormatError, match="line 9001: must have 2 numbers"):
        read_glove(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1: must be a word and its values"),
        (b"word\n", "line 1: must be a word and its values"),
        (b"a 1 2\nb 1\n", "line 2: must have 2 numbers with spaces between. Got 1"),
        (b"a 1 2\n\nb 1 2\n", "line 2: must have 2 numbers"),
        (b"a 1 2\nb 1 x\n", "line 2: must hold numbers. Got 'x' instead"),
        (b"a b 2\n", "line 1: must hold numbers. Got 'b' instead"),
        (b"3 2\na 1 2\n", "must have 3 words, as its first line says. It has 1"),
        (b"<!DOCTYPE html> 404 not found", "must hold numbers"),
    ],
)
def test_faults_in_words(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(text)
    with pytest.raises(FormatError, match=message):
        read_glove(path)


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from irli.base import text_rows

    monkeypatch.setattr(text_rows, "LONGEST_LINE", 20)
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2\n" + 30 * "b" + " 1 2\n")
    with pytest.raises(FormatError, match="line 2: must have at most 20 bytes"):
        read_glove(path)


@pytest.mark.parametrize("kind", ["fvecs", "fbin"])
@pytest.mark.parametrize("value", [1e39, -1e300, 3.5e38])
def test_a_number_beyond_float32_is_refused(tmp_path: Path, kind: str, value: float) -> None:
    file = tmp_path / f"x.{kind}"
    with pytest.raises(InvalidParameter, match=f"fit into float32 for a .{kind} file.*in row 1"):
        write_vectors(file, [[1, 5], [value, 5]])
    assert not file.exists()
    write_vectors(file, [[np.inf, 3e38], [-np.inf, 1e-300]])  # as they are, or rounded
    np.testing.assert_array_equal(
        read_vectors(file), np.array([[np.inf, 3e38], [-np.inf, 0]], "f4")
    )


@pytest.mark.parametrize("kind", ["fvecs", "fbin", "npy"])
def test_a_missing_folder_is_made(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "new" / "folder" / f"x.{kind}"
    write_vectors(file, [[1, 5]])
    assert np.array(read_vectors(file)).tolist() == [[1, 5]]


@pytest.mark.parametrize("kind", ["fvecs", "fbin", "npy"])
def test_a_path_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / f"folder.{kind}").mkdir()
    for place in (f"file/x.{kind}", f"folder.{kind}"):
        with pytest.raises(InvalidParameter, match="'path' parameter must name a place to write"):
            write_vectors(tmp_path / place, [[1, 5]])
    assert (tmp_path / "file").read_text() == "mine"
