"""Our index as the benchmark asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from vector_methods import Method, Setting

import irli

CANDIDATES = (20, 30, 40, 60, 80, 120, 200, 400)  # exact distances after the compressed pass


class Own(Method):
    """`irli.VectorIndex`; the build's settings are changes of the recipe, or `taught`."""

    package = "irli"
    module = "irli"

    def build(self, base: np.ndarray, learn: np.ndarray | None, threads: int) -> None:
        changes = {name: value for name, value in self.settings.items() if name != "taught"}
        # Vectors are of unit length already, but we measure what users of the metric get.
        metric = "l2" if self.metric == "l2" else "cosine"
        self.index = irli.VectorIndex(metric, recipe=irli.recipe("default", **changes))
        queries = learn if self.settings.get("taught") else None
        self.index.fit(base, queries=queries, threads=threads)

    def save(self, folder: Path) -> None:
        self.index.save(folder)

    def load(self, folder: Path) -> None:
        loaded = irli.load(folder)
        if not isinstance(loaded, irli.VectorIndex):
            raise TypeError(f"{folder} must hold a VectorIndex, and holds {loaded!r}")
        self.index = loaded

    def sweep(self) -> Iterator[list[Setting]]:
        thresholds = [float(t) for t in np.geomspace(0.2, 1e-6, 23)]
        if not self.index.recipe.pieces:  # without codes, all that is gathered is compared
            yield [{"threshold": t} for t in thresholds]
            return
        for count in CANDIDATES:
            yield [{"threshold": t, "candidates": count, "score": "codes"} for t in thresholds]

    def tuned(self, recall: float, queries: np.ndarray | None) -> Setting:
        """Return what `tune` chooses, by the queries that `fit` held out or by these."""
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
