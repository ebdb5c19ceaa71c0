"""`irli.VectorIndex` as a method of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import irli
from bench.vectors.methods import Method, Setting

ALL = 2**31 - 1  # candidates: everything that is read is compared
CANDIDATES = (20, 30, 40, 60, 80, 120, 200, 400)  # exact distances, chosen by codes


class Irli(Method):
    """`irli.VectorIndex`; the settings of a build are changes of the recipe, or sample_queries."""

    package = "irli"
    module = "irli"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        changes = {k: value for k, value in self.settings.items() if k != "sample_queries"}
        # With cosine, the vectors have length 1 already, but we measure what its users get.
        self.index = irli.VectorIndex(self.metric, recipe=irli.recipe("default", **changes))
        queries = learn if self.settings.get("sample_queries") else None
        self.index.fit(base, queries=queries, threads=threads)

    def save(self, folder: Path) -> None:
        self.index.save(folder)

    def load(self, folder: Path) -> None:
        self.index = irli.VectorIndex.load(folder)

    def sweep(self) -> Iterator[list[Setting]]:
        thresholds = [float(t) for t in np.geomspace(0.2, 1e-6, 23)]
        for count in CANDIDATES if self.index.recipe.pieces else ():
            yield [{"threshold": t, "candidates": count, "score": "codes"} for t in thresholds]
        every = {"score": "log-probability", "candidates": ALL}
        yield [{"threshold": t, **every} for t in thresholds]

    def tune(self, recall: float, queries: np.ndarray | None) -> Setting:
        """Choose by `tune`, on the queries that `fit` held out or on these."""
        self.index.tune(recall, k=10, queries=queries)
        return {"tuned": recall}

    def begin(self, setting: Setting, threads: int) -> None:
        self._given: dict[str, Any] = setting if "tuned" not in setting else {}
        self._threads = threads

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(queries, k, threads=self._threads, **self._given).ids

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k, threads=1, **self._given).ids

    def work(self, queries: np.ndarray, setting: Setting) -> dict[str, float]:
        told = self.index.explain(queries, 10, **self._given)
        return {
            "scanned": float(told.scanned.mean()),
            "exact": float(told.candidates.mean()),
            "router_multiplications": told.router_multiplications,
        }


class FilteredIrli(Irli):
    """The index as `fit` left it."""

    def restrict(self, allowed: np.ndarray) -> None:
        """Search only among the allowed items (N,)."""
        self._filter = self.index.allow(allowed)

    def sweep(self) -> Iterator[list[Setting]]:
        yield [{}]

    def begin(self, setting: Setting, threads: int) -> None:
        pass

    def batch(self, queries: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(queries, k, filter=self._filter, threads=1).ids

    def single(self, query: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(query, k, filter=self._filter, threads=1).ids
