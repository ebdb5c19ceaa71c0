"""Algorithm 1: learn routers and partitions. The only package that imports torch.

On a CPU, kernels learn, and torch is not needed.
"""

from __future__ import annotations

from typing import Any

from irli.base.recipe import Recipe
from irli.learning.devices import check_device as check_device
from irli.learning.neighbors import near_neighbors as near_neighbors
from irli.learning.options import LearnOptions
from irli.learning.problem import Problem
from irli.learning.repetition import Repetition


def learn(
    problem: Problem,
    recipe: Recipe,
    options: LearnOptions | None = None,
    start: list[Repetition] | None = None,
) -> list[Repetition]:
    """Learn R repetitions of a problem. Each is a router and its partition.

    Parameters
    ----------
    recipe : Recipe
        Must be resolved for the problem.
    start : list of Repetition, optional
        Repetitions that learning continues from, instead of starting from scratch.
    """
    from irli.learning import runs

    options = options or LearnOptions()
    check_device(options.device, recipe.mixed_precision)
    return runs.learn(problem, recipe, options, start)


def load_neighbors() -> Any:
    """Import what finds exact neighbours by torch."""
    from irli.learning.torch_neighbors import torch_neighbors

    return torch_neighbors
