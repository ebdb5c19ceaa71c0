"""Kernels that select from one array: the k-th largest, the k best, all above a bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from irli.engine.jit import inner, kernel
from irli.engine.simd import LANES, NARROW, lowest_bit, reaching

_BIT = np.uint32(1)


@kernel
def kth_largest(values: Any, k: int) -> Any:
    """Return the k-th largest of `values` (k >= 1) by Hoare's selection.

    `values` is reordered: the k largest come first.
    """
    low, high, want = 0, len(values) - 1, k - 1
    while low < high:
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if want <= j:
            high = j
        elif want >= i:
            low = i
        else:
            break
    return values[want]


@kernel
def kth_largest_by_bins(values: Any, k: int, bins: Any, order: Any) -> Any:
    """Return the k-th largest of `values` without reordering them.

    A histogram of the values finds the bin of the k-th largest, and only this bin is searched. The
    counting loop has no branch that can be mispredicted. `bins` and `order` (as long as `values`)
    are scratch memory.
    """
    low = high = values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    width = high - low
    if not 0 < width < np.inf:  # all values are equal, or some are infinite or NaN
        order[: len(values)] = values
        return kth_largest(order[: len(values)], k)
    factor, last = np.float32(len(bins) - 1) / width, np.uint32(len(bins) - 1)
    bins[:] = 0
    for value in values:
        bins[min(np.uint32((high - value) * factor), last)] += 1
    place, above = 0, 0
    while above + bins[place] < k:
        above += bins[place]
        place += 1
    inside = 0
    for value in values:
        order[inside] = value
        inside += min(np.uint32((high - value) * factor), last) == place
    return kth_largest(order[:inside], k - above)


@inner
def keep_best(places: Any, count: int, keep: int, values: Any, order: Any) -> int:
    """Move the `keep` best of the first `count` places to the front. Return how many are kept.

    The value of a place p is values[p]. Of equal values the earlier place is kept. `order` is
    scratch memory for `count` values.
    """
    if count <= keep:
        return count
    for t in range(count):
        order[t] = values[places[t]]
    cut = kth_largest(order[:count], keep)
    ties = keep
    for t in range(count):
        ties -= values[places[t]] > cut
    kept = 0
    for t in range(count):
        place = places[t]
        if values[place] > cut or (not values[place] < cut and ties > 0):
            ties -= not values[place] > cut
            places[kept] = place
            kept += 1
    return kept


@inner
def _precedes(value: Any, id: Any, other_value: Any, other_id: Any) -> bool:
    """Whether an entry comes before another: by larger value, then by smaller id."""
    if value != other_value:
        return bool(value > other_value)
    return bool(id < other_id)


@inner
def insert_best(values: Any, ids: Any, count: int, value: Any, id: Any) -> int:
    """Insert an entry into the k best so far, largest first. Return how many there are now.

    `values` and `ids` have length k and hold `count` entries.
    """
    last = len(values) - 1
    if count > last and not _precedes(value, id, values[last], ids[last]):
        return count
    place = min(count, last)
    while place > 0 and _precedes(value, id, values[place - 1], ids[place - 1]):
        values[place], ids[place] = values[place - 1], ids[place - 1]
        place -= 1
    values[place], ids[place] = value, id
    return min(count + 1, last + 1)


@kernel
def sort_down(values: Any, others: Any, count: int) -> None:
    """Sort the first `count` values, largest first, and move `others` with them.

    A shell sort, for a few hundred values at most. It allocates no memory.
    """
    for gap in (301, 132, 57, 23, 10, 4, 1):
        for i in range(gap, count):
            value, other = values[i], others[i]
            place = i
            while place >= gap and values[place - gap] < value:
                values[place], others[place] = values[place - gap], others[place - gap]
                place -= gap
            values[place], others[place] = value, other


@kernel
def find_largest(values: Any) -> Any:
    """Return the largest value. NaN is ignored."""
    best = np.full(NARROW, -np.inf, dtype=np.float32)
    whole = len(values) - len(values) % NARROW
    for low in range(0, whole, NARROW):
        for t in range(NARROW):
            value = values[low + t]
            best[t] = value if value > best[t] else best[t]
    top = np.float32(-np.inf)
    for t in range(NARROW):
        top = max(top, best[t])
    for t in range(whole, len(values)):
        top = values[t] if values[t] > top else top
    return top


@kernel
def find_at_least(values: Any, cut: Any, places: Any) -> int:
    """List the places of the values that are at least `cut`, or NaN. Return how many they are."""
    count = 0
    whole = len(values) - len(values) % LANES
    address = values.ctypes.data
    for low in range(0, whole, LANES):
        bits = reaching(address + 4 * low, cut)
        while bits != 0:
            places[count] = low + lowest_bit(bits)
            bits &= bits - _BIT
            count += 1
    for place in range(whole, len(values)):
        if not values[place] < cut:
            places[count] = place
            count += 1
    return count
