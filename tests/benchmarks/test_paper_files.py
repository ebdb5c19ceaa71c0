"""The paper's data sets are read from small files in their published formats."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)
h5py = pytest.importorskip("h5py")

BASE = np.arange(24, dtype=np.float32).reshape(6, 4)
QUERIES = BASE[:2] + 0.25
TRUTH = np.array([[0, 1, 2], [1, 0, 2]], dtype=np.int32)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench.paper.files

    return bench.paper.files


def write_vecs(path: Path, rows: np.ndarray) -> None:
    """Write a TEXMEX file byte by byte, as its page describes it."""
    text = [struct.pack("<i", len(row)) + row.tobytes() for row in rows]
    path.write_bytes(b"".join(text))


def write_bin(path: Path, *arrays: np.ndarray) -> None:
    """Write a file of the billion-scale benchmarks byte by byte."""
    head = struct.pack("<II", *arrays[0].shape)
    path.write_bytes(head + b"".join(array.tobytes() for array in arrays))


def check(found: Any, metric: str, learn: bool) -> None:
    np.testing.assert_array_equal(found.base, BASE)
    np.testing.assert_array_equal(found.queries, QUERIES)
    np.testing.assert_array_equal(found.neighbors, TRUTH)
    assert found.metric == metric
    assert (found.learn is not None) == learn


@pytest.mark.parametrize(
    ("name", "file", "distance", "metric"),
    [
        ("glove-100", "glove-100-angular.hdf5", "angular", "cosine"),
        ("sift1m", "sift-128-euclidean.hdf5", "euclidean", "l2"),
    ],
)
def test_hdf5(files: Any, tmp_path: Path, name: str, file: str, distance: str, metric: str) -> None:
    (tmp_path / name).mkdir()
    with h5py.File(tmp_path / name / file, "w") as out:
        out.attrs["distance"] = distance
        out["train"], out["test"], out["neighbors"] = BASE, QUERIES, TRUTH
        out["distances"] = np.zeros(TRUTH.shape, dtype=np.float32)
    check(files.read_vector_set(tmp_path, name), metric, learn=False)


def test_words(files: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(50, 4)).round(5).astype(np.float32)
    lines = [f"word{i} " + " ".join(map(str, row)) for i, row in enumerate(vectors)]
    (tmp_path / "glove-100").mkdir()
    (tmp_path / "glove-100" / "glove.twitter.27B.100d.txt").write_text("\n".join(lines) + "\n")
    found = files.read_vector_set(tmp_path, "glove-100")
    assert (found.base.shape, found.queries.shape, found.metric) == ((45, 4), (5, 4), "cosine")
    kept = {row.tobytes() for row in vectors}
    assert {row.tobytes() for row in (*found.base, *found.queries)} == kept
    unit = found.base / np.linalg.norm(found.base, axis=1, keepdims=True)
    np.testing.assert_array_equal(found.neighbors[:, 0], (found.queries @ unit.T).argmax(axis=1))


def test_sift(files: Any, tmp_path: Path) -> None:
    folder = tmp_path / "sift1m"
    folder.mkdir()
    write_vecs(folder / "sift_base.fvecs", BASE)
    write_vecs(folder / "sift_query.fvecs", QUERIES)
    write_vecs(folder / "sift_groundtruth.ivecs", TRUTH)
    write_vecs(folder / "sift_learn.fvecs", BASE[::-1])
    found = files.read_vector_set(tmp_path, "sift1m")
    check(found, "l2", learn=True)
    np.testing.assert_array_equal(found.learn, BASE[::-1])


@pytest.mark.parametrize("name", ["deep-10m", "deep-100m", "deep-1b"])
@pytest.mark.parametrize("learn", [False, True])
def test_deep(files: Any, tmp_path: Path, name: str, learn: bool) -> None:
    [names, *_] = files.VECTORS[name]
    folder = tmp_path / name
    folder.mkdir()
    write_bin(folder / names.base, BASE)
    write_bin(folder / names.queries, QUERIES)
    write_bin(folder / names.neighbors, TRUTH, np.ones(TRUTH.shape, dtype=np.float32))
    if learn:
        write_bin(folder / names.learn, BASE[3:])
    check(files.read_vector_set(tmp_path, name), "l2", learn)


def test_deep_of_texmex(files: Any, tmp_path: Path) -> None:
    [_, names] = files.VECTORS["deep-1b"]
    (tmp_path / "deep-1b").mkdir()
    for file, rows in zip(names, (BASE, QUERIES, TRUTH, BASE), strict=True):
        write_vecs(tmp_path / "deep-1b" / file, rows)
    check(files.read_vector_set(tmp_path, "deep-1b"), "l2", learn=True)


DENSE = "2 3\n0.5 -1 2e-1\n0 0 1\n", "2 4\n1:1 3:1\n0:1\n"
SPARSE = "2 3\n0:0.5 1:-1 2:2e-1\n2:1\n", "2 4\n1:1 3:1\n0:1\n"
OLDER = ("2 3 4\n1,3 0:0.5 1:-1 2:2e-1\n0 2:1\n",)


@pytest.mark.parametrize("name", ["wiki-500k", "amazon-670k"])
@pytest.mark.parametrize(("form", "texts"), list(enumerate((DENSE, SPARSE, OLDER))))
def test_rows(files: Any, tmp_path: Path, name: str, form: int, texts: tuple[str, ...]) -> None:
    (tmp_path / name).mkdir()
    for file, text in zip(files.ROWS[form], 2 * texts, strict=True):
        (tmp_path / name / file).write_text(text)
    for features, labels in files.read_row_set(tmp_path, name):
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        np.testing.assert_array_equal(dense, np.array([[0.5, -1, 0.2], [0, 0, 1]], dtype="f4"))
        np.testing.assert_array_equal(labels.toarray(), [[0, 1, 0, 1], [1, 0, 0, 0]])


def test_what_is_missing_is_named(files: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"hdf5, or sift_base.fvecs in .*sift1m"):
        files.read_vector_set(tmp_path, "sift1m")
    with pytest.raises(SystemExit, match=r"or train.txt and test.txt in .*wiki-500k"):
        files.read_row_set(tmp_path, "wiki-500k")
