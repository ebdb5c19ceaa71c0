"""choose_routing: how routers see rows and how wide they are, by small trials on held-out rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irli.base.recipe import RECIPES, Recipe
from irli.base.types import Rows, Sparse
from irli.engine.label_layout import LabelLayout
from irli.labels.assemble import assemble_labels
from irli.labels.features import as_sparse, hash_features
from irli.labels.objective import mean_precision
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.problem import LabelProblem, Split, make_label_problem
from irli.labels.scaling import GIVEN, LEAST_ROWS, Scaling, list_scalings
from irli.labels.tune import Trials, measure_sources
from irli.learning import learn
from irli.learning.options import LearnOptions

_ROWS = 5_000  # rows of a trial, at most
_MEASURED = 2_000  # others by which widths are compared, at most
_SHARE = 3  # one in so many rows is in the trial of a width, and as many others are measured
_BEST = 5  # labels that are measured
_EPOCHS = 2  # epochs of a trial of a scaling, at most
_WIDTH_EPOCHS = 8  # of a trial of a width
_TIE = 0.005  # precision within which rows stay as they are
_WIDTHS = (0.5, 1.0, 2.0)  # times the usual width that are tried
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
    rows: Rows, labels: Sparse, recipe: Recipe, objective: str, run: LearnOptions
) -> Routing:
    """Choose the scaling of the routers' rows, then the width of their hidden layer.

    Small indexes are learned from a sample. A scaling is judged by one repetition, which says how
    well routers learn with it. A width is judged by the ranker and near rows together with the
    routers: alone, wider routers are nearly always better, and together it often makes no
    difference.

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
    sample, trials = _Sample(rows, labels, objective, run), Trials()
    scaling = _choose_scaling(sample, np.sort(mixed[:_ROWS]), resolved, trials)
    if recipe.hidden == RECIPES.get(recipe.name, recipe).hidden:
        resolved = _choose_width(sample, mixed, scaling, resolved, trials)
    return Routing(scaling, resolved, trials)


class _Sample(NamedTuple):
    """Rows to try something on, and how that is run."""

    rows: Rows
    labels: Sparse
    objective: str
    run: LearnOptions

    def take(self, chosen: NDArray[np.int64]) -> _Sample:
        """Return the chosen rows."""
        return self._replace(rows=self.rows[chosen], labels=self.labels[chosen])

    def learn(
        self, scaling: Scaling, recipe: Recipe, split: Split | None = None
    ) -> tuple[LabelProblem, LabelLayout]:
        """Learn a small index, without progress bars or checkpoints."""
        made = make_label_problem(self.rows, self.labels, recipe, scaling=scaling, split=split)
        quiet = LearnOptions(threads=self.run.threads, device=self.run.device)
        counts = np.bincount(self.labels.indices, minlength=self.labels.shape[1])
        return made, assemble_labels(learn(made.problem, recipe, quiet), counts)


def _choose_scaling(
    sample: _Sample, chosen: NDArray[np.int64], recipe: Recipe, trials: Trials
) -> Scaling:
    """Return the scaling with which one repetition is most precise."""
    scalings = list_scalings(sample.rows)
    if len(scalings) == 1:
        return scalings[0]
    small = dataclasses.replace(recipe, repetitions=1, epochs=min(recipe.epochs, _EPOCHS))
    few, qualities = sample.take(chosen), []
    for scaling in scalings:
        made, layout = few.learn(scaling, small)
        held = made.split.held
        routed = as_sparse(hash_features(scaling.apply(few.rows[held]), recipe))
        k = min(_BEST, few.labels.shape[1])
        found = Predictor(layout).predict(routed, routed, k, LabelParameters())[1]
        qualities.append(mean_precision(found, few.labels[held]))
        trials.note("routing", scaling.name, qualities[-1])
    return scalings[int(np.argmax(np.array(qualities) >= max(qualities) - _TIE))]


def _choose_width(
    sample: _Sample, mixed: NDArray[np.int64], scaling: Scaling, recipe: Recipe, trials: Trials
) -> Recipe:
    """Return the recipe with the width of the best small index. Only a clear gain changes it."""
    train, held = min(_ROWS, len(mixed) // _SHARE), min(_MEASURED, len(mixed) // _SHARE)
    few = sample.take(mixed[: train + held])
    split = Split(np.arange(train), np.arange(train, train + held))
    epochs, qualities = min(recipe.epochs, _WIDTH_EPOCHS), {}
    for times in _WIDTHS:
        width = max(1, int(times * recipe.hidden))
        small = dataclasses.replace(recipe, hidden=width, epochs=epochs)
        made, layout = few.learn(scaling, small, split)
        quality = measure_sources(
            layout, few.rows, few.labels, made, small, few.objective, few.run.thread_count
        )
        trials.note("hidden", width, quality)
        qualities[width] = quality
    best = max(qualities, key=lambda width: qualities[width])
    clear = qualities[best] > _CLEAR * qualities[recipe.hidden]
    return dataclasses.replace(recipe, hidden=best) if clear else recipe
