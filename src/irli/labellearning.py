"""From rows with labels to an index: the buckets by Algorithm 1, then what is built on them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.config import Recipe
from irli.labelfit import Learned, finish, freeze, hashed, sparse
from irli.labelgrowth import partitions_of, placed, routers_of
from irli.labelkernels import FrozenLabels
from irli.labelproblem import pose_labels, row_keys
from irli.learner import learner
from irli.partition import Partition
from irli.problem import Rows, Sparse
from irli.router import Router


class Known(NamedTuple):
    """What learning can go on from."""

    routers: list[Router]
    partitions: list[Partition]
    trained: NDArray[np.uint64]  # keys of the rows that the routers have learned from


class Outcome(NamedTuple):
    """What learning has brought."""

    learned: Learned
    history: list[dict[str, Any]]
    counts: NDArray[np.int64]  # (L,): rows of each label
    trained: NDArray[np.uint64]


def known_of(
    frozen: FrozenLabels, trained: NDArray[np.uint64], rows: Rows, new: Sparse, recipe: Recipe
) -> Known:
    """Return what an index knows, with `new` labels (n, m) of the rows put into its buckets."""
    routers, partitions = routers_of(frozen), partitions_of(frozen)
    if new.shape[1]:
        routed = sparse(hashed(rows, recipe.features, recipe.seed))
        pairs = zip(routers, partitions, strict=True)
        partitions = [placed(*pair, routed, new, recipe) for pair in pairs]
    return Known(routers, partitions, trained)


def learn(
    rows: Rows,
    labels: Sparse,
    recipe: Recipe,
    *,
    want_ranker: bool | None,
    threads: int,
    device: str,
    epochs: int | None = None,
    known: Known | None = None,
    **options: Any,
) -> Outcome:
    """Learn an index of the rows (n, d) and their labels (n, L), or go on with one for `epochs`."""
    repetitions_of = learner(device)
    routed = hashed(rows, recipe.features, recipe.seed)
    before = None if known is None else known.trained
    problem, split = pose_labels(routed, labels, recipe, before)
    steps = recipe if epochs is None else dataclasses.replace(recipe, epochs=epochs)
    start = None if known is None else (known.routers, known.partitions)
    repetitions = repetitions_of(
        problem, steps, threads=threads, device=device, start=start, **options
    )
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    routers = [repetition.router for repetition in repetitions]
    frozen = freeze(routers, [repetition.partition for repetition in repetitions], counts)
    learned = finish(frozen, rows, labels, split, recipe, want_ranker, threads)
    history = [entry for repetition in repetitions for entry in repetition.history]
    trained = np.unique(row_keys(routed)[split.train])
    if before is not None:
        trained = np.union1d(trained, before)
    return Outcome(learned, history, counts, trained)
