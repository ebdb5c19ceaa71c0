"""choose_routing: how rows are scaled for the routers, by small trials on held-out rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.base.types import Rows, Sparse
from irli.labels.assemble import assemble_labels
from irli.labels.features import as_sparse, hash_features
from irli.labels.objective import mean_precision
from irli.labels.parameters import LabelParameters
from irli.labels.predictor import Predictor
from irli.labels.problem import make_label_problem
from irli.labels.scaling import GIVEN, LEAST_ROWS, Scaling, list_scalings
from irli.learning import learn
from irli.learning.options import LearnOptions

log = get_logger(__name__)

_ROWS = 5_000  # rows of a trial, at most
_EPOCHS = 2  # epochs of a trial, at most
_TIE = 0.005  # precision within which rows stay as they are


class Routing(NamedTuple):
    """The scaling of the routers' rows, and what was tried, for the history."""

    scaling: Scaling
    trials: list[dict[str, Any]]


_AS_GIVEN = Routing(GIVEN, [])


def choose_routing(rows: Rows, labels: Sparse, recipe: Recipe, run: LearnOptions) -> Routing:
    """Return the scaling with which one repetition, learned from a sample, is most precise.

    Parameters
    ----------
    rows : array or CSR of shape (n, d)
    labels : CSR of shape (n, L)
    recipe : Recipe
        Resolved for the labels.
    """
    useful = np.flatnonzero(np.diff(labels.indptr))
    if not recipe.standardize or len(useful) < LEAST_ROWS:  # the paper takes rows as they are
        return _AS_GIVEN
    scalings = list_scalings(rows)
    if len(scalings) == 1:
        return _AS_GIVEN
    rng = np.random.default_rng([recipe.seed, 0x5C])
    chosen = np.sort(rng.permutation(useful)[:_ROWS])
    small = dataclasses.replace(recipe, repetitions=1, epochs=min(recipe.epochs, _EPOCHS))
    quiet = LearnOptions(threads=run.threads, device=run.device)
    qualities = []
    for scaling in scalings:
        made = make_label_problem(rows[chosen], labels[chosen], small, scaling=scaling)
        learned = learn(made.problem, small, quiet)
        layout = assemble_labels(learned, np.bincount(labels.indices, minlength=labels.shape[1]))
        held = chosen[made.split.held]
        routed = as_sparse(hash_features(scaling.apply(rows[held]), recipe))
        k = min(5, labels.shape[1])
        found = Predictor(layout).predict(routed, routed, k, LabelParameters())[1]
        qualities.append(mean_precision(found, labels[held]))
        log.info("rows %s: precision of a small index %.4f", scaling.name, qualities[-1])
    trials = [
        {"choice": "routing", "tried": scaling.name, "quality": quality}
        for scaling, quality in zip(scalings, qualities, strict=True)
    ]
    best = int(np.argmax(np.array(qualities) >= max(qualities) - _TIE))
    return Routing(scalings[best], trials)
