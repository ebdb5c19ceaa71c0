"""Phase 3, quantize: routers with 8-bit weights where rounding them costs little, else floats.

8 bits are a quarter of the memory to read. But where items are dense in some places and sparse in
others, a step of 8 bits may be wider than the dense places.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irli.base.logs import get_logger
from irli.base.recipe import Recipe
from irli.engine.router import Router
from irli.vectors.build.ground_truth import GroundTruth
from irli.vectors.build.thresholds import count_scanned, find_homes, find_threshold

log = get_logger(__name__)

_SAMPLE = 4096  # items that set the scales of features and weights before rounding
_RECALL = 0.95  # at which both forms are compared
_DEARER = 1.1  # times the entries that rounded routers may scan


def quantize(
    routers: list[Router],
    recipe: Recipe,
    vectors: NDArray[np.float32],
    offsets: NDArray[np.int64],
    items: NDArray[np.int32],
    truth: GroundTruth,
) -> list[Router]:
    """Return the routers with 8-bit weights, or as they are if the recipe or the data needs that.

    Parameters
    ----------
    offsets, items : arrays of shape (R, B + 1) and (entries,)
        The buckets.
    truth : GroundTruth
        Of the held-out queries.
    """
    if recipe.scoring == "full" or routers[0].bytes.size:
        return routers  # they have the form already
    sample = np.asarray(vectors[:: max(1, len(vectors) // _SAMPLE)])
    rounded = [router.to_int8(np.concatenate([truth.queries, sample])) for router in routers]
    loads, homes = np.diff(offsets, axis=1).ravel(), find_homes(offsets, items)

    def scan(forms: list[Router]) -> float:
        def route(queries: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.concatenate([form.log_probabilities(queries) for form in forms], axis=1)

        threshold = find_threshold(
            route, truth.queries, truth.neighbors, homes, len(loads), _RECALL
        )
        return count_scanned(route, truth.queries, loads, threshold)

    before, after = scan(routers), scan(rounded)
    log.info("routers: %.0f entries for recall %.2f, %.0f in 8 bits", before, _RECALL, after)
    return rounded if after <= _DEARER * before else routers
