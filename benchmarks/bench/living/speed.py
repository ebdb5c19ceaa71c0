"""Speed of changes: batches and single ones on disk, beside a graph of hnswlib in memory.

What measures runs in a process of its own: python -m bench.living.speed METHOD FOLDER OUT
It imports only NumPy there, since the peers' environment imports it too.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.living.methods import TARGET, Hnsw, K, count_seconds

BASE, ADDED, BATCH, SINGLE = 60_000, 20_000, 1000, 500
METHODS: dict[str, dict[str, int]] = {
    "irli": {},
    "hnswlib": {"built": 200},
    "hnswlib-100": {"built": 100},
    "hnswlib-40": {"built": 40},
}
HEAD = [
    "method",
    "inserts/s, batches of 1,000",
    "removals/s, batches of 1,000",
    "single inserts/s",
    "recall10@10 after inserts",
    "us a query",
]


def speed(options: Any) -> None:
    """Measure inserts and removals per CPU second, and the recall after them."""
    from bench.common import find_python, run_module
    from bench.living.runbook import PEERS
    from bench.living.tables import keep_table

    place = _prepare(options)
    rows, found = [], {}
    for method in options.methods or METHODS:
        out = place / f"{method}.json"
        python = sys.executable if method == "irli" else find_python(PEERS)
        run_module("bench.living.speed", method, place, out, python=python, threads=1)
        each = found[method] = json.loads(out.read_text())
        rates = [f"{each[name]:,.0f}" for name in ("inserts", "removals", "single")]
        rows.append([method, *rates, f"{each['recall']:.3f}", f"{each['microseconds']:.0f}"])
    keep_table(Path(options.results) / "living" / "speed", HEAD, rows, measured=found)


def _prepare(options: Any) -> Path:
    """Write vectors, queries and the index of the first items, once; return their folder."""
    from bench.commands import find_file
    from bench.living.runbooks import order_rows
    from bench.vectors.data import FILES, normalize
    from irli.base.vector_files import read_vectors

    base = 400 if options.smoke else BASE
    added = 200 if options.smoke else ADDED
    place = Path(options.results) / "living" / "data" / f"speed-{base}"
    if (place / "sizes.json").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    vectors, _ = order_rows(options.data, "glove", "sliding", base + added + min(SINGLE, added))
    path = find_file(options.data, FILES["glove"])
    asked = normalize(np.array(read_vectors(path, key="test")))
    asked = asked[np.random.default_rng(2).permutation(len(asked))[:1500]]
    np.save(place / "vectors.npy", vectors)
    np.save(place / "queries.npy", asked)
    fit_index(options, vectors[:base]).save(place / "index")
    (place / "sizes.json").write_text(json.dumps([base, added]))
    return place


def fit_index(options: Any, vectors: np.ndarray, **given: Any) -> Any:
    """Return an index of unit vectors, with the default recipe."""
    import irli
    from bench.commands import make_recipe

    return irli.VectorIndex("cosine", recipe=make_recipe(options)).fit(vectors, threads=1, **given)


# --- in a process of its own ---------------------------------------------------------------------


def _measure(place: Path, name: str) -> dict[str, float]:
    base, added = json.loads((place / "sizes.json").read_text())
    vectors, asked = np.load(place / "vectors.npy"), np.load(place / "queries.npy")
    queries, others = asked[: len(asked) * 2 // 3], asked[len(asked) * 2 // 3 :]
    if name == "irli":
        return _measure_irli(place, vectors, base, added, queries)
    graph = Hnsw(vectors.shape[1], len(vectors), **METHODS[name])
    graph.insert(vectors[:base], np.arange(base))

    def search(asked: np.ndarray) -> np.ndarray:
        return graph.search(asked)

    def widen() -> None:
        while _recall(search(others), others, vectors[: base + added]) < TARGET:
            graph.widen()

    return _time_all(
        graph.insert, graph.delete, search, vectors, base, added, queries, between=widen
    )


def _measure_irli(
    place: Path, vectors: np.ndarray, base: int, added: int, queries: np.ndarray
) -> dict[str, float]:
    import irli

    with tempfile.TemporaryDirectory(dir=place) as folder:
        shutil.copytree(place / "index", Path(folder) / "index")
        with irli.open(Path(folder) / "index", sync="normal", maintain="manual") as index:
            return _time_all(
                lambda X, ids: index.add(X, ids=ids),
                index.remove,
                lambda asked: index.search(asked, K, threads=1).ids,
                vectors,
                base,
                added,
                queries,
            )


def _time_all(
    insert: Callable[[np.ndarray, np.ndarray], Any],
    remove: Callable[[np.ndarray], Any],
    search: Callable[[np.ndarray], np.ndarray],
    vectors: np.ndarray,
    base: int,
    added: int,
    queries: np.ndarray,
    between: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    ids = np.arange(base, base + added)
    batch = min(BATCH, added // 4)
    began, clock = count_seconds(), time.perf_counter()
    for start in range(0, added, batch):
        part = ids[start : start + batch]
        insert(vectors[part], part)
    inserts, inserts_clock = count_seconds() - began, time.perf_counter() - clock
    between()
    began = time.process_time()
    found = search(queries)
    asked = time.process_time() - began
    recall = _recall(found, queries, vectors[: base + added])
    single = np.arange(base + added, len(vectors))
    began = count_seconds()
    for each in single:
        insert(vectors[each : each + 1], np.array([each]))
    singles = count_seconds() - began
    # Half of the items that were there, in a random order.
    gone = np.random.default_rng(3).permutation(base)[: 25 * batch]
    began, clock = count_seconds(), time.perf_counter()
    for start in range(0, len(gone), batch):
        remove(gone[start : start + batch])
    removals, removals_clock = count_seconds() - began, time.perf_counter() - clock
    return {
        "inserts": added / inserts,
        "inserts_by_clock": added / inserts_clock,
        "single": len(single) / singles,
        "removals": len(gone) / removals,
        "removals_by_clock": len(gone) / removals_clock,
        "recall": recall,
        "microseconds": 1e6 * asked / len(queries),
    }


def _recall(found: np.ndarray, queries: np.ndarray, vectors: np.ndarray) -> float:
    near = queries @ vectors.T
    tenth = np.partition(near, -K, axis=1)[:, -K]
    got = np.take_along_axis(near, np.maximum(found, 0), axis=1)
    return float(((got >= tenth[:, None] - 1e-5) & (found >= 0)).mean())


if __name__ == "__main__":
    which, root, out = sys.argv[1:]
    Path(out).write_text(json.dumps(_measure(Path(root), which)))
