"""One repetition: a router and its partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from irli.base.recipe import Recipe
from irli.engine.router import Router
from irli.learning.partition import Partition

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Repetition:
    """One router, the partition that it was last trained on, and how learning went."""

    router: Router
    partition: Partition
    history: History


def group_repetitions(recipe: Recipe) -> list[list[int]]:
    """Return the repetitions that are learned together: all on a shared trunk, or each by itself.

    Examples
    --------
    >>> group_repetitions(Recipe(repetitions=2))
    [[0], [1]]
    """
    numbers = list(range(recipe.repetitions))
    return [numbers] if recipe.trunk == "shared" else [[number] for number in numbers]


def join_histories(repetitions: list[Repetition]) -> History:
    """Return the rounds of all repetitions, one after the other."""
    return [entry for repetition in repetitions for entry in repetition.history]
