"""Metrics by name: what users call them, and what a distance looks like in each.

To add one: name it here, say in `irli.engine.metric` how kernels compute it, and in
`irli.engine.exact` how the truth is found.
"""

from __future__ import annotations

import math
from typing import Any

from irli.base.checks import check_choice

METRICS = ("l2", "ip", "cosine")
# What people type, and what files of ann-benchmarks say.
ALIASES = {
    "euclidean": "l2",
    "dot": "ip",
    "inner_product": "ip",
    "angular": "cosine",
}


def resolve_metric(metric: Any, *, owner: str = "") -> str:
    """Return the name of a metric that may be given by an alias.

    Examples
    --------
    >>> resolve_metric("euclidean"), resolve_metric("inner_product")
    ('l2', 'ip')
    """
    name = ALIASES.get(metric, metric) if isinstance(metric, str) else metric
    return check_choice("metric", name, METRICS, owner=owner)


def worst_distance(metric: str) -> float:
    """Return the distance of padding: farther than any item."""
    return -math.inf if metric == "ip" else math.inf
