"""Start from an earlier index: its routers, and its partitions of the items that are still there.

Items that both have stay in their buckets. New ones go where the routers send them. Learning goes
on from there, and needs a small part of the epochs and of the training queries.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from irli.base.ids import Ids, TextIds
from irli.base.logs import get_logger
from irli.base.memory import release_pages
from irli.base.recipe import AUTO, Recipe
from irli.engine.router import ARRAYS, unpack
from irli.engine.vector_layout import VectorLayout
from irli.errors import InvalidParameter
from irli.learning.initial import limit_load
from irli.learning.partition import Partition
from irli.learning.repetition import Repetition
from irli.vectors.contents import VectorContents

log = get_logger(__name__)

_BLOCK = 16_384  # vectors compared at a time
_EPOCHS, _POINTS, _RATE = 2, 0.2, 0.2  # epochs; of the training points, and of the learning rate
_FEWEST_POINTS = 10_000
_SAME = ("repetitions", "buckets", "hidden", "router", "standardize", "loss")


def choose_recipe(given: Recipe, earlier: Recipe) -> Recipe:
    """Return the recipe to go on with: the earlier one unless another one is given.

    What the data decides stays as it was.
    """
    if earlier.name == "exact":
        raise InvalidParameter(
            "The 'start' parameter of fit must be an index that has learned. Got one that compares "
            "all items. Leave it out."
        )
    if given.name == AUTO:
        return dataclasses.replace(earlier, seed=given.seed)
    filled = {
        name: getattr(earlier, name)
        for name in ("buckets", "choices", "pieces", "repartition_every")
        if getattr(given, name) is None
    }
    given = dataclasses.replace(given, **filled)
    for name in _SAME:
        ours, theirs = getattr(given, name), getattr(earlier, name)
        if ours != theirs:
            raise InvalidParameter(
                f"The '{name}' parameter of the recipe must be {theirs!r}, as in the index to "
                f"start from. Got {ours!r} instead. Leave it out, or fit without start."
            )
    return given


def shorten(recipe: Recipe, items: int) -> Recipe:
    """Return the recipe by which an index learns on. No item that is known moves."""
    points = min(items, recipe.training_points)
    return dataclasses.replace(
        recipe,
        epochs=min(_EPOCHS, recipe.epochs),
        repartition_every=max(_EPOCHS, recipe.repartition_every),
        training_points=max(_FEWEST_POINTS, int(_POINTS * points)),
        learning_rate=_RATE * recipe.learning_rate,
    )


def start_from(
    earlier: VectorContents,
    vectors: NDArray[np.float32],
    named: Ids,
    metric: str,
    recipe: Recipe,
) -> list[Repetition]:
    """Return the repetitions of an earlier index, for other items.

    Parameters
    ----------
    vectors : float32 array of shape (N, d)
        Prepared for the metric.
    named : Ids
        The ids of the items.
    recipe : Recipe
        What `choose_recipe` returned, resolved.
    """
    layout = earlier.layout
    _check("metric", metric, earlier.metric)
    _check("number of columns", vectors.shape[1], layout.vectors.shape[1])
    rows = _find_same(earlier, vectors, named)
    log.info("start: %d of %d items are known", np.count_nonzero(rows >= 0), len(rows))
    tensors = {name: value for name, value in layout._asdict().items() if name in ARRAYS}
    most = limit_load(len(vectors), recipe)
    width, repetitions = recipe.buckets_per_item, []
    for number, router in enumerate(unpack(tensors, layout.linear)):
        carried = _carry_over(layout, number, rows, width, most)
        repetitions.append(Repetition(router, Partition(router.buckets, carried), []))
    return repetitions


def _check(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise InvalidParameter(
            f"The 'start' parameter of fit must be an index of the same {what}, {ours!r}. Got one "
            f"of {theirs!r} instead. Leave it out."
        )


def _find_same(
    earlier: VectorContents, vectors: NDArray[np.float32], named: Ids
) -> NDArray[np.int64]:
    """Return the row of each item (N,) in the earlier index, or -1 if its numbers were others."""
    strings = isinstance(named, TextIds)
    if strings != (earlier.strings is not None):
        return np.full(len(vectors), -1)
    known = Ids(earlier.ids) if earlier.strings is None else TextIds(earlier.strings)
    rows = known.find(named.all())
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        before = earlier.layout.vectors[np.maximum(part, 0)]
        part[(before != vectors[start : start + _BLOCK]).any(axis=1)] = -1
        release_pages(vectors)
    release_pages(earlier.layout.vectors)
    return rows


def _carry_over(
    layout: VectorLayout, repetition: int, rows: NDArray[np.int64], width: int, most: int
) -> NDArray[np.int32]:
    """Return the buckets (N, width) of the items that were at `rows`, and -1 for those at -1.

    Also -1 for items that would fill a bucket with more than `most`, and for those that got one
    more bucket to find themselves.
    """
    offsets = layout.offsets[repetition]
    items = layout.items[offsets[0] : offsets[-1]]
    order = np.argsort(items, kind="stable")
    bucket = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))[order]
    item = items[order]
    column = np.arange(len(item)) - np.searchsorted(item, item)
    before = np.full((len(layout.vectors), width), -1, dtype=np.int32)
    few = np.bincount(item, minlength=len(before))[item] <= width
    before[item[few], column[few]] = bucket[few]
    carried = np.where(rows[:, None] >= 0, before[rows], np.int32(-1))
    flat = carried.ravel()
    filled = np.argsort(flat, kind="stable")
    place = np.arange(len(flat)) - np.searchsorted(flat[filled], flat[filled])
    carried[filled[(place >= most) & (flat[filled] >= 0)] // width] = -1
    return carried
