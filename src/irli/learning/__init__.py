"""Algorithm 1: learn routers and partitions. The only package that imports torch.

torch is imported when learning starts. A process that only searches never loads it.
"""

from __future__ import annotations

from typing import Any

from irli.base.recipe import Recipe
from irli.errors import InvalidParameter, MissingDependency
from irli.learning.options import LearnOptions
from irli.learning.problem import Problem
from irli.learning.repetition import Repetition
from irli.learning.threads import let_threads_sleep


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
    options = options or LearnOptions()
    learned: list[Repetition] = load_runs(options.device).learn(problem, recipe, options, start)
    return learned


def load_neighbors() -> Any:
    """Import what finds exact neighbours by torch."""
    from irli.learning.neighbors import torch_neighbors

    return torch_neighbors


def load_runs(device: str = "cpu") -> Any:
    """Import `irli.learning.runs`. Raise if torch is not installed or cannot use `device`."""
    let_threads_sleep()
    try:
        import torch

        from irli.learning import runs
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"Learning an index needs {error.name}, which is not installed. "
            "Install it with: pip install 'irli[train]'"
        ) from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidParameter(
            "The 'device' parameter of fit must be one that torch can use here. "
            f"Got '{device}' instead: {str(error).splitlines()[0].rstrip('.')}. "
            "Leave it out for the cpu."
        ) from error
    return runs
