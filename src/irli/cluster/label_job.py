"""LabelJob: which labels each shard has, its rows as files, and the phases of one label shard."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from irli.base.folder import VERSION, Folder
from irli.base.recipe import Recipe
from irli.base.sparse import as_labels, as_rows
from irli.base.types import Rows, Sparse
from irli.cluster.job import Job
from irli.cluster.workdir import check_space, store, store_sparse
from irli.labels.contents import pack_labels
from irli.labels.index import complete_labels, count_labels
from irli.labels.problem import LabelProblem, make_label_problem
from irli.labels.routing import choose_routing
from irli.labels.tune import Wishes
from irli.learning.options import LearnOptions
from irli.learning.repetition import Repetition


@dataclass(frozen=True, kw_only=True)
class LabelJob(Job):
    """How to build each shard of a label index.

    Attributes
    ----------
    rows, labels : str
        Paths of files: .npy, or .npz of a CSR.
    label_count : int
        L, of all shards.
    objective : str
        See `irli.labels.objective`.
    """

    rows: str
    labels: str
    label_count: int
    objective: str

    def describe(self, shard: int) -> list[Any]:
        names = [Path(self.rows).name, Path(self.labels).name]
        recipe = dataclasses.asdict(self.recipe)
        return [VERSION, names, self.shards, recipe, self.objective]

    def recipe_of(self, shard: int) -> Recipe:
        count = len(range(shard, self.label_count, self.shards))
        return self.recipe.resolve_for_labels(count + (self.shards > 1))

    def make_problem(self, shard: int) -> LabelProblem:
        rows, labels = self._read(shard)
        recipe, run = self.recipe_of(shard), LearnOptions(threads=self.threads, device=self.device)
        scaling = choose_routing(rows, labels, recipe, run)
        return make_label_problem(rows, labels, recipe, scaling=scaling)

    def assemble(self, shard: int, saved: Path, repetitions: list[Repetition]) -> Folder:
        rows, labels = self._read(shard)
        # Scores of several shards are compared. With a ranker they are better calibrated.
        wishes = Wishes(None if self.shards == 1 else True, self.objective)
        contents = complete_labels(
            LabelProblem.load(saved),
            repetitions,
            rows,
            labels,
            self.recipe_of(shard),
            wishes,
            self.threads,
        )
        return pack_labels(contents)

    def _read(self, shard: int) -> tuple[Rows, Sparse]:
        given: Any = np.load(self.rows) if self.rows.endswith(".npy") else sp.load_npz(self.rows)
        rows = as_rows(given)
        labels = sp.csr_array(sp.load_npz(self.labels))
        return rows, as_labels(take_labels(labels, shard, self.shards), rows.shape[0])


def make_label_job(
    folder: Path,
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    shards: int,
    threads: int,
    device: str,
    objective: str,
) -> LabelJob:
    """Write checked rows and labels to `folder`, and return the job that reads them."""
    size = rows.size if isinstance(rows, np.ndarray) else rows.nnz
    check_space(folder, 4 * int(size) + 8 * int(labels.nnz), "the rows and their labels")
    if isinstance(rows, np.ndarray):
        path = store(folder, "rows", rows)
    else:
        path = store_sparse(folder, "rows", rows)
    return LabelJob(
        folder=str(folder),
        shards=shards,
        recipe=recipe,
        slice_bytes=8 * int(size) + 8 * int(labels.nnz),
        threads=threads,
        device=device,
        rows=path,
        labels=store_sparse(folder, "labels", labels),
        label_count=labels.shape[1],
        objective=objective,
    )


def deal_labels(counts: NDArray[np.int64], shards: int) -> list[NDArray[np.int64]]:
    """Deal the labels out by frequency, so that all shards get common and rare ones alike.

    Examples
    --------
    >>> deal_labels(np.array([5, 1, 9, 2, 7]), 2)
    [array([0, 1, 2]), array([3, 4])]
    """
    order = np.argsort(-counts, kind="stable")
    return [np.sort(order[shard::shards]) for shard in range(shards)]


def take_labels(labels: Any, shard: int, shards: int) -> Any:
    """Return the labels of a shard (n, L / P + 1). The last one is "other": none of these."""
    if shards == 1:
        return labels
    kept = sp.csc_array(labels)[:, deal_labels(count_labels(labels), shards)[shard]]
    none = np.asarray(kept.sum(axis=1)).ravel() == 0
    labelled = np.diff(labels.indptr) > 0
    other = sp.csr_array((none & labelled).astype(np.float32)[:, None])
    return sp.csr_array(sp.hstack([kept, other]))
