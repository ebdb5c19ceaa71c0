"""Curves of recall against speed or cost: their Pareto front, and values at a recall.

It imports only NumPy, since the peers' environment imports it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

K = 10  # answers to a query
TARGETS = (0.90, 0.95, 0.99)  # recalls that are reported
LOWEST = 0.8  # recalls below this are of no use
Point = dict[str, Any]  # the recall of one setting, and whatever else was measured


def front(points: Sequence[Point], speed: str) -> list[Point]:
    """Return the points that no other point beats in both recall and `speed`, by rising recall.

    Examples
    --------
    >>> points = [{"recall": r, "qps": q} for r, q in [(0.9, 5), (0.8, 4), (0.95, 2), (0.95, 3)]]
    >>> [(p["recall"], p["qps"]) for p in front(points, "qps")]
    [(0.9, 5), (0.95, 3)]
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (-p["recall"], -p[speed])):
        if not kept or point[speed] > kept[-1][speed]:
            kept.append(point)
    return kept[::-1]


def at(points: Sequence[Point], target: float, speed: str) -> float:
    """Return the speed at a recall, or NaN if no point reaches it.

    The logarithm of `speed` is interpolated along the front. A target below the lowest recall that
    was measured gets the speed of that point, which reaches it.

    Examples
    --------
    >>> round(at([{"recall": 0.8, "qps": 1000}, {"recall": 1.0, "qps": 10}], 0.9, "qps"))
    100
    """
    along = front(points, speed)
    found = [point["recall"] for point in along]
    if not along or target > found[-1]:
        return float("nan")
    return float(np.exp(np.interp(target, found, np.log([point[speed] for point in along]))))


def cost_at(points: Sequence[Point], target: float, cost: str) -> float:
    """Return the cost at a recall: as `at`, but less is better.

    Examples
    --------
    >>> round(cost_at([{"recall": 0.8, "work": 10}, {"recall": 1.0, "work": 1000}], 0.9, "work"))
    100
    """
    return 1 / at([{**point, "speed": 1 / point[cost]} for point in points], target, "speed")


def near(points: Sequence[Point], target: float, speed: str) -> Point | None:
    """Return the first point of the front that reaches the target."""
    return next((p for p in front(points, speed) if p["recall"] >= target), None)


def worth_timing(points: Sequence[Point], speed: str, most: int, slack: float = 0.8) -> list[Point]:
    """Choose at most `most` settings to time: near the front, and mostly near the targets.

    The rough pass is noisy, so settings within `slack` of the front stay in. The two around each
    target are kept first. Then comes whatever fills the widest gap in recall above `LOWEST`.
    """
    near_front = [p for p in points if p[speed] >= slack * at(points, p["recall"], speed)]
    near_front.sort(key=lambda p: (p["recall"], p[speed]))
    found = np.array([p["recall"] for p in near_front])
    best = [near_front.index(p) for p in front(points, speed)]
    chosen: set[int] = set()
    for target in TARGETS:
        above = [i for i in best if found[i] >= target][:1]
        below = [i for i in best if found[i] < target][-1:]
        chosen.update(above + below)
    left = {i for i in range(len(near_front)) if found[i] >= LOWEST} - chosen
    while left and len(chosen) < most:
        gap = {i: min((abs(found[i] - found[j]) for j in chosen), default=1.0) for i in left}
        chosen.add(max(left, key=lambda i: (gap[i], -i)))
        left -= chosen
    return [near_front[i] for i in sorted(chosen)]


def recall_at(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of the true ids (n, k) that were found (n, k); -1 counts as not found."""
    return float((truth[:, :, None] == found[:, None, :]).any(axis=2).mean())
