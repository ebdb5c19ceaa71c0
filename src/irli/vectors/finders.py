"""What finds the neighbours that training needs: all cores, a GPU, or an index of the items."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.progress import Progress
from irli.base.recipe import Recipe
from irli.learning import load_neighbors
from irli.vectors.build.problem import FindNeighbors

_BLOCK = 65_536  # queries searched at a time
_ASKED = 500  # of the queries, to tune the index with


def choose_finder(recipe: Recipe, device: str) -> FindNeighbors | None:
    """Return what finds neighbours for a recipe and a device, or None for all cores."""
    if recipe.neighbor_recall < 1:
        return partial(find_by_index, recall=recipe.neighbor_recall)
    if device != "cpu":
        found: FindNeighbors = partial(load_neighbors(), device=device)
        return found
    return None


def find_by_index(
    queries: NDArray[np.float32],
    base: NDArray[np.float32],
    k: int,
    metric: str,
    *,
    rows: NDArray[np.int64],
    out: NDArray[Any],
    threads: int | None = None,
    progress: Progress = False,
    recall: float,
) -> NDArray[Any]:
    """Find neighbours as `exact_neighbors` does, by an index of the items, with about this recall.

    A query that is an item is not among its own neighbours. Rows that find fewer are filled up
    with the first that they found.
    """
    from irli.vectors.index import VectorIndex

    index = VectorIndex(metric, recipe="default").fit(base, threads=threads, progress=progress)
    some = np.sort(np.random.default_rng(0).permutation(len(queries))[:_ASKED])
    index.tune(recall, k, queries=np.array(queries[some]))
    for start in range(0, len(queries), _BLOCK):
        part = slice(start, start + _BLOCK)
        wide = min(k + 1, len(base))
        found = index.search(np.array(queries[part]), wide, threads=threads).ids
        own = found == rows[part, None]
        order = np.argsort(own | (found < 0), axis=1, kind="stable")[:, :k]
        near = np.take_along_axis(np.where(own, -1, found), order, axis=1)
        out[part, : near.shape[1]] = np.where(near < 0, near[:, :1], near)
    return out
