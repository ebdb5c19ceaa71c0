"""`Problem`, the training data of Algorithm 1: items, queries, relevance, held-out queries."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
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
    """The items, the training queries with their relevant items, and the validation queries.

    Attributes
    ----------
    metric : {"l2", "ip", "cosine"}
    items : float32 array of shape (N, p)
        The points of the items, from which the first partition is made.
    items_are_queries : bool
        Whether the items are points of the query space, so that the router can score them.
    queries : float32 array or CSR of shape (n, d)
        Training queries: base vectors, sample queries, or both.
    query_items : int64 array of shape (n,)
        For each training query the item that it is, or -1.
    indptr, indices, weights : arrays of a CSR of shape (n, N)
        The relevance of the items to each query.
    sampling : float64 array of shape (n,)
        The probability that a query is drawn in training. Sums to 1.
    held_queries : float32 array or CSR of shape (v, d)
        Held-out queries for validation.
    held_truth : int64 array of shape (v, j)
        The relevant items of the held-out queries, padded with -1.
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
    indices: NDArray[np.int32] | NDArray[np.int64]
    weights: NDArray[np.float32]

    @property
    def pair_queries(self) -> NDArray[np.int64]:
        """The query of each (query, item) pair."""
        return np.repeat(np.arange(len(self.query_items)), np.diff(self.indptr))

    def scored_points(self) -> tuple[Rows, NDArray[np.float32] | None]:
        """Return all points that a router scores for affinities.

        If the items are points of the query space, these are the items, followed by the training
        queries that are not items. Otherwise they are all training queries.
        """
        if not self.items_are_queries:
            return self.queries, None
        others: NDArray[np.float32] = np.asarray(self.queries)[self.query_items < 0]
        return self.items, others if len(others) else None

    def wanted_by(self, weights: NDArray[np.float32]) -> Sparse:
        """Return the transposed relevance with other `weights`: (N, scored points)."""
        count = len(self.items)
        column = np.arange(len(self.query_items))
        width = len(column)
        if self.items_are_queries:
            not_item = self.query_items < 0
            column = np.where(not_item, count + np.cumsum(not_item) - 1, self.query_items)
            width = count + int(not_item.sum())
        pairs = (self.indices, column[self.pair_queries])
        return sp.csr_array((weights, pairs), shape=(count, width))

    def save(self, folder: Path) -> None:
        """Write the arrays to files that other processes can map."""
        for name, value in self._collect_arrays().items():
            path = folder / f"{name}.npy"
            file = getattr(value, "filename", None)
            if file is None or not path.exists() or not path.samefile(file):
                np.save(path, value)
        (folder / "metric").write_text(self.metric)

    @classmethod
    def load(cls, folder: Path) -> Problem:
        """Map the files that `save` wrote."""

        def read(name: str) -> Any:
            if (folder / f"{name}.npy").exists():
                return np.load(folder / f"{name}.npy", mmap_mode="r")
            parts = tuple(read(f"{name}_{part}") for part in _CSR)
            return sp.csr_array(parts, shape=tuple(read(f"{name}_shape")))

        arrays = {f.name: read(f.name) for f in fields(cls) if f.name != "metric"}
        arrays["items_are_queries"] = bool(arrays["items_are_queries"])
        return cls(metric=(folder / "metric").read_text(), **arrays)

    def fingerprint(self, recipe: Recipe, more: Iterable[NDArray[Any]] = ()) -> str:
        """Return a checksum of problem and recipe, by which checkpoints are found again.

        `more` are other arrays that decide what is learned.

        Without a shared trunk, it is that of any number of repetitions: more go on from fewer.
        """
        if recipe.trunk != "shared":
            recipe = dataclasses.replace(recipe, repetitions=1)
        digest = hashlib.sha256(repr((self.metric, recipe)).encode())
        for value in (*self._collect_arrays().values(), *more):
            digest.update(repr((value.shape, value.dtype.str)).encode())
            digest.update(np.ascontiguousarray(value).data)
        return digest.hexdigest()

    def _collect_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all fields but the metric as arrays. A CSR becomes four arrays."""
        arrays: dict[str, NDArray[Any]] = {}
        for name in (f.name for f in fields(self) if f.name != "metric"):
            value: Any = getattr(self, name)
            if isinstance(value, sp.csr_array):
                arrays |= {f"{name}_{part}": getattr(value, part) for part in _CSR}
                arrays[f"{name}_shape"] = np.array(value.shape)
            else:
                arrays[name] = np.asanyarray(value)  # a mapped file stays one
        return arrays
