"""The data sets of vectors: ann-benchmarks HDF5 files, and skewed vectors made up here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import h5py
import numpy as np

from bench.commands import find_file
from bench.vectors.curves import K
from irli.base.vector_files import read_hdf5_metric, read_vectors

FILES = {
    "wordnet": "wordnet-minilm-384-angular.hdf5",
    "glove": "glove-6b-50-angular.hdf5",
    "fashion": "fashion-mnist-784-euclidean.hdf5",
}
SIFT = "sift-5k-128-euclidean.hdf5"  # too few for most benchmarks
METRIC = {"wordnet": "cosine", "glove": "cosine", "fashion": "l2"}

_REPORTED = {"test": 2000, "test_ood": 1000}  # queries, at most
_LEARNED = 4000  # of the first queries of test_ood, at most; the last ones are reported
_EXPONENT = 1.2  # of the sizes of skewed clusters
_CHECKED = 40  # neighbours in float32 that are sorted in float64
_BLOCK = 100_000  # vectors made in one go


@dataclass
class Queries:
    """Queries with their exact answers."""

    vectors: np.ndarray
    truth: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice | np.ndarray) -> Queries:
        return Queries(self.vectors[rows], self.truth[rows])


def read_base(data: Path, name: str) -> np.ndarray:
    """Return the items of a data set, by its short name."""
    return np.array(read_vectors(find_file(data, FILES[name]), key="train"))


def read_queries(path: Path, key: str) -> tuple[Queries, np.ndarray]:
    """Return the queries that are reported on, and others to learn from.

    Of "test", some are drawn at random, since in some files the first ones are the easiest.
    Of "test_ood", the last ones are reported and the first ones may be learned from.
    """
    truth = read_vectors(path, key=key.replace("test", "neighbors"))[:, :K]
    vectors = np.array(read_vectors(path, key=key))
    queries = Queries(vectors, np.array(truth, dtype=np.int64))
    if key == "test":
        chosen = np.random.default_rng(0).permutation(len(queries))[: _REPORTED[key]]
        return queries[chosen], vectors[:0]
    count = min(_REPORTED[key], len(queries) // 2)
    return queries[-count:], vectors[: min(_LEARNED, len(queries) - count)]


def normalize(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors with length 1."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / length, dtype=np.float32)


def prepare_for_faiss(vectors: np.ndarray, metric: str) -> np.ndarray:
    """Return vectors as FAISS needs them: normalised for the angle."""
    if metric == "cosine":
        return normalize(vectors)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def find_truth(base: np.ndarray, queries: np.ndarray, metric: str) -> np.ndarray:
    """Return the rows of the nearest items (n, K): found in float32, then sorted in float64."""
    measure = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    middle = base.mean(axis=0) if metric == "l2" else np.float32(0)
    _, near = faiss.knn(queries - middle, base - middle, min(_CHECKED, len(base)), metric=measure)
    found = base[near].astype(np.float64)
    if metric == "l2":
        costs = ((found - queries[:, None]) ** 2).sum(axis=2)
    else:
        costs = -np.einsum("nkd,nd->nk", found, queries.astype(np.float64))
    order = np.argsort(costs, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(near, order, axis=1)


# --- arrays where every process finds them -------------------------------------------------------


def write_arrays(path: Path, folder: Path) -> dict[str, Any]:
    """Write the arrays of an HDF5 file as .npy below `folder`; return what the data set is.

    Vectors are normalised where the metric is the angle, so that the peers can search by inner
    product.
    """
    place = folder / "data" / path.stem
    if not (place / "set.json").exists():
        metric = read_hdf5_metric(path)
        base = np.array(read_vectors(path, key="train"))
        arrays = {"base": prepare_for_faiss(base, metric)}
        with h5py.File(path) as file:
            asked = [key for key in _REPORTED if key in file]
        for key in asked:
            queries, learn = read_queries(path, key)
            arrays[key] = prepare_for_faiss(queries.vectors, metric)
            arrays[f"{key}-truth"] = queries.truth
            if len(learn):
                arrays["learn"] = prepare_for_faiss(learn, metric)
        save_set(place, arrays, metric, asked)
    return describe_set(place)


def count_items(path: Path) -> int:
    """Return the number of items in an HDF5 file."""
    with h5py.File(path) as file:
        return len(file["train"])


def save_set(folder: Path, arrays: dict[str, np.ndarray], metric: str, queries: list[str]) -> None:
    """Write the arrays of a data set, and what it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        if not isinstance(array, np.memmap):
            np.save(folder / f"{name}.npy", array)
    count, dim = arrays["base"].shape
    about = {"metric": metric, "count": count, "dim": dim, "queries": queries}
    (folder / "set.json").write_text(json.dumps(about) + "\n")


def describe_set(folder: Path) -> dict[str, Any]:
    """Return the name of a data set, its metric, count and dimension, and its kinds of queries."""
    return {"name": folder.name, **json.loads((folder / "set.json").read_text())}


def write_skewed(folder: Path, count: int, dim: int) -> str:
    """Write vectors whose cluster sizes follow a power law, and queries like them; return a name.

    No query is an item. The queries `held` are for choosing, `test` for reporting.
    """
    name = f"skewed-{count}x{dim}"
    place = folder / "data" / name
    if (place / "set.json").exists():
        return name
    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    clusters = max(100, round(4 * count**0.5))
    centres = rng.normal(size=(clusters, dim)).astype(np.float32)
    share = np.arange(1, clusters + 1) ** -_EXPONENT
    share /= share.sum()

    def draw(rows: int) -> np.ndarray:
        which = rng.choice(clusters, rows, p=share)
        return centres[which] + 0.7 * rng.standard_normal((rows, dim), dtype=np.float32)

    asked = {"held": draw(min(1000, count)), "test": draw(min(2000, count))}
    base = np.lib.format.open_memmap(place / "base.npy", "w+", np.float32, (count, dim))
    near = {key: _Nearest(queries) for key, queries in asked.items()}
    for start in range(0, count, _BLOCK):
        block = draw(min(_BLOCK, count - start))
        base[start : start + len(block)] = block
        for found in near.values():
            found.compare(block, start)
    base.flush()
    truth = {f"{key}-truth": found.ids for key, found in near.items()}
    save_set(place, {"base": base, **asked, **truth}, "l2", ["test"])
    return name


def write_products(folder: Path, count: int = 700, dim: int = 16) -> dict[str, Any]:
    """Write a small set with inner products, for trying out; return what it is."""
    rng = np.random.default_rng(0)
    base, queries = (rng.normal(size=(n, dim)).astype(np.float32) for n in (count, 100))
    base *= rng.lognormal(size=(count, 1)).astype(np.float32)
    _, truth = faiss.knn(queries, base, K, metric=faiss.METRIC_INNER_PRODUCT)
    arrays = {"base": base, "test": queries, "test-truth": truth}
    save_set(folder / "data" / "products", arrays, "ip", ["test"])
    return describe_set(folder / "data" / "products")


class _Nearest:
    """The nearest items of some queries, among the blocks compared so far."""

    def __init__(self, queries: np.ndarray) -> None:
        self.queries = queries
        self.distances = np.full((len(queries), K), np.inf, dtype=np.float32)
        self.ids = np.full((len(queries), K), -1, dtype=np.int64)

    def compare(self, block: np.ndarray, start: int) -> None:
        distances, ids = faiss.knn(self.queries, block, K)
        distances = np.concatenate([self.distances, distances], axis=1)
        ids = np.concatenate([self.ids, ids + start], axis=1)
        order = np.argsort(distances, axis=1)[:, :K]
        self.distances = np.take_along_axis(distances, order, axis=1)
        self.ids = np.take_along_axis(ids, order, axis=1)
