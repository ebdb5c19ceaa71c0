"""Quality measures: the recall of search results, and how even the bucket loads are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irli.base.checks import check_int
from irli.base.ids import is_item
from irli.errors import InvalidParameter

# Pairs of ids compared at a time. This limits the scratch memory to some megabytes.
_BLOCK = 1 << 22


def recall(found_ids: ArrayLike, true_ids: ArrayLike, k: int) -> float:
    """Return the share of the `k` true items that are among the first `k` found (recall k@k).

    Parameters
    ----------
    found_ids : array of shape (n_queries, at least 0)
        Search results, best first. Padding (-1, or None among strings) is never a hit, and an id
        counts once.
    true_ids : array of shape (n_queries, at least k)
        Exact answers, best first. Padding is ignored.

    Examples
    --------
    >>> recall([[1, 2, -1], [4, 5, 6]], [[1, 2, 3], [4, 9, 8]], k=3)
    0.5
    """
    found, true = _check_answers(found_ids, true_ids, k)
    wanted = is_item(true)
    total = int(wanted.sum())
    if total == 0:
        raise _only_padding_error("true_ids")
    hits = 0
    rows = max(1, _BLOCK // max(1, k * found.shape[1]))
    for start in range(0, len(true), rows):
        block = slice(start, start + rows)
        matched = (true[block, :, None] == found[block, None, :]).any(axis=2)
        hits += int((matched & wanted[block]).sum())
    return hits / total


def recall_with_ties(
    found_distances: ArrayLike, true_distances: ArrayLike, k: int, tolerance: float = 1e-3
) -> float:
    """Return the share of the first `k` results no farther than the true k-th (ann-benchmarks).

    Any item that is as near as the true k-th is a hit, even if the exact search named another one.

    Parameters
    ----------
    found_distances : array of shape (n_queries, at least 0)
        Distances, smaller is nearer (negate inner products). Padding (not finite) is never a hit.
    true_distances : array of shape (n_queries, at least k)
        Exact distances, nearest first, padded in the same way.
    tolerance : float
        A distance up to this much larger than the true k-th counts as equal.

    Examples
    --------
    >>> recall_with_ties([[0.1, 0.2, 0.2]], [[0.1, 0.2, 0.2]], k=2)
    1.0
    """
    found, true = _check_answers(found_distances, true_distances, k)
    wanted = np.isfinite(true).sum(axis=1)
    if not wanted.any():
        raise _only_padding_error("true_distances")
    farthest = np.where(np.isfinite(true), true, -np.inf).max(axis=1)
    near = np.isfinite(found) & (found <= farthest[:, None] + tolerance)
    return float(np.minimum(near.sum(axis=1), wanted).sum() / wanted.sum())


def imbalance(loads: ArrayLike) -> float:
    """Return how much more is scanned than with equal loads: B * sum(h^2) / sum(h)^2.

    1 is perfect balance.

    Examples
    --------
    >>> imbalance([2, 2, 2]), imbalance([6, 0, 0])
    (1.0, 3.0)
    """
    h = _check_loads(loads)
    total = h.sum()
    return float(h.size * (h @ h) / total**2) if total else 1.0


def load_summary(loads: ArrayLike) -> dict[str, float]:
    """Describe the loads of buckets: mean, std, max, max_over_mean, empty, imbalance.

    Examples
    --------
    >>> load_summary([1, 3])["max_over_mean"]
    1.5
    """
    h = _check_loads(loads)
    mean = float(h.mean())
    return {
        "mean": mean,
        "std": float(h.std()),
        "max": int(h.max()),
        "max_over_mean": float(h.max() / mean) if mean else 1.0,
        "empty": int((h == 0).sum()),
        "imbalance": imbalance(h),
    }


def _check_answers(found: ArrayLike, true: ArrayLike, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    k = check_int("k", k, at_least=1, owner="recall")
    f, t = np.atleast_2d(np.asarray(found)), np.atleast_2d(np.asarray(true))
    if f.ndim != 2 or t.ndim != 2 or len(f) != len(t):
        raise InvalidParameter(
            "The found and the true answers must both have one row for each query. "
            f"Got shapes {f.shape} and {t.shape} instead. Pass answers to the same queries."
        )
    if t.shape[1] < k:
        raise InvalidParameter(
            f"The true answers must have at least k = {k} columns. "
            f"Got {t.shape[1]} instead. Compute more of them or use a smaller k."
        )
    return f[:, :k], t[:, :k]


def _check_loads(loads: ArrayLike) -> NDArray[np.float64]:
    h = np.asarray(loads, dtype=np.float64).ravel()
    if h.size == 0:
        raise InvalidParameter(
            "The 'loads' parameter must hold the load of at least one bucket. "
            "Got none instead. Pass the loads of a fitted index."
        )
    return h


def _only_padding_error(name: str) -> InvalidParameter:
    return InvalidParameter(
        f"The '{name}' parameter must hold at least one true answer. "
        "Got only padding instead. Check how it was computed."
    )
