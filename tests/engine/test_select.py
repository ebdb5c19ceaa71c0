"""Selection against `sorted`, with ties, infinities and what is not a number."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.engine.select import (
    find_at_least,
    find_largest,
    insert_best,
    keep_best,
    kth_largest,
    kth_largest_by_bins,
    sort_down,
)

SEEDS = st.integers(0, 2**32 - 1)
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e-45, 3e38], dtype=np.float32)
# Few different values, so that there are many ties; and any float, the infinite ones too.
TIES = st.integers(-3, 3).map(float)
FLOATS = st.one_of(TIES, st.floats(width=32, allow_nan=False))


def with_odd_values(n: int, seed: int) -> NDArray[np.float32]:
    """Some floats with many ties, infinities and what is no number."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, size=n).astype(np.float32)
    odd = rng.random(n) < 0.2
    values[odd] = rng.choice(ODD, size=odd.sum())
    return values


def as_bits(values: Any) -> list[int]:
    """Values that compare like themselves, even if they are not numbers."""
    return sorted(np.asarray(values, dtype=np.float32).view(np.int32).tolist())


# --- the k-th largest ------------------------------------------------------------------------


def check_kth(values: NDArray[Any], k: int) -> None:
    """The right value, the larger ones before it, and nothing lost."""
    right = sorted(values.tolist(), reverse=True)
    assert kth_largest(values, k) == right[k - 1]
    assert sorted(values[:k].tolist(), reverse=True) == right[:k]
    assert sorted(values.tolist(), reverse=True) == right


@settings(max_examples=100, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=80), st.data())
def test_kth_largest_of_floats(values: list[float], data: st.DataObject) -> None:
    check_kth(np.array(values, dtype=np.float32), data.draw(st.integers(1, len(values))))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-5, 2**40), min_size=1, max_size=80), st.data())
def test_kth_largest_of_keys(values: list[int], data: st.DataObject) -> None:
    check_kth(np.array(values, dtype=np.int64), data.draw(st.integers(1, len(values))))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), SEEDS, st.data())
def test_kth_largest_among_what_is_not_a_number(n: int, seed: int, data: st.DataObject) -> None:
    """Which value it is may be anything, but it is one of them, and all are still there."""
    values = with_odd_values(n, seed)
    values[data.draw(st.integers(0, n - 1))] = np.nan
    before = as_bits(values)
    found = kth_largest(values, data.draw(st.integers(1, n)))
    assert as_bits([found])[0] in before
    assert as_bits(values) == before


@settings(max_examples=100, deadline=None)
@given(
    st.lists(FLOATS, min_size=1, max_size=300),
    st.sampled_from([1.0, 1e-6, 1e6]),
    st.sampled_from([1, 2, 128]),
    st.data(),
)
def test_kth_largest_by_bins(
    values: list[float], spread: float, bins: int, data: st.DataObject
) -> None:
    with np.errstate(over="ignore", under="ignore"):
        some = np.array(values, dtype=np.float32) * np.float32(spread)
    before = some.copy()
    k = data.draw(st.integers(1, len(some)))
    room = np.empty(bins, dtype=np.int32), np.empty(len(some), dtype=np.float32)
    assert kth_largest_by_bins(some, k, *room) == np.sort(some)[-k]
    np.testing.assert_array_equal(some, before)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), SEEDS, st.data())
def test_kth_largest_by_bins_among_what_is_not_a_number(
    n: int, seed: int, data: st.DataObject
) -> None:
    values = with_odd_values(n, seed)
    values[data.draw(st.integers(0, n - 1))] = np.nan
    before = values.copy()
    room = np.full(17, 9, dtype=np.int32), np.full(n + 2, 7, dtype=np.float32)
    k = data.draw(st.integers(1, n))
    found = kth_largest_by_bins(values, k, room[0][:16], room[1][:n])
    assert as_bits([found])[0] in as_bits(before)
    np.testing.assert_array_equal(values, before)
    assert room[0][16] == 9
    assert (room[1][n:] == 7).all()


# --- the k best ------------------------------------------------------------------------------


@numba.njit
def keep(places: Any, count: int, keep: int, values: Any, order: Any) -> int:
    return keep_best(places, count, keep, values, order)


@settings(max_examples=100, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=60), st.integers(1, 70), SEEDS, st.data())
def test_keep_best(values: list[float], wanted: int, seed: int, data: st.DataObject) -> None:
    """The best come to the front in their order, of equals the first; the rest is not touched."""
    some = np.array(values, dtype=np.float32)
    count = data.draw(st.integers(0, len(some)))
    places = np.random.default_rng(seed).permutation(len(some)).astype(np.int32)
    given, behind = places[:count].tolist(), places[count:].tolist()
    kept = keep(places, count, wanted, some, np.empty(count, dtype=np.float32))
    best = sorted(range(count), key=lambda t: (-some[given[t]], t))[:wanted]
    assert places[:kept].tolist() == [given[t] for t in sorted(best)]
    assert places[count:].tolist() == behind


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 70), SEEDS)
def test_keep_best_among_what_is_not_a_number(n: int, wanted: int, seed: int) -> None:
    values = with_odd_values(n, seed)
    places = np.random.default_rng(seed).permutation(n).astype(np.int32)
    kept = keep(places, n, wanted, values, np.empty(n, dtype=np.float32))
    assert 0 < kept <= n
    assert len(set(places[:kept].tolist())) == kept
    assert (wanted < n) or kept == n


@numba.njit
def insert(values: Any, ids: Any, count: int, value: Any, id: Any) -> int:
    return insert_best(values, ids, count, value, id)


def insert_all(pairs: list[tuple[float, int]], room: int) -> list[tuple[float, int]]:
    values, ids = np.full(room, 9, dtype=np.float32), np.full(room, -1, dtype=np.int64)
    count = 0
    for value, id in pairs:
        count = insert(values, ids, count, np.float32(value), id)
    return list(zip(values[:count].tolist(), ids[:count].tolist(), strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(FLOATS, st.integers(0, 30)), max_size=50), st.integers(1, 20))
def test_insert_best(pairs: list[tuple[float, int]], room: int) -> None:
    """The best so far, best first; of equal values the smaller id."""
    right = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:room]
    assert insert_all(pairs, room) == right


@pytest.mark.parametrize("room", [1, 3])
def test_insert_best_puts_nothing_behind_what_is_not_a_number(room: int) -> None:
    """It takes a free place, but never that of a number."""
    numbers = [(float(-t), t) for t in range(room)]
    assert insert_all([*numbers, (np.nan, 99)], room) == numbers
    found = insert_all([*numbers[:-1], (np.nan, 99)], room)
    assert found[:-1] == numbers[:-1]
    assert np.isnan(found[-1][0])
    assert found[-1][1] == 99


# --- sorting and comparing -------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 900), SEEDS)
def test_sort_down(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-50, 50, size=count + 3).astype(np.float32)
    others = np.arange(count + 3, dtype=np.int32)
    before = values.copy()
    sort_down(values, others, count)
    np.testing.assert_array_equal(values[:count], np.sort(before[:count])[::-1])
    np.testing.assert_array_equal(values, before[others])
    assert (others[count:] == np.arange(count, count + 3)).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 140), SEEDS, st.one_of(TIES, st.sampled_from(ODD.tolist())))
def test_find_at_least(n: int, seed: int, cut: float) -> None:
    values = with_odd_values(n, seed)
    places = np.full(n + 1, -1, dtype=np.int32)
    count = find_at_least(values, np.float32(cut), places)
    right = np.flatnonzero(~(values < np.float32(cut)))  # what is no number always counts
    np.testing.assert_array_equal(places[:count], right)
    assert (places[count:] == -1).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 140), SEEDS)
def test_find_largest(n: int, seed: int) -> None:
    values = with_odd_values(n, seed)
    numbers = values[~np.isnan(values)]
    assert find_largest(values) == (numbers.max() if len(numbers) else -np.inf)
