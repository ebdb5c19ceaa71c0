"""What finds the neighbours that training needs: clusters of the items, a GPU, or all cores."""

from __future__ import annotations

from functools import partial

from irli.base.recipe import Recipe
from irli.learning import load_neighbors, near_neighbors
from irli.learning.devices import CPU
from irli.vectors.build.problem import FindNeighbors


def choose_finder(recipe: Recipe, device: str) -> FindNeighbors | None:
    """Return what finds neighbours for a recipe and a device, or None for all cores."""
    if recipe.neighbor_recall < 1:
        return partial(near_neighbors, recall=recipe.neighbor_recall)
    if device != CPU:
        found: FindNeighbors = partial(load_neighbors(), device=device)
        return found
    return None
