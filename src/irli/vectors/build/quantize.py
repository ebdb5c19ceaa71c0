"""The form in which routers serve: 8-bit weights where rounding them costs little, else floats.

8 bits are a quarter of the memory to read. But where items are dense in some places and sparse in
others, a step of 8 bits may be wider than the dense places.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.engine.router import Router
from irli.engine.vector_layout import VectorLayout
from irli.vectors.build.held_out import HeldOut
from irli.vectors.build.thresholds import count_scanned, find_homes, find_threshold, find_truth
from irli.vectors.searcher import Searcher

log = get_logger(__name__)

_SAMPLE = 4096  # items that set the scales of features and weights before rounding
_RECALL = 0.95  # at which both forms are compared
_DEARER = 1.1  # times the entries that rounded routers may scan


def choose_form(
    routers: list[Router],
    recipe: Recipe,
    make_layout: Callable[[list[Router]], VectorLayout],
    metric: str,
    held: HeldOut,
) -> list[Router]:
    """Return the routers in the form of the recipe, or as they are if rounding costs too much."""
    if recipe.scoring == "full" or routers[0].bytes.size:
        return routers  # they have the form already
    layout = make_layout(routers)
    sample = _take_sample(layout.vectors, held)
    rounded = [router.to_int8(sample) for router in routers]
    homes, truth = find_homes(layout), find_truth(layout, metric, held)

    def scan(searcher: Searcher) -> float:
        return count_scanned(searcher, held, find_threshold(searcher, homes, held, truth, _RECALL))

    before, after = scan(Searcher(layout)), scan(Searcher(make_layout(rounded)))
    log.info("routers: %.0f entries for recall %.2f, %.0f in 8 bits", before, _RECALL, after)
    return rounded if after <= _DEARER * before else routers


def _take_sample(vectors: NDArray[np.float32], held: HeldOut) -> NDArray[np.float32]:
    """Return typical queries: the held-out ones, and some of the items."""
    items = np.asarray(vectors[:: max(1, len(vectors) // _SAMPLE)])
    return np.concatenate([held.queries, items])
