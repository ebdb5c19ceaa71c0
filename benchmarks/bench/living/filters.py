"""Filters by payload: compile and search, one query a call, beside databases in this process.

What measures runs in a process of its own: python -m bench.living.filters METHOD FOLDER OUT
It imports only NumPy there, since the peers' environment imports it too.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.living.methods import TARGET, K

ITEMS, QUERIES, OTHERS = 60_000, 200, 100
VALUES = 1000  # a payload has a number below this, at random
SHARES = (0.5, 0.1, 0.01, 0.001)
HEAD = ["method", "allowed", "recall10@10", "first call, ms", "us a query", "of the best peer"]


class Filtered(ABC):
    """Items with payloads, searched under a filter by their number."""

    package: ClassVar[str]

    @abstractmethod
    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Store unit vectors (n, d) with payloads {"n": number}."""

    @abstractmethod
    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Return the rows of the nearest items whose number is below this."""

    def settings(self) -> Iterator[Any]:
        """Yield settings, from little work to much. They are set when they are yielded."""
        yield None


class Irli(Filtered):
    """Ours, as it stands."""

    package = "irli"

    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Add all items, and learn."""
        import irli
        from bench.living.methods import make_recipe

        path = folder / "index"
        made: Any = irli.open(
            path, metric="cosine", dim=vectors.shape[1], recipe=make_recipe(), maintain="manual"
        )
        made.add(vectors, payloads=[{"n": number} for number in numbers.tolist()])
        made.refresh()
        made.close()
        self.index: Any = irli.load(path)

    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Search."""
        found = self.index.search(query, K, filter={"n": {"$lt": below}}, threads=1)
        rows: list[int] = found.ids.tolist()
        return rows


class HnswFilter(Filtered):
    """A graph of hnswlib. Its filter is a Python function."""

    package = "hnswlib"

    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Build the graph."""
        import hnswlib

        self.numbers = numbers.tolist()
        self.index = hnswlib.Index(space="ip", dim=vectors.shape[1])
        self.index.init_index(max_elements=len(vectors), ef_construction=200, M=16)
        self.index.add_items(vectors, np.arange(len(vectors)), num_threads=1)

    def settings(self) -> Iterator[Any]:
        """Widen the search."""
        for ef in (10, 20, 40, 80, 160, 320, 640):
            self.index.set_ef(ef)
            yield ef

    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Search."""
        numbers = self.numbers
        try:
            found = self.index.knn_query(
                query, K, num_threads=1, filter=lambda row: numbers[row] < below
            )
        except RuntimeError:  # fewer than ten were found
            return []
        rows: list[int] = found[0][0].tolist()
        return rows


class SqliteVec(Filtered):
    """sqlite-vec: all vectors are compared, with the number as a metadata column."""

    package = "sqlite-vec"

    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Fill the table."""
        import apsw  # Python's own module may be built without extensions
        import sqlite_vec

        self.db = apsw.Connection(str(folder / "vec.sqlite"))
        self.db.enable_load_extension(True)
        self.db.load_extension(sqlite_vec.loadable_path())
        dim = vectors.shape[1]
        self.db.execute(
            f"create virtual table items using vec0(v float[{dim}] distance_metric=cosine, n int)"
        )
        stored = [vector.tobytes() for vector in vectors]
        rows = zip(range(len(vectors)), stored, numbers.tolist(), strict=True)
        with self.db:
            self.db.executemany("insert into items(rowid, v, n) values (?, ?, ?)", rows)

    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Search."""
        asked = "select rowid from items where v match ? and k = ? and n < ?"
        return [row for (row,) in self.db.execute(asked, (query.tobytes(), K, below))]


class Qdrant(Filtered):
    """Qdrant's local mode, in memory: all vectors are compared."""

    package = "qdrant-client"

    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Fill the collection."""
        from qdrant_client import QdrantClient, models

        self.models: Any = models
        self.client = QdrantClient(":memory:")
        self.client.create_collection(
            "items", models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
        )
        payload = [{"n": number} for number in numbers.tolist()]
        for start in range(0, len(vectors), 5000):
            part = slice(start, start + 5000)
            batch = models.Batch(
                ids=list(range(len(vectors)))[part],
                vectors=vectors[part].tolist(),
                payloads=payload[part],
            )
            self.client.upsert("items", batch)

    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Search."""
        models = self.models
        condition = models.FieldCondition(key="n", range=models.Range(lt=below))
        found = self.client.query_points(
            "items",
            query=query.tolist(),
            limit=K,
            query_filter=models.Filter(must=[condition]),
            with_payload=False,
        )
        return [int(point.id) for point in found.points]


class Chroma(Filtered):
    """Chroma in its folder: a graph, and SQLite for the payloads."""

    package = "chromadb"

    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Fill the collection."""
        import chromadb
        from chromadb.config import Settings

        client = chromadb.PersistentClient(
            str(folder / "chroma"), Settings(anonymized_telemetry=False)
        )
        self.collection = client.create_collection(
            "items", configuration={"hnsw": {"space": "cosine", "num_threads": 1}}
        )
        for start in range(0, len(vectors), 5000):
            rows = range(start, min(start + 5000, len(vectors)))
            self.collection.add(
                ids=[str(row) for row in rows],
                embeddings=vectors[start : start + 5000],
                metadatas=[{"n": int(numbers[row])} for row in rows],
            )

    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Search."""
        found = self.collection.query(
            query_embeddings=query[None], n_results=K, where={"n": {"$lt": below}}, include=[]
        )
        return [int(row) for row in found["ids"][0]]


class Lance(Filtered):
    """LanceDB: lists of IVF, filtered before the search, with an index of the numbers."""

    package = "lancedb"
    lists = True

    def build(self, vectors: np.ndarray, numbers: np.ndarray, folder: Path) -> None:
        """Fill the table, and make its indexes."""
        import lancedb
        import pyarrow as pa

        dim = vectors.shape[1]
        flat = pa.array(vectors.ravel())
        data = pa.table(
            {
                "row": pa.array(np.arange(len(vectors))),
                "n": pa.array(numbers),
                "vector": pa.FixedSizeListArray.from_arrays(flat, dim),
            }
        )
        self.table = lancedb.connect(str(folder / "lance")).create_table("items", data)
        self.table.create_scalar_index("n")
        self.probes = 0
        if self.lists:
            self.table.create_index(
                metric="cosine",
                index_type="IVF_FLAT",
                num_partitions=256,
                vector_column_name="vector",
            )

    def settings(self) -> Iterator[Any]:
        """Probe more lists."""
        for probes in (4, 8, 16, 32, 64, 128) if self.lists else (0,):
            self.probes = probes
            yield probes

    def search(self, query: np.ndarray, below: int) -> list[int]:
        """Search."""
        asked = self.table.search(query).distance_type("cosine").limit(K).select(["row"])
        asked = asked.where(f"n < {below}", prefilter=True)
        if self.lists:
            asked = asked.nprobes(self.probes)
        rows: list[int] = asked.to_arrow()["row"].to_pylist()
        return rows


class LanceFlat(Lance):
    """LanceDB without an index of the vectors: all that a filter allows are compared."""

    lists = False


METHODS: dict[str, type[Filtered]] = {
    "irli": Irli,
    "hnswlib, callback": HnswFilter,
    "sqlite-vec": SqliteVec,
    "Qdrant, local": Qdrant,
    "Chroma": Chroma,
    "LanceDB, IVF_FLAT": Lance,
    "LanceDB, no index": LanceFlat,
}


def filters(options: Any) -> None:
    """Measure each method, and write the table."""
    from bench.commands import find_file
    from bench.common import (
        ProcessFailed,
        find_python,
        list_packages,
        run_module,
        say,
    )
    from bench.living.runbook import PEERS
    from bench.living.runbooks import order_rows
    from bench.living.tables import keep_table
    from bench.vectors.data import FILES, normalize
    from irli.base.vector_files import read_vectors

    items = 600 if options.smoke else options.rows.get("glove", ITEMS)
    place = Path(options.results) / "living" / "data" / f"filters-{items}"
    place.mkdir(parents=True, exist_ok=True)
    vectors, _ = order_rows(options.data, "glove", "sliding", items)
    asked = normalize(np.array(read_vectors(find_file(options.data, FILES["glove"]), key="test")))
    np.save(place / "vectors.npy", vectors)
    np.save(place / "queries.npy", asked[np.random.default_rng(2).permutation(len(asked))])
    versions, found = list_packages(find_python(PEERS)), {}
    for name in options.methods or METHODS:
        python = sys.executable if name == "irli" else find_python(PEERS)
        out = place / f"{name}.json"
        if name != "irli" and METHODS[name].package not in versions:
            say(f"{name}: skipped, since {METHODS[name].package} is not installed")
            continue
        try:
            if options.fresh or not out.exists():
                run_module("bench.living.filters", name, place, out, python=python, threads=1)
        except ProcessFailed as error:
            say(f"{name}: {error}")
            continue
        found[name] = json.loads(out.read_text())
        say(f"{name}: {found[name]}")
    rows = []
    for number, share in enumerate(SHARES):
        peers = [
            each[number]["microseconds"]
            for name, each in found.items()
            if name != "irli" and each[number]["recall"] >= TARGET
        ]
        for name, each in found.items():
            case = each[number]
            cells = [f"{100 * share:g} %", f"{case['recall']:.3f}", f"{case['first']:.1f}"]
            ratio = min(peers) / case["microseconds"] if peers else float("nan")
            rows.append([name, *cells, f"{case['microseconds']:,.0f}", f"{ratio:.2f}"])
    packages = {name: versions.get(METHODS[name].package) for name in found}
    path = Path(options.results) / "living" / "filters"
    keep_table(path, HEAD, rows, items=items, versions=packages, measured=found)


# --- in a process of its own ---------------------------------------------------------------------


def _measure(place: Path, name: str) -> list[dict[str, Any]]:
    vectors, asked = np.load(place / "vectors.npy"), np.load(place / "queries.npy")
    numbers = np.random.default_rng(4).integers(VALUES, size=len(vectors))
    asked = asked[: OTHERS + QUERIES]
    others, queries = asked[: len(asked) // 3], asked[len(asked) // 3 :]
    with tempfile.TemporaryDirectory(dir=place) as folder:
        method = METHODS[name]()
        method.build(vectors, numbers, Path(folder))
        cases = []
        for share in SHARES:
            below = round(share * VALUES)
            allowed = np.flatnonzero(numbers < below)
            began = time.process_time()
            method.search(others[0], below)
            first = 1e3 * (time.process_time() - began)
            setting = None
            for setting in method.settings():  # noqa: B007 - the last one is reported
                if _ask(method, others, below, vectors, allowed)[0] >= TARGET:
                    break
            recall, seconds = _ask(method, queries, below, vectors, allowed)
            cases.append(
                {"share": share, "setting": setting, "recall": recall, "first": first}
                | {"microseconds": 1e6 * seconds / len(queries)}
            )
        return cases


def _ask(
    method: Filtered, queries: np.ndarray, below: int, vectors: np.ndarray, allowed: np.ndarray
) -> tuple[float, float]:
    """Return the recall, and the CPU seconds of all queries."""
    began = time.process_time()
    found = [method.search(query, below) for query in queries]
    seconds = time.process_time() - began
    k, recall = min(K, len(allowed)), 0.0
    if k == 0:  # a smoke run has few items
        return 1.0, seconds
    for query, rows in zip(queries, found, strict=True):
        tenth = np.partition(vectors[allowed] @ query, len(allowed) - k)[len(allowed) - k]
        there = [row for row in set(rows) if row >= 0]
        recall += float((vectors[there] @ query >= tenth - 1e-5).sum()) / k
    return recall / len(queries), seconds


if __name__ == "__main__":
    which, root, out = sys.argv[1:]
    Path(out).write_text(json.dumps(_measure(Path(root), which)))
