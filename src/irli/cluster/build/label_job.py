"""LabelJob: which labels each shard has, its rows as files, and the phases of one label shard.

All shards have the same routers, which are learned once, with all labels. In its buckets each has
its own labels only. Routers that learn from a part of the labels know less of the rows, and what
they say of a label depends on the others of the part.
"""

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
from irli.base.sparse import as_labels, as_rows, count_labels
from irli.base.threads import limit_blas
from irli.base.types import Rows, Sparse
from irli.cluster.build.job import Job
from irli.cluster.build.label_blend import write_held
from irli.cluster.build.memory import count_step_base
from irli.cluster.build.workdir import check_space, store, store_sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import assemble_labels
from irli.labels.build.features import as_sparse, hash_features, limit_features
from irli.labels.build.problem import LabelProblem, Split, make_label_problem
from irli.labels.changes.edit import take_labels
from irli.labels.contents import pack_labels
from irli.labels.learner import complete_labels
from irli.labels.predictor import Predictor
from irli.labels.tuning.choose import Trials
from irli.labels.tuning.routers import HeldRows, choose_score, count_shortlist
from irli.labels.tuning.scaling import choose_scaling
from irli.labels.tuning.tune import RankingOptions
from irli.learning.repetition import Repetition

_FORM = 5  # of what a step leaves behind; earlier ones are not reused


@dataclass(frozen=True, kw_only=True)
class LabelJob(Job):
    """How to build each shard of a label index.

    Attributes
    ----------
    rows, labels : str
        Paths of files: .npy, or .npz of a CSR.
    titles : int
        So many of the last rows are titles of labels.
    label_count : int
        L, of all shards.
    objective : str
        See `irli.labels.tuning.objective`.
    """

    rows: str
    labels: str
    titles: int
    label_count: int
    objective: str

    def describe(self, shard: int) -> list[Any]:
        names = [Path(self.rows).name, Path(self.labels).name]
        recipe = dataclasses.asdict(self.recipe)
        return [VERSION, names, self.titles, self.shards, recipe, self.objective, _FORM]

    def learned_by(self, shard: int) -> int:
        return 0

    def recipe_of(self, shard: int) -> Recipe:
        return self.recipe.resolve_for_labels(self.label_count)

    @limit_blas()
    def make_problem(self, shard: int, folder: Path | None = None) -> LabelProblem:
        rows, labels = self._read()
        given, recipe = rows.shape[0] - self.titles, self.recipe_of(shard)
        scaling, trials = choose_scaling(rows[:given], labels[:given], recipe, self.threads)
        made = make_label_problem(rows, labels, recipe, scaling=scaling, titles=self.titles)
        return made._replace(trials=trials)

    def assemble(self, shard: int, saved: Path, repetitions: list[Repetition]) -> Folder:
        rows, labels = self._read()
        counts, several = count_labels(labels), self.shards > 1
        dealt = deal_labels(counts, self.shards)
        own, layout = dealt[shard], assemble_labels(repetitions, counts)
        made, ranking = LabelProblem.load(saved), RankingOptions(None, self.objective)
        if several:
            made, ranking = self._share(made, layout, rows, labels)
        contents = complete_labels(
            made._replace(split=serve_all(made.split, labels, dealt)),
            repetitions,
            take_labels(layout, own) if several else layout,
            rows,
            as_labels(sp.csc_array(labels)[:, own], rows.shape[0]),
            self.recipe_of(shard),
            ranking,
            self.threads,
        )
        if contents.model.held is not None:
            write_held(self.held(shard), contents.model.held, contents.model.calibration)
        return pack_labels(contents)

    def _share(
        self, made: LabelProblem, layout: LabelLayout, rows: Rows, labels: Sparse
    ) -> tuple[LabelProblem, RankingOptions]:
        """Return what several shards must have, so that their log-odds can be compared.

        With a ranker they are better calibrated. The score is chosen by all labels; the problem
        keeps what was tried.
        """
        held, tried = made.split.held, Trials()
        routed = as_sparse(hash_features(made.scaling.apply(rows[held]), self.recipe_of(0)))
        asked = HeldRows(routed, labels[held], count_shortlist(labels))
        score = choose_score(Predictor(layout), asked, self.threads, tried)
        ranking = RankingOptions(True, self.objective, keep_held=True, score=score)
        return made._replace(trials=[*made.trials, *tried]), ranking

    def held(self, shard: int) -> Path:
        """Return the file with the candidates of held-out rows, by which shards are compared."""
        return self.index(shard).with_name("held.npz")

    def _read(self) -> tuple[Rows, Sparse]:
        given: Any = np.load(self.rows) if self.rows.endswith(".npy") else sp.load_npz(self.rows)
        rows = as_rows(given)
        return rows, as_labels(sp.csr_array(sp.load_npz(self.labels)), rows.shape[0])


def make_label_job(
    folder: Path,
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    shards: int,
    threads: int,
    device: str,
    objective: str,
    titles: int = 0,
) -> LabelJob:
    """Write checked rows and labels to `folder`, and return the job that reads them.

    So many of the last rows are `titles`.
    """
    size = rows.size if isinstance(rows, np.ndarray) else rows.nnz
    check_space(folder, 4 * int(size) + 8 * int(labels.nnz), "the rows and their labels")
    if isinstance(rows, np.ndarray):
        path = store(folder, "rows", rows)
    else:
        path = store_sparse(folder, "rows", rows)
    return LabelJob(
        folder=str(folder),
        shards=shards,
        recipe=limit_features(rows, recipe),
        step_bytes=count_step_base(device) + 2 * (8 * int(size) + 8 * int(labels.nnz)),
        threads=threads,
        device=device,
        rows=path,
        labels=store_sparse(folder, "labels", labels),
        titles=titles,
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


def serve_all(split: Split, labels: Sparse, dealt: list[NDArray[np.int64]]) -> Split:
    """Return the split. If it holds out no row of some shard, all rows are held out and learned.

    Examples
    --------
    >>> labels = sp.csr_array(np.eye(3, dtype="f4"))
    >>> split = Split(np.array([0, 1]), np.array([2]))
    >>> serve_all(split, labels, [np.array([0]), np.array([1, 2])]).held
    array([0, 1, 2])
    >>> serve_all(split, labels, [np.array([0, 1, 2])]).held
    array([2])
    """
    held = count_labels(labels[split.held])
    if all(held[own].any() for own in dealt):
        return split
    everything = np.union1d(split.train, split.held)
    return Split(everything, everything)
