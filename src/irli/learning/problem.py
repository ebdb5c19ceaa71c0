"""What there is to learn: items, the queries that want them, and queries held out to validate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse

_CSR = ("data", "indices", "indptr")


@dataclass(frozen=True)
class Problem:
    """Items, training queries with the items they want, validation queries.

    Attributes
    ----------
    metric : {"l2", "ip", "cosine"}
    items : float32 array of shape (N, p)
        Where the items lie, for the first partition.
    items_are_queries : bool
        Whether the items are points of the query space, so that the router can score them.
    queries : float32 array or CSR of shape (n, d)
        Training queries: base vectors, sample queries, or both.
    query_items : int64 array of shape (n,)
        The item that each training query is, or -1.
    indptr, indices, weights : arrays of a CSR of shape (n, N)
        Which items each query wants, and how much.
    sampling : float64 array of shape (n,)
        How often each query is drawn in training; sums to 1.
    held_queries : float32 array or CSR of shape (v, d)
        Held-out queries for validation.
    held_truth : int64 array of shape (v, j)
        What they want, -1 as padding.
    """

    metric: str
    items: NDArray[np.float32]
    items_are_queries: bool
    queries: Rows
    query_items: NDArray[np.int64]
    sampling: NDArray[np.float64]
    held_queries: Rows
    held_truth: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    weights: NDArray[np.float32]

    @property
    def pair_queries(self) -> NDArray[np.int64]:
        """The query of each (query, item) pair."""
        return np.repeat(np.arange(len(self.query_items)), np.diff(self.indptr))

    def scored_points(self) -> tuple[Rows, NDArray[np.float32] | None]:
        """Return all points that a router scores for affinities.

        These are the items, where they are points of the query space, and then the training queries
        that are no items; else all training queries.
        """
        if not self.items_are_queries:
            return self.queries, None
        others: NDArray[np.float32] = np.asarray(self.queries)[self.query_items < 0]
        return self.items, others if len(others) else None

    def wanted_by(self, weights: NDArray[np.float32]) -> Sparse:
        """Return the relevance with `weights`, transposed: (N, scored points)."""
        count = len(self.items)
        column = np.arange(len(self.query_items))
        width = len(column)
        if self.items_are_queries:
            stranger = self.query_items < 0
            column = np.where(stranger, count + np.cumsum(stranger) - 1, self.query_items)
            width = count + int(stranger.sum())
        pairs = (self.indices, column[self.pair_queries])
        return sp.csr_array((weights, pairs), shape=(count, width))

    def save(self, folder: Path) -> None:
        """Write the arrays so that other processes can map them."""
        for name, value in self._arrays().items():
            np.save(folder / f"{name}.npy", value)
        (folder / "metric").write_text(self.metric)

    @classmethod
    def load(cls, folder: Path) -> Problem:
        """Map what `save` wrote."""

        def read(name: str) -> Any:
            if (folder / f"{name}.npy").exists():
                return np.load(folder / f"{name}.npy", mmap_mode="r")
            parts = tuple(read(f"{name}_{part}") for part in _CSR)
            return sp.csr_array(parts, shape=tuple(read(f"{name}_shape")))

        arrays = {f.name: read(f.name) for f in fields(cls) if f.name != "metric"}
        arrays["items_are_queries"] = bool(arrays["items_are_queries"])
        return cls(metric=(folder / "metric").read_text(), **arrays)

    def fingerprint(self, recipe: Recipe) -> str:
        """Identify the problem and the recipe, so that a checkpoint is never used for another."""
        digest = hashlib.sha256(repr((self.metric, recipe)).encode())
        for value in self._arrays().values():
            digest.update(repr((value.shape, value.dtype.str)).encode())
            digest.update(np.ascontiguousarray(value).data)
        return digest.hexdigest()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return all but the metric as arrays; a CSR is four of them."""
        arrays: dict[str, NDArray[Any]] = {}
        for name in (f.name for f in fields(self) if f.name != "metric"):
            value: Any = getattr(self, name)
            if isinstance(value, sp.csr_array):
                arrays |= {f"{name}_{part}": getattr(value, part) for part in _CSR}
                arrays[f"{name}_shape"] = np.array(value.shape)
            else:
                arrays[name] = np.asarray(value)
        return arrays
