"""Fitting on from an earlier index: what it keeps, what it learns, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from planted import clusters

import irli
from irli import InvalidParameter, VectorIndex
from irli.base.ids import make_ids
from irli.cluster import ShardedIndex
from irli.learning.initial import limit_load
from irli.learning.repetition import Repetition
from irli.vectors.build.start import choose_recipe, start_from

RECIPE = irli.recipe("default", buckets=32, epochs=4, pieces=0)
MADE = clusters(n_per=66, centres=30, dim=8)
OLD = 1800  # the others of MADE are new


def fit_old(recipe: Any = RECIPE, **options: Any) -> VectorIndex:
    return VectorIndex(recipe=recipe).fit(MADE.points[:OLD], **options)


@pytest.fixture(scope="module")
def old() -> VectorIndex:
    return fit_old()


def carry_over(old: VectorIndex, vectors: NDArray[np.float32], ids: Any = None) -> list[Repetition]:
    contents = old._fitted().contents
    recipe = choose_recipe(irli.recipe("auto"), contents.recipe).resolve(*vectors.shape)
    return start_from(contents, vectors, make_ids(ids, len(vectors)), "l2", recipe)


def find_buckets(index: VectorIndex) -> list[set[int]]:
    """Return the buckets of each item in the first repetition."""
    layout = index._fitted().searcher.layout
    homes: list[set[int]] = [set() for _ in range(len(layout.vectors))]
    for bucket, (first, last) in enumerate(
        zip(layout.offsets[0], layout.offsets[0][1:], strict=False)
    ):
        for item in layout.items[first:last]:
            homes[item].add(bucket)
    return homes


def recall(index: VectorIndex, queries: NDArray[np.float32]) -> float:
    found, true = (index.search(queries, 10, exact=exact).ids for exact in (None, True))
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, true, strict=True)]))


# --- what is kept ----------------------------------------------------------------------------


def test_known_items_begin_in_their_buckets(old: VectorIndex) -> None:
    order = np.random.default_rng(0).permutation(len(MADE.points))
    [one] = carry_over(old, MADE.points[order], ids=order)
    homes = find_buckets(old)
    kept = 0
    for item, buckets in zip(order, one.partition.assignment, strict=True):
        if item < OLD and (buckets >= 0).all():
            assert set(buckets) == homes[item]
            kept += 1
        elif item >= OLD:
            assert (buckets == -1).all()
    assert kept > 0.9 * OLD  # a few had one more bucket to find themselves


def test_strings_are_ids_like_any_other() -> None:
    names = [f"item {row}" for row in range(len(MADE.points))]
    old = fit_old(ids=names[:OLD])
    [one] = carry_over(old, MADE.points[::-1].copy(), ids=names[::-1])
    kept = (one.partition.assignment >= 0).all(axis=1)
    assert kept[-OLD:].mean() > 0.9
    assert not kept[:-OLD].any()
    [one] = carry_over(old, MADE.points)  # row numbers are none of these ids
    assert (one.partition.assignment == -1).all()


def test_an_item_that_has_moved_is_a_new_one(old: VectorIndex) -> None:
    moved = MADE.points[:OLD].copy()
    moved[::2] += 0.5
    [one] = carry_over(old, moved)
    assert (one.partition.assignment[::2] == -1).all()
    assert (one.partition.assignment[1::2] >= 0).all(axis=1).mean() > 0.9


def test_no_bucket_is_too_full(old: VectorIndex) -> None:
    """Where most items are gone, those of one bucket are too many for it."""
    first, last = old._fitted().searcher.layout.offsets[0, :2]
    rows = np.sort(old._fitted().searcher.layout.items[first:last])
    rows = np.concatenate([rows, np.setdiff1d(np.arange(OLD), rows)[:50]])
    index = VectorIndex().fit(MADE.points[rows], ids=rows, start=old)
    most = limit_load(len(rows), index.recipe)
    assert index.stats()["loads"][0]["max"] <= max(most, 2 * index.stats()["loads"][0]["mean"] + 1)


# --- what is learned -------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_an_index_learns_on(metric: str) -> None:
    old = VectorIndex(metric, recipe=RECIPE).fit(MADE.points[:OLD])
    index = VectorIndex(metric).fit(MADE.points, start=old)
    fresh = VectorIndex(metric, recipe=RECIPE).fit(MADE.points)
    assert index.recipe.buckets == 32
    assert len(index.history) < len(fresh.history)
    assert recall(index, MADE.points[::9] + 0.01) >= 0.95
    assert index.tuned is not None
    assert fresh.tuned is not None
    assert index.tuned.scanned <= 1.3 * fresh.tuned.scanned
    if metric != "ip":  # where longer items are nearer than the item itself
        found = index.search(MADE.points, 1).ids[:, 0]
        assert (found == np.arange(len(MADE.points))).mean() > 0.99


@pytest.mark.parametrize("changes", [{"boost": True}, {"boost": False}, {"scoring": "full"}])
def test_each_repetition_learns_on(changes: dict[str, Any]) -> None:
    recipe = irli.recipe("default", buckets=32, epochs=4, pieces=0, repetitions=2, **changes)
    index = VectorIndex().fit(MADE.points, start=fit_old(recipe))
    assert index.recipe.repetitions == 2
    assert {entry["repetition"] for entry in index.history} == {0, 1}
    assert recall(index, MADE.points[::9] + 0.01) > 0.95


def test_the_paper_learns_on() -> None:
    recipe = irli.recipe("paper", repetitions=2, buckets=32, hidden=32, epochs=4, batch_size=32)
    index = VectorIndex().fit(MADE.points, start=fit_old(recipe))
    assert index.recipe.name == "paper"
    assert recall(index, MADE.points[::9] + 0.01) > 0.9


def test_a_mapped_index_is_as_good_a_start(tmp_path: Path, old: VectorIndex) -> None:
    old.save(tmp_path / "old")
    mapped = irli.load(tmp_path / "old")
    one = VectorIndex().fit(MADE.points, start=old)
    other = VectorIndex().fit(MADE.points, start=mapped)
    for ours, theirs in zip(
        one._fitted().searcher.layout, other._fitted().searcher.layout, strict=True
    ):
        np.testing.assert_equal(ours, theirs)


def test_an_index_may_start_from_itself() -> None:
    index = fit_old()
    index.fit(MADE.points, start=index)
    assert len(index) == len(MADE.points)


def test_processes_learn_what_one_would() -> None:
    recipe = irli.recipe("default", buckets=32, epochs=4, pieces=0, repetitions=2, boost=False)
    old = fit_old(recipe)
    one, two = (VectorIndex().fit(MADE.points, start=old, workers=w) for w in (1, 2))
    np.testing.assert_equal(
        one._fitted().searcher.layout.items, two._fitted().searcher.layout.items
    )


def test_a_checkpoint_of_another_start_is_not_taken(tmp_path: Path, old: VectorIndex) -> None:
    other = fit_old(irli.recipe("default", buckets=32, epochs=4, pieces=0, seed=1))
    alone = VectorIndex().fit(MADE.points, start=old)
    VectorIndex(recipe=RECIPE).fit(MADE.points, start=other, checkpoint=tmp_path)
    index = VectorIndex().fit(MADE.points, start=old, checkpoint=tmp_path)
    np.testing.assert_equal(
        index._fitted().searcher.layout.items, alone._fitted().searcher.layout.items
    )


# --- what is refused -------------------------------------------------------------------------


def test_the_shape_of_the_routers_is_given(old: VectorIndex) -> None:
    for changes in ({"buckets": 64}, {"repetitions": 2}, {"hidden": 16}):
        recipe = irli.recipe("default", **changes)
        with pytest.raises(InvalidParameter, match=f"'{next(iter(changes))}'.*fit without start"):
            VectorIndex(recipe=recipe).fit(MADE.points, start=old)


def test_what_cannot_be_a_start_is_refused(old: VectorIndex) -> None:
    refused = [
        (VectorIndex(), MADE.points, {"start": "folder"}, "must be a VectorIndex.*irli.load"),
        (VectorIndex("ip"), MADE.points, {"start": old}, "same metric, 'ip'. Got one of 'l2'"),
        (VectorIndex(), MADE.points[:, :5], {"start": old}, "number of columns, 5. Got one of 8"),
        (
            VectorIndex(),
            MADE.points,
            {"start": VectorIndex().fit(MADE.points)},
            "must be an index that has learned.*compares all items",
        ),
    ]
    for index, points, options, reason in refused:
        with pytest.raises(InvalidParameter, match=reason):
            index.fit(points, **options)
    with pytest.raises(irli.NotFitted):
        VectorIndex().fit(MADE.points, start=VectorIndex())
    with pytest.raises(InvalidParameter, match=r"start.*ShardedIndex|ShardedIndex.*start"):
        ShardedIndex(shards=2).fit(MADE.points, start=old)
