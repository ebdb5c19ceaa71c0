"""Placing items: against the rules in plain Python, and nothing out of bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli._native import place_bounded, place_least_loaded

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5), SEEDS)
def test_the_least_loaded_of_the_best(items: int, buckets: int, choices: int, seed: int) -> None:
    """Of equally loaded buckets, the best one."""
    rng = np.random.default_rng(seed)
    best = rng.integers(-1, buckets, size=(items, choices)).astype(np.int32)
    best[:, 0] = np.maximum(best[:, 0], 0)
    loads, chosen, order = (
        rng.integers(3, size=buckets),
        np.zeros(items, "i4"),
        rng.permutation(items),
    )
    right_loads, right = loads.copy(), np.zeros(items, dtype=np.int32)
    for item in order:
        free = [bucket for bucket in best[item] if bucket >= 0]
        right[item] = min(free, key=lambda bucket: right_loads[bucket])
        right_loads[right[item]] += 1
    place_least_loaded(order, best, loads, chosen)
    np.testing.assert_array_equal(chosen, right)
    np.testing.assert_array_equal(loads, right_loads)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 5), st.integers(0, 9), SEEDS)
def test_the_best_with_room(items: int, buckets: int, choices: int, limit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    best = rng.integers(-1, buckets, size=(items, choices)).astype(np.int32)
    taken = rng.integers(-1, buckets, size=items).astype(np.int32)
    order = rng.permutation(items)[: items // 2 + 1]
    rows = rng.permutation(items)[: len(order)]
    loads, chosen = rng.integers(3, size=buckets), np.full(items, -1, dtype=np.int32)
    right_loads, right = loads.copy(), chosen.copy()
    for item, row in zip(order, rows, strict=True):
        for bucket in best[row]:
            if bucket >= 0 and bucket != taken[item] and right_loads[bucket] < limit:
                right[item] = bucket
                right_loads[bucket] += 1
                break
    place_bounded(order, rows, best, limit, loads, taken, chosen)
    np.testing.assert_array_equal(chosen, right)
    np.testing.assert_array_equal(loads, right_loads)


@pytest.mark.parametrize("value", [-1, 3, 1 << 20])
@pytest.mark.parametrize("name", ["order", "rows", "best"])
def test_numbers_out_of_bounds_are_refused(name: str, value: int) -> None:
    order, rows, best = np.arange(3), np.arange(3), np.zeros((3, 2), dtype=np.int32)
    loads, chosen = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32)
    {"order": order, "rows": rows, "best": best[0]}[name][0] = value
    if not (name == "best" and value == -1):  # a padded row has no bucket with room
        with pytest.raises(ValueError, match="out of bounds"):
            place_bounded(order, rows, best, 5, loads, np.full(3, -1, "i4"), chosen)
    if name != "rows":
        with pytest.raises(ValueError, match="out of bounds"):
            place_least_loaded(order, best, loads, chosen)


def test_wrong_arrays_are_refused() -> None:
    order, best = np.arange(3), np.zeros((3, 2), dtype=np.int32)
    loads, chosen = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32)
    for wrong in ((order, best[:2], loads, chosen), (order, best[:, :0].copy(), loads, chosen)):
        with pytest.raises(ValueError, match="'best' must have"):
            place_least_loaded(*wrong)
    for rows, taken in ((order[:2], chosen), (order, chosen[:2])):
        with pytest.raises(ValueError, match="must have the shape"):
            place_bounded(order, rows, best, 5, loads, taken, chosen)
    with pytest.raises(TypeError):
        place_least_loaded(order, best, loads.astype(np.int32), chosen)  # type: ignore[arg-type]
