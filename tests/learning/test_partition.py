from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.learning import partition as module
from irli.learning.partition import (
    Partition,
    assign_bounded,
    assign_least_loaded,
    bucket_capacity,
)

FEW = settings(max_examples=60, deadline=None)


class Table:
    """A ranking read off a table of affinities (N, B); remembers what it was asked."""

    def __init__(self, affinity: NDArray[np.float64], pad: bool = False) -> None:
        self.affinity = affinity
        self.pad = pad  # give at most half of what is asked for, but for certain buckets
        self.asked: list[tuple[int, int]] = []  # how many, among how many

    def __call__(
        self, items: NDArray[np.int64], count: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        buckets = np.arange(self.affinity.shape[1]) if among is None else among
        self.asked.append((count, len(buckets)))
        table = self.affinity[np.ix_(items, buckets)]
        best = buckets[np.argsort(-table, axis=1, kind="stable")[:, :count]].astype(np.int32)
        if self.pad and among is None and count < len(buckets):
            best[:, (count + 1) // 2 :] = -1
        top = np.sort(table, axis=1)[:, ::-1]
        second = top[:, min(1, top.shape[1] - 1)]
        return best, (top[:, 0] - second).astype(np.float32)


@st.composite
def tables(draw: st.DrawFn) -> NDArray[np.float64]:
    items, buckets = draw(st.integers(1, 60)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    affinity = rng.random((items, buckets))
    if draw(st.booleans()):  # everyone wants the same: the hardest case for a bound
        affinity = np.tile(affinity[:1], (items, 1)) + 1e-6 * affinity
    if draw(st.booleans()):
        affinity = affinity.round(1)  # ties
    return affinity


def bounded_oracle(
    affinity: NDArray, limit: int, lead: NDArray, loads: NDArray, taken: NDArray
) -> list[int]:
    """Each item, those of the largest lead first, to the best of all buckets with room."""
    order = np.argsort(-affinity, axis=1, kind="stable")
    loads, chosen = loads.copy(), [-1] * len(affinity)
    for item in np.argsort(-lead, kind="stable"):
        for bucket in order[item]:
            if bucket != taken[item] and loads[bucket] < limit:
                loads[bucket] += 1
                chosen[item] = int(bucket)
                break
    return chosen


@FEW
@given(tables(), st.floats(1.0, 3.0), st.integers(1, 20), st.booleans())
def test_bounded_places_all_and_keeps_the_limit(
    affinity: NDArray, slack: float, choices: int, pad: bool
) -> None:
    items, buckets = affinity.shape
    choices = min(choices, buckets)
    limit = bucket_capacity(items, buckets, slack)
    loads = np.zeros(buckets, dtype=np.int64)
    chosen = assign_bounded(Table(affinity, pad), items, limit, choices, loads)
    assert ((chosen >= 0) & (chosen < buckets)).all()
    np.testing.assert_array_equal(np.bincount(chosen, minlength=buckets), loads)
    assert loads.max() <= limit


@FEW
@given(tables(), st.floats(1.0, 3.0))
def test_bounded_with_whole_rankings_is_the_plain_greedy(affinity: NDArray, slack: float) -> None:
    items, buckets = affinity.shape
    limit = bucket_capacity(items, buckets, slack)
    rank = Table(affinity)
    _, lead = rank(np.arange(items), buckets)
    empty = np.zeros(buckets, dtype=np.int64)
    nothing = np.full(items, -1)
    chosen = assign_bounded(rank, items, limit, buckets, empty.copy())
    assert chosen.tolist() == bounded_oracle(affinity, limit, lead, empty, nothing)


@FEW
@given(tables(), st.integers(1, 20), st.floats(1.0, 1.5), st.integers(0, 2**32 - 1))
def test_bounded_second_bucket(affinity: NDArray, choices: int, slack: float, seed: int) -> None:
    """`taken` is never chosen, earlier loads count, and -1 means that there was no room."""
    items, buckets = affinity.shape
    choices = min(choices, buckets)
    taken = np.random.default_rng(seed).integers(buckets, size=items).astype(np.int32)
    loads = np.bincount(taken, minlength=buckets)
    limit = max(int(loads.max()), bucket_capacity(2 * items, buckets, slack))
    chosen = assign_bounded(Table(affinity), items, limit, choices, loads, taken=taken)
    assert (chosen != taken).all()
    assert loads.max() <= limit
    placed = chosen >= 0
    together = np.concatenate([taken, chosen[placed]])
    np.testing.assert_array_equal(np.bincount(together, minlength=buckets), loads)
    for item in np.flatnonzero(~placed):  # all others are full, now and so at its turn or later
        assert (np.delete(loads, taken[item]) == limit).all()


def test_bounded_gives_everyone_the_best_when_there_is_room() -> None:
    rng = np.random.default_rng(0)
    affinity = rng.random((100, 8))
    rank = Table(affinity)
    chosen = assign_bounded(rank, 100, 100, 3, np.zeros(8, dtype=np.int64))
    np.testing.assert_array_equal(chosen, affinity.argmax(axis=1))
    assert rank.asked == [(3, 8)]  # nobody had to look further


def test_bounded_finds_planted_buckets() -> None:
    owner = np.random.default_rng(1).permutation(np.repeat(np.arange(6), 10))
    affinity = np.eye(6)[owner] + 0.01 * np.random.default_rng(2).random((60, 6))
    chosen = assign_bounded(Table(affinity), 60, 10, 1, np.zeros(6, dtype=np.int64))
    np.testing.assert_array_equal(chosen, owner)


def test_items_of_the_largest_lead_choose_first() -> None:
    # All want bucket 0, which holds one; item 2 would lose most by going elsewhere.
    affinity = np.array([[0.5, 0.4, 0.0], [0.6, 0.4, 0.1], [0.9, 0.1, 0.0]])
    chosen = assign_bounded(Table(affinity), 3, 1, 3, np.zeros(3, dtype=np.int64))
    assert chosen.tolist() == [2, 1, 0]


def test_items_that_find_all_full_ask_for_buckets_with_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 7)  # many blocks
    affinity = np.tile(np.linspace(1, 0, 50), (50, 1))  # one ranking for all, one place each
    rank = Table(affinity)
    loads = np.zeros(50, dtype=np.int64)
    chosen = assign_bounded(rank, 50, 1, 2, loads)
    assert chosen.tolist() == list(range(50))  # all leads are equal: in order
    assert rank.asked[0] == (2, 50)
    room = [among for _, among in rank.asked[1:]]
    assert room[0] == 48
    assert room == sorted(room, reverse=True)


def test_bounded_ends_where_nothing_has_room() -> None:
    affinity = np.random.default_rng(0).random((20, 4))
    chosen = assign_bounded(Table(affinity), 20, 3, 2, np.zeros(4, dtype=np.int64))
    assert (chosen >= 0).sum() == 12


@FEW
@given(tables(), st.integers(1, 20), st.integers(0, 2**32 - 1), st.booleans())
def test_least_loaded_is_the_oracle(affinity: NDArray, choices: int, seed: int, pad: bool) -> None:
    items, buckets = affinity.shape
    choices = min(choices, buckets)
    rank = Table(affinity, pad)
    chosen = assign_least_loaded(rank, items, buckets, choices, np.random.default_rng(seed))

    best, _ = rank(np.arange(items), choices)
    loads = [0] * buckets
    for item in np.random.default_rng(seed).permutation(items):
        among = [int(bucket) for bucket in best[item] if bucket >= 0]
        right = min(among, key=lambda bucket: loads[bucket])  # of equals the best
        assert chosen[item] == right
        loads[right] += 1


def test_least_loaded_of_all_buckets_is_even() -> None:
    affinity = np.random.default_rng(0).random((100, 10))
    chosen = assign_least_loaded(Table(affinity), 100, 10, 10, np.random.default_rng(0))
    assert (np.bincount(chosen, minlength=10) == 10).all()


def test_more_choices_balance_better() -> None:
    affinity = np.random.default_rng(0).random((4000, 40)) * np.linspace(0.2, 1, 40)
    spread = []
    for choices in (1, 2, 5, 10):
        chosen = assign_least_loaded(Table(affinity), 4000, 40, choices, np.random.default_rng(1))
        spread.append(np.bincount(chosen, minlength=40).std())
    assert spread == sorted(spread, reverse=True)


@pytest.mark.parametrize("choices", [2, 5, 10])
@pytest.mark.parametrize("per_bucket", [1, 20])
def test_the_largest_load_stays_below_the_bound_of_theorem_2(choices: int, per_bucket: int) -> None:
    """log(log L) / log K + 2 L / B, as the appendix has it, while L grows a hundredfold.

    Where buckets hold one item on average, one choice alone exceeds it.
    """
    above = []
    for items in (1000, 10_000, 100_000):
        buckets = items // per_bucket
        best = np.random.default_rng(items).integers(buckets, size=(items, choices))

        def rank(chosen: NDArray, count: int, among: object = None, best: NDArray = best) -> Any:
            return best[chosen, :count].astype(np.int32), np.zeros(len(chosen), np.float32)

        rng = np.random.default_rng(0)
        bound = np.log(np.log(items)) / np.log(choices) + 2 * items / buckets
        chosen = assign_least_loaded(rank, items, buckets, choices, rng)
        assert np.bincount(chosen).max() <= bound
        alone = assign_least_loaded(rank, items, buckets, 1, rng)
        above.append(np.bincount(alone).max() - bound)
    if per_bucket == 1:
        assert min(above) > 0


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    buckets, items = draw(st.integers(1, 12)), draw(st.integers(0, 40))
    per_item = draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first = rng.integers(buckets, size=(items, 1))
    second = rng.integers(-1, buckets, size=(items, 1))
    second[second == first] = -1
    columns = [first, second][:per_item]
    return Partition(buckets, np.hstack(columns).astype(np.int32))


@FEW
@given(partitions())
def test_invert(partition: Partition) -> None:
    offsets, items = partition.invert()
    assert offsets.shape == (partition.buckets + 1,)
    assert offsets[0] == 0
    assert offsets[-1] == len(items) == (partition.assignment >= 0).sum()
    np.testing.assert_array_equal(np.diff(offsets), partition.loads())
    read = {
        (bucket, int(item))
        for bucket in range(partition.buckets)
        for item in items[offsets[bucket] : offsets[bucket + 1]]
    }
    meant = {
        (int(bucket), item)
        for item, row in enumerate(partition.assignment)
        for bucket in row
        if bucket >= 0
    }
    assert read == meant
    assert len(items) == len(meant)  # each once
    for bucket in range(partition.buckets):
        inside = items[offsets[bucket] : offsets[bucket + 1]]
        assert (np.diff(inside) > 0).all()


def test_moved_share() -> None:
    old = Partition(4, np.array([[0, 1], [1, 2], [3, -1], [2, 0]], dtype=np.int32))
    new = Partition(4, np.array([[1, 0], [1, 3], [3, -1], [2, -1]], dtype=np.int32))
    assert old.moved_share(old) == 0.0
    assert new.moved_share(old) == old.moved_share(new) == 0.5  # the order in a row is no move


@FEW
@given(st.integers(1, 10_000), st.integers(1, 500), st.floats(1.0, 4.0))
def test_capacity_has_room_for_all(entries: int, buckets: int, slack: float) -> None:
    limit = bucket_capacity(entries, buckets, slack)
    assert limit == math.ceil(slack * entries / buckets)
    assert limit * buckets >= entries
