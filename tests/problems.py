"""Small problems to learn, and comparisons of what was learned from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from planted import clusters
from plantedlabels import labelled

from irli import Recipe
from irli.labels.build.problem import make_label_problem
from irli.learning import learn
from irli.learning.options import LearnOptions
from irli.learning.problem import Problem
from irli.learning.repetition import Repetition
from irli.vectors.build.problem import make_problem


class Task(NamedTuple):
    """A problem, and the recipe resolved for it."""

    problem: Problem
    recipe: Recipe


def points(seed: int = 0) -> NDArray[np.float32]:
    """Return 120 points in 8 clusters that touch each other."""
    return clusters(15, 8, dim=6, spread=0.5, seed=seed).points


def vector_task(recipe: Recipe, X: NDArray[np.float32] | None = None, **given: Any) -> Task:
    """Return the problem of some vectors."""
    X = points() if X is None else X
    recipe = recipe.resolve(*X.shape)
    return Task(make_problem(X, "l2", recipe, threads=1, **given).problem, recipe)


def label_task(recipe: Recipe, *, dense: bool = False, labels: int = 30) -> Task:
    """Return the problem of rows with labels."""
    X, Y = labelled(120, labels)
    recipe = recipe.resolve_for_labels(labels)
    return Task(make_label_problem(X.toarray() if dense else X, Y, recipe).problem, recipe)


def learn_task(
    task: Task, *, start: list[Repetition] | None = None, **options: Any
) -> list[Repetition]:
    """Learn on one thread, unless told otherwise."""
    return learn(*task, LearnOptions(**{"threads": 1, **options}), start)


def assert_same_repetitions(one: list[Repetition], other: list[Repetition]) -> None:
    """What was learned is the same to the last bit."""
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        for name, value in left.router._asdict().items():
            again = getattr(right.router, name)
            np.testing.assert_array_equal(value, again, err_msg=name)
            assert np.asarray(value).dtype == np.asarray(again).dtype, name
        assert left.partition.buckets == right.partition.buckets
        np.testing.assert_array_equal(left.partition.assignment, right.partition.assignment)
        assert left.history == right.history
