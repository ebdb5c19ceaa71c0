"""The smallest size: tiny generated files with the names and formats of the real data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse as sp

from bench.labels.data import NAMES, name_files
from bench.vectors.data import FILES
from irli.labels.files import write_rows

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

CODES = {"pieces": 8}  # so few items have no codes by default


def write_files(folder: Path) -> Path:
    """Write all data sets, tiny; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES.values():
        _write_vectors(folder / name, "angular" if "angular" in name else "euclidean")
    for name in NAMES:
        _write_labels(*name_files(folder, name))
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
    distances = np.linalg.norm(queries[:, None] - items[None], axis=2)
    near = np.argsort(distances, axis=1)[:, :count]
    return np.take_along_axis(distances, near, axis=1), near.astype(np.int32)


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
