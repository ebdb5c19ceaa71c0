"""The names and aliases of the distance metrics, their meaning, and the distance of padding.

To add a metric: name it here, define in `irli.engine.metric` which distance kernels compute for it
(`compute_distance` in native/search.inl), and in `irli.engine.exact` how exact neighbours are
found.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.checks import check_choice

METRICS = ("l2", "ip", "cosine")
MEANING = {  # of the distances that a search returns
    "l2": "squared distances, smallest first",
    "ip": "inner products, largest first",
    "cosine": "1 - cos, smallest first",
}
# Names that people type, and names in the files of ann-benchmarks.
ALIASES = {
    "euclidean": "l2",
    "dot": "ip",
    "inner_product": "ip",
    "angular": "cosine",
}


def resolve_metric(metric: Any, *, owner: str = "") -> str:
    """Return irli's name of a metric, which may be given by an alias.

    Examples
    --------
    >>> resolve_metric("euclidean"), resolve_metric("inner_product")
    ('l2', 'ip')
    """
    name = check_choice("metric", metric, (*METRICS, *ALIASES), owner=owner)
    return ALIASES.get(name, name)


def worst_distance(metric: str) -> float:
    """Return the distance of padding: worse than that of any item."""
    return -math.inf if metric == "ip" else math.inf


def to_similarities(distances: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Return how similar items are: larger is nearer, whatever the metric.

    Examples
    --------
    >>> to_similarities(np.array([0.25, np.inf], dtype=np.float32), "cosine")
    array([0.75, -inf], dtype=float32)
    """
    if metric == "ip":
        return distances
    return 1 - distances if metric == "cosine" else -distances
