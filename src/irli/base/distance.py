"""The names and aliases of the distance metrics, and the distance that stands for padding.

To add a metric: name it here, define in `irli.engine.metric` which distance kernels compute for it
(`compute_distance` in native/search.inl), and in `irli.engine.exact` how exact neighbours are
found.
"""

from __future__ import annotations

import math
from typing import Any

from irli.base.checks import check_choice

METRICS = ("l2", "ip", "cosine")
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
