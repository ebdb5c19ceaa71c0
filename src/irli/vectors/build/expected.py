"""About how long the phases of a fit take, for its progress bar: only the ratios have to be right.

The constants are seconds on one core of a server with AVX-512.
"""

from __future__ import annotations

from irli.base.recipe import Recipe
from irli.learning.neighbors import count_compared
from irli.learning.sizes import KMEANS_ITERATIONS, count_drawn, count_linear, count_repartitions

_COMPARED, _PRODUCT = 2e-11, 1.1e-11  # a multiplication of neighbours, and of learning
_PASSES, _BACKWARD = 2, 3  # of k-means, to even clusters out too; of training, beside scoring
_RANKED = 1e-5  # to rank the buckets of an item
_CODED = 1.5e-7  # to encode a number of an item
_TUNED, _TRUTH = 1.5, 1000  # seconds; queries whose neighbours are looked for

PHASES = ("neighbours", "learning", "codes", "tuning")


def expect_seconds(items: int, dim: int, queries: int, recipe: Recipe) -> dict[str, float]:
    """Return the phases of a fit, and the seconds that each takes.

    Examples
    --------
    >>> expected = expect_seconds(69_000, 384, 0, Recipe().resolve(69_000, 384))
    >>> max(expected, key=lambda phase: expected[phase])
    'learning'
    """
    points = min(items, recipe.training_points) + queries
    pairs = count_compared(points, items, recipe.neighbor_recall) + _TRUTH * items
    width = recipe.hidden + count_linear(dim, recipe)
    score = width * (dim + recipe.buckets)
    products = _PASSES * KMEANS_ITERATIONS * items * recipe.buckets * min(dim, 96)
    products += recipe.epochs * _BACKWARD * count_drawn(points, recipe) * score
    moves = 1 + count_repartitions(recipe)
    products += moves * (items + queries) * score
    learning = products * _PRODUCT + moves * 2 * items * _RANKED
    seconds = (
        pairs * dim * _COMPARED,
        recipe.repetitions * learning,
        items * dim * _CODED,
        _TUNED,
    )
    return dict(zip(PHASES, seconds, strict=True))
