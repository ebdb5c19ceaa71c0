"""choose_routing: how routers see rows and how wide they are, by small trials on held-out rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from irli.base.recipe import Recipe, choose_label_buckets
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.build.assemble import assemble_labels
from irli.labels.build.features import as_sparse, hash_features
from irli.labels.build.problem import LabelProblem, Split, make_label_problem
from irli.labels.build.scaling import GIVEN, LEAST_ROWS, Scaling, list_scalings
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.tuning.objective import mean_precision
from irli.labels.tuning.tune import Trials, Wishes, measure_sources
from irli.learning import learn
from irli.learning.options import LearnOptions

_ROWS = 5_000  # rows that a small index learns from, at most
_LABELS, _FEWEST = 100_000, 1_000  # labels of these rows in all, at most; but so many rows
_MEASURED, _SHARE = 2_000, 3  # other rows that it is measured on, at most; one in so many
_BEST = 5  # labels that are measured
_EPOCHS = 8  # of a small index, at most
_TIE = 0.005  # precision within which rows stay as they are
_WIDTHS = (0.5, 1.0, 2.0)  # times the usual width that are tried; less only on most of the rows
_CLEAR = 1.02  # times the usual width's quality that another must have: less is chance


class Routing(NamedTuple):
    """How the routers are made.

    Attributes
    ----------
    scaling : Scaling
        Of the routers' rows.
    recipe : Recipe
        Resolved for the labels, with the chosen width of the hidden layer.
    trials : list of dict
        What was tried, for the history.
    """

    scaling: Scaling
    recipe: Recipe
    trials: list[dict[str, Any]]


def choose_routing(
    rows: Rows, labels: Sparse, recipe: Recipe, wishes: Wishes, run: LearnOptions
) -> Routing:
    """Choose the scaling of the routers' rows, then the width of their hidden layer.

    Small indexes are learned from a sample. A scaling is judged by one repetition, which says how
    well routers learn with it. A width is judged by the ranker and near rows together with the
    routers, unless there shall be no ranker: alone, wider routers are nearly always better, and
    together it often makes no difference.

    Parameters
    ----------
    rows : array or CSR of shape (n, d)
    labels : CSR of shape (n, L)
    recipe : Recipe
        If its `hidden` is not that of the named recipe, the user has chosen it.
    """
    resolved = recipe.resolve_for_labels(labels.shape[1])
    useful = np.flatnonzero(np.diff(labels.indptr))
    if not recipe.standardize or len(useful) < LEAST_ROWS:  # the paper takes rows as they are
        return Routing(GIVEN, resolved, [])
    mixed = np.random.default_rng([recipe.seed, 0x5C]).permutation(useful)
    held = min(_MEASURED, len(mixed) // _SHARE)
    in_rows = labels.nnz / len(useful)  # labels of a row
    train = min(_ROWS, len(mixed) - held, max(_FEWEST, int(_LABELS / in_rows)))
    chosen, split = mixed[: train + held], Split(np.arange(train), train + np.arange(held))
    carried = _drop_labels(labels[chosen])
    sample = _Sample(rows[chosen], carried, split, wishes, run)
    small = _shrink(resolved, carried.shape[1])
    trials = Trials()
    scaling = _choose_scaling(sample, list_scalings(rows), small, trials)
    if recipe.hidden is None:
        # Few rows do with narrow routers, which says nothing of many.
        widths = [times for times in _WIDTHS if times >= 1 or 2 * train >= len(mixed)]
        width = _choose_width(sample, widths, scaling, small, trials)
        resolved = dataclasses.replace(resolved, hidden=width)
    return Routing(scaling, resolved, trials)


def _drop_labels(labels: Sparse) -> Sparse:
    """Return the labels without those that no row carries: most of half a million."""
    kept, columns = np.unique(labels.indices, return_inverse=True)
    shape = (labels.shape[0], max(1, len(kept)))
    return sp.csr_array((labels.data, columns.astype(np.int32), labels.indptr), shape=shape)


def _shrink(recipe: Recipe, labels: int) -> Recipe:
    """Return the recipe of a small index with so many labels: as full buckets, fewer epochs."""
    buckets = labels
    if recipe.start != "one-per-item":
        buckets = max(1, min(recipe.buckets, choose_label_buckets(labels)))
    return dataclasses.replace(
        recipe,
        buckets=buckets,
        choices=min(recipe.choices, buckets),
        buckets_per_item=min(recipe.buckets_per_item, buckets),
        epochs=min(recipe.epochs, _EPOCHS),
    )


class _Sample(NamedTuple):
    """Rows to learn small indexes from and to measure them on, and how that is run."""

    rows: Rows
    labels: Sparse
    split: Split
    wishes: Wishes
    run: LearnOptions

    def learn(self, scaling: Scaling, recipe: Recipe) -> tuple[LabelProblem, LabelLayout]:
        """Learn a small index, without progress bars or checkpoints."""
        made = make_label_problem(self.rows, self.labels, recipe, scaling=scaling, split=self.split)
        quiet = LearnOptions(threads=self.run.threads, device=self.run.device)
        counts = np.bincount(self.labels.indices, minlength=self.labels.shape[1])
        return made, assemble_labels(learn(made.problem, recipe, quiet), counts)


def _choose_scaling(
    sample: _Sample, scalings: list[Scaling], recipe: Recipe, trials: Trials
) -> Scaling:
    """Return the scaling with which one repetition is most precise."""
    if len(scalings) == 1:
        return scalings[0]
    one, held, qualities = dataclasses.replace(recipe, repetitions=1), sample.split.held, []
    for scaling in scalings:
        _, layout = sample.learn(scaling, one)
        routed = as_sparse(hash_features(scaling.apply(sample.rows[held]), recipe))
        k = min(_BEST, sample.labels.shape[1])
        found = Predictor(layout).predict(routed, routed, k, LabelParameters())[1]
        qualities.append(mean_precision(found, sample.labels[held]))
        trials.note("routing", scaling.name, qualities[-1])
    return scalings[int(np.argmax(np.array(qualities) >= max(qualities) - _TIE))]


def _choose_width(
    sample: _Sample, widths: list[float], scaling: Scaling, recipe: Recipe, trials: Trials
) -> int:
    """Return the width of the best small index. Only a clear gain changes it."""
    qualities = {}
    for times in widths:
        width = max(1, int(times * recipe.hidden))
        wide = dataclasses.replace(recipe, hidden=width)
        made, layout = sample.learn(scaling, wide)
        qualities[width] = measure_sources(
            layout,
            sample.rows,
            sample.labels,
            made,
            wide,
            sample.wishes,
            sample.run.thread_count,
        )
        trials.note("hidden", width, qualities[width])
    best = max(qualities, key=lambda width: qualities[width])
    return best if qualities[best] > _CLEAR * qualities[recipe.hidden] else recipe.hidden
