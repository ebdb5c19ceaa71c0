"""Filtered search with one index, ours or a peer's: choose a setting for each filter, and time it.

It imports only NumPy, since the peers' environment imports it too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.vectors.curves import K, recall_at
from bench.vectors.methods import Method, Setting, doubling
from bench.vectors.peers import FaissFlat, FaissIVF, Hnswlib

TARGET = 0.95  # recall that the peers are tuned to
HELD, REPORTED = 500, 1000  # queries: the first are for choosing
MODES = ("batch", "single")
PATIENCE = 2.0  # CPU seconds: slow methods answer fewer queries
FEWEST = 50  # queries


class FilteredIVF(FaissIVF):
    """IVFFlat with a bitmap."""

    def restrict(self, allowed: np.ndarray) -> None:
        """Search only among the allowed items (N,)."""
        self._bits = np.packbits(allowed, bitorder="little")
        self._selector = self.library.IDSelectorBitmap(self._bits)

    def begin(self, setting: Setting, threads: int) -> None:
        super().begin(setting, threads)
        self._parameters = self.library.SearchParametersIVF(
            sel=self._selector, nprobe=setting["nprobe"]
        )

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(queries, k, params=self._parameters)[1]

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k, params=self._parameters)[1][0]


class FilteredFlat(FaissFlat):
    """All allowed items compared: gathered and multiplied, or through a selector of FAISS."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        held = self.library.vector_to_array(self.index.codes).view(np.float32)
        self._base = held.reshape(-1, self.index.d)

    def restrict(self, allowed: np.ndarray) -> None:
        """Search only among the allowed items (N,)."""
        self._rows = np.flatnonzero(allowed)
        self._bits = np.packbits(allowed, bitorder="little")
        self._selectors = {
            "array": self.library.IDSelectorArray(self._rows),
            "bitmap": self.library.IDSelectorBitmap(self._bits),
        }

    def sweep(self) -> Iterator[list[Setting]]:
        for way in ("gather", "array", "bitmap"):
            yield [{"way": way}]

    def begin(self, setting: Setting, threads: int) -> None:
        super().begin(setting, threads)
        selector = self._selectors.get(setting["way"])
        self._parameters = selector and self.library.SearchParameters(sel=selector)

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        if self._parameters:
            return self.index.search(queries, k, params=self._parameters)[1]
        metric = self.index.metric_type
        found = self.library.knn(queries, self._base[self._rows], k, metric=metric)[1]
        return self._rows[found]

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        if self._parameters or self.metric == "l2":
            return self.batch(query, k)[0]
        scores = self._base[self._rows] @ query[0]
        best = np.argpartition(scores, -k)[-k:]
        return self._rows[best[np.argsort(-scores[best])]]


class FilteredHnswlib(Hnswlib):
    """hnswlib with a function that says whether an item is allowed."""

    def restrict(self, allowed: np.ndarray) -> None:
        """Search only among the allowed items (N,)."""
        self._allows = allowed.tolist().__getitem__

    def sweep(self) -> Iterator[list[Setting]]:
        yield [{"ef": ef} for ef in doubling(10, 1300)]

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return np.array([self.single(query, k) for query in queries])

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        try:
            found = self.index.knn_query(query, k, num_threads=1, filter=self._allows)
        except RuntimeError:  # fewer than k were found
            return np.full(k, -1)
        return found[0][0].astype(np.int64)


METHODS: dict[str, Callable[..., Any]] = {
    "faiss-ivf": FilteredIVF,
    "faiss-flat": FilteredFlat,
    "hnswlib": FilteredHnswlib,
}


def measure_filters(method: Any, folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Return, for each filter, what was chosen on some queries and how it does on others."""
    queries, cases = np.load(folder / "test.npy"), []
    held = count_held(len(queries))
    for path in sorted((folder / "filters").glob("*.npz"), key=_order):
        kind, share = _read_name(path)
        with np.load(path) as arrays:
            allowed, truth = arrays["allowed"], arrays["truth"]
        method.restrict(allowed)
        case: dict[str, Any] = {"kind": kind, "share": share}
        for mode in MODES:
            if mode == MODES[0] or len(list(method.sweep())) > 1:  # else the modes need the same
                setting, chosen_at = choose(method, mode, queries[:held], truth[:held])
            method.begin(setting, 1)
            rates, asked = [], queries[held : len(truth)]
            for _ in range(repeats + 1):
                rate, found = search(method, mode, asked)
                asked = asked[: len(found)]
                rates.append(rate)
            case[mode] = {
                "setting": setting,
                "held_recall": chosen_at,
                "recall": recall_at(found, truth[held : held + len(found)]),
                "queries": len(asked),
                "rates": rates[1:],  # the first is the warm-up
            }
        cases.append(case)
    return cases


def count_held(count: int) -> int:
    """Return how many of so many queries are for choosing."""
    return min(HELD, count // 3)


def choose(
    method: Method, mode: str, queries: np.ndarray, truth: np.ndarray
) -> tuple[Setting, float]:
    """Return the fastest setting that reaches the target, of each row the first; and its recall."""
    best: tuple[bool, float, Setting, float] | None = None
    for row in method.sweep():
        for setting in row:
            method.begin(setting, 1)
            (_, rate), found = search(method, mode, queries, patience=PATIENCE / 4)
            recall = recall_at(found, truth[: len(found)])
            if recall >= TARGET:
                break
        if best is None or (recall >= TARGET, rate) > best[:2]:
            best = recall >= TARGET, rate, setting, recall
    if best is None:
        raise ValueError("a method must have at least one setting")
    return best[2], best[3]


def search(
    method: Method, mode: str, queries: np.ndarray, patience: float = PATIENCE
) -> tuple[list[float], np.ndarray]:
    """Answer the queries, fewer if that takes long; return queries per wall and CPU second."""
    started, first = time.process_time(), queries[:FEWEST]
    _answer(method, mode, method.prepare(first), first)
    each = (time.process_time() - started) / len(first)
    queries = queries[: max(FEWEST, int(patience / each))]
    prepared = method.prepare(queries)
    wall, cpu = time.perf_counter(), time.process_time()
    found = _answer(method, mode, prepared, queries)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return [len(queries) / wall, len(queries) / cpu], np.asarray(found)


def _answer(method: Method, mode: str, prepared: list[np.ndarray], queries: np.ndarray) -> Any:
    if mode == "batch":
        return method.batch(queries, K)
    return [method.single(query, K) for query in prepared]


def _read_name(path: Path) -> tuple[str, float]:
    kind, share = re.fullmatch(r"(.*)-([\d.]+)", path.stem).groups()  # type: ignore[union-attr]
    return kind, float(share)


def _order(path: Path) -> tuple[str, float]:
    kind, share = _read_name(path)
    return kind, -share
