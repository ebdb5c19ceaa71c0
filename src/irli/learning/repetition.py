"""`Repetition`: a learned router with its partition and history, and groups of repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from irli.base.recipe import Recipe
from irli.engine.router import Router
from irli.learning.partition import Partition

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Repetition:
    """A router, the partition that it was last trained on, and the history of its learning."""

    router: Router
    partition: Partition
    history: History


def group_repetitions(recipe: Recipe) -> list[list[int]]:
    """Return the groups of repetitions that learn together: all if they share a trunk, or one each.

    Examples
    --------
    >>> group_repetitions(Recipe(repetitions=2))
    [[0], [1]]
    """
    numbers = list(range(recipe.repetitions))
    return [numbers] if recipe.trunk == "shared" else [[number] for number in numbers]


def join_histories(repetitions: list[Repetition]) -> History:
    """Return the histories of all repetitions, one after the other."""
    return [entry for repetition in repetitions for entry in repetition.history]
