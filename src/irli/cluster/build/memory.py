"""The memory of a build step: what the planner predicts is what Ray is asked for."""

from __future__ import annotations

import numpy as np

from irli.base.recipe import Recipe
from irli.learning.sizes import bucket_dtype, count_kept_buckets, count_linear

_BASE, _TORCH = 150 << 20, 500 << 20  # packages, kernels and batches, without and with torch
_PAIR, _QUERY = 8, 40  # bytes of a relevant item, and of a query besides its vector
_ITEM = 24  # bytes of an item: its order, its bucket before and after


def count_step_base(device: str) -> int:
    """Return the bytes of a worker without its data. Only the kernels need no torch."""
    return _BASE if device == "cpu" else _TORCH


def count_training_queries(items: int, recipe: Recipe, given: int = 0) -> int:
    """Return how many queries training has at most, with so many `given` and those made of them.

    A learning set that is not known yet counts as large as the recipe allows.
    """
    if recipe.query_share == 1.0:
        return given or recipe.training_points
    mixed = recipe.mixed_queries if given else 0
    return min(items, recipe.training_points) + given + mixed


def count_mapped_bytes(items: int, dim: int, recipe: Recipe, given: int = 0) -> float:
    """Return the bytes of the files that training reads again and again: items, queries, pairs."""
    queries = count_training_queries(items, recipe, given)
    return 4 * dim * (items + queries) + _PAIR * queries * recipe.neighbors


def count_private_bytes(items: int, dim: int, recipe: Recipe, given: int = 0) -> float:
    """Return the memory of the largest step besides these files and that of every worker.

    That is: numbers of the queries, the best buckets of each item, weights with their gradients and
    the state of Adam, and the scores of a batch.
    """
    queries = count_training_queries(items, recipe, given)
    place = int(np.dtype(bucket_dtype(recipe.buckets)).itemsize) + 4  # a bucket and its probability
    best = count_kept_buckets(items, recipe) * place + 4 * recipe.choices
    features = count_linear(dim, recipe) + recipe.hidden
    return (
        _QUERY * queries
        + items * (best + _ITEM)
        + 16 * features * (dim + recipe.buckets)
        + 24 * recipe.batch_size * recipe.buckets
    )


def count_build_bytes(items: int, dim: int, recipe: Recipe, given: int = 0) -> float:
    """Return the memory with which the largest step of a shard's build reads nothing twice."""
    sizes = items, dim, recipe, given
    return count_mapped_bytes(*sizes) + count_private_bytes(*sizes)
