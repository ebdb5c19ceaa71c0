"""The smallest size: tiny generated files with the names and formats of the real data sets."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from bench.labels.data import NAMES, name_files
from bench.vectors.data import FILES, SIFT
from irli.labels.files.rows import write_rows

ITEMS, DIM, QUERIES = 700, 16, 100
ROWS, TEST_ROWS, FEATURES, LABELS = 300, 60, 80, 120

# Changes of the recipes that make learning take a second.
SHORT: dict[str, dict[str, Any]] = {
    "default": {
        "buckets": 16,
        "epochs": 2,
        "repartition_every": 1,
        "epoch_size": 1024,
        "mixed_queries": 100,
    },
    "paper": {
        "repetitions": 1,
        "buckets": 32,
        "hidden": 16,
        "neighbors": 10,
        "epochs": 2,
        "repartition_every": 1,
    },
    "labels": {"buckets": 16, "hidden": 16, "repetitions": 2, "epochs": 2},
}

SHORT["paper-deep"] = SHORT["paper"]
CODES = {"pieces": 8}  # so few items have no codes by default


def write_files(folder: Path) -> Path:
    """Write all data sets, tiny; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*FILES.values(), SIFT):
        _write_vectors(folder / name, "angular" if "angular" in name else "euclidean")
    for name in NAMES:
        _write_labels(*name_files(folder, name))
    _write_titles(folder)
    return folder


def _write_vectors(path: Path, distance: str) -> None:
    """Write a file in the layout of ann-benchmarks, with queries like and unlike the items."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(50, DIM))

    def draw(count: int, spread: float) -> np.ndarray:
        points = centres[rng.integers(len(centres), size=count)]
        return (points + spread * rng.normal(size=(count, DIM))).astype(np.float32)

    items = draw(ITEMS, 0.7)
    asked = {"test": draw(QUERIES, 0.7), "test_ood": draw(2 * QUERIES, 1.0)}
    if distance == "euclidean":
        del asked["test_ood"]
    with h5py.File(path, "w") as file:
        file.attrs["distance"] = distance
        file["train"] = items
        for key, queries in asked.items():
            distances, near = _find_neighbors(queries, items, distance)
            file[key] = queries
            file[key.replace("test", "neighbors")] = near
            file[key.replace("test", "distances")] = distances


def _find_neighbors(
    queries: np.ndarray, items: np.ndarray, distance: str, count: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    if distance == "angular":
        queries, items = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, items))
    squares = (queries**2).sum(axis=1)[:, None] - 2 * queries @ items.T + (items**2).sum(axis=1)
    near = np.argsort(squares, axis=1)[:, :count]
    distances = np.sqrt(np.maximum(np.take_along_axis(squares, near, axis=1), 0))
    return distances, near.astype(np.int32)


def _write_labels(train: Path, test: Path) -> None:
    """Write training and test rows whose features tell their labels."""
    rng = np.random.default_rng(0)
    for path, count in ((train, ROWS), (test, TEST_ROWS)):
        wanted = (LABELS * rng.random((count, 3)) ** 2).astype(int)
        labels = np.zeros((count, LABELS), dtype=np.float32)
        np.put_along_axis(labels, wanted, 1.0, axis=1)
        features = np.zeros((count, FEATURES), dtype=np.float32)
        np.put_along_axis(features, wanted * 7 % FEATURES, 1.0, axis=1)
        np.put_along_axis(features, rng.integers(FEATURES, size=(count, 3)), 0.5, axis=1)
        write_rows(path, sp.csr_array(features), sp.csr_array(labels))


def _write_titles(folder: Path) -> None:
    """Write titles whose words tell their subjects."""
    rng = np.random.default_rng(0)
    subjects = [f"p{number}\tsubject {number}" for number in range(LABELS)]
    files = {"labels": subjects}
    for part, count in (("train", ROWS), ("test", TEST_ROWS)):
        drawn = [np.unique(rng.integers(LABELS, size=2)) for _ in range(count)]
        titles = [" and ".join(f"word{number}" for number in each) for each in drawn]
        numbers = [" ".join(map(str, each)) for each in drawn]
        files[part] = [f"{title}\t{labels}" for title, labels in zip(titles, numbers, strict=True)]
    for part, lines in files.items():
        with gzip.open(folder / f"finna-en-{part}.tsv.gz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
