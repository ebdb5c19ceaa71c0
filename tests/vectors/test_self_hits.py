"""Mending a partition: every item then finds itself with the threshold that was found."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from planted import assemble_layout, clusters, random_partition, random_router

from irli._native import DOT, L2
from irli.engine.vector_layout import VectorLayout, check_layout
from irli.vectors.build import self_hits, thresholds
from irli.vectors.build.ground_truth import GroundTruth, find_truth
from irli.vectors.build.self_hits import add_self_hits
from irli.vectors.parameters import SearchParameters
from irli.vectors.searcher import Searcher

DIM, N, B = 6, 400, 24


def make(repetitions: int = 1, per_item: int = 1, metric: int = L2) -> VectorLayout:
    """Items in random buckets, which the routers do not know: most of them miss themselves."""
    X = clusters(N // 20, 20, DIM, spread=0.4, seed=1).points
    X[50:60] = X[40]  # duplicates
    routers = [random_router(DIM, B, seed=r) for r in range(repetitions)]
    partitions = [random_partition(N, B, per_item, seed=r) for r in range(repetitions)]
    return assemble_layout(routers, partitions, X, metric)


def find_threshold(layout: VectorLayout, metric: str = "l2") -> float:
    searcher, truth = Searcher(layout), held_items(layout, metric)

    def route(queries: NDArray[np.float32]) -> NDArray[np.float32]:
        return searcher.route(queries).reshape(len(queries), -1)

    homes = thresholds.find_homes(layout.offsets, layout.items)
    return thresholds.find_threshold(
        route, truth.queries, truth.neighbors, homes, layout.bias.size, 0.8
    )


def held_items(layout: VectorLayout, metric: str = "l2") -> GroundTruth:
    rows = np.arange(0, N, 9)
    return find_truth(layout.vectors, metric, layout.vectors[rows], rows, k=10)


def find_themselves(layout: VectorLayout, threshold: float) -> NDArray[np.bool_]:
    """Whether each item, or an equal one, is the answer to its own query."""
    plan = SearchParameters(threshold=float(np.exp(threshold))).to_plan(1)
    found = Searcher(layout).search(layout.vectors, plan)[1][:, 0]
    return np.asarray((layout.vectors[found] == layout.vectors).all(axis=1))


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that are never full."""
    monkeypatch.setattr(self_hits, "_SLACK", float(N))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("repetitions", [1, 2])
@pytest.mark.parametrize("per_item", [1, 2])
def test_every_item_finds_itself(repetitions: int, per_item: int) -> None:
    layout = make(repetitions, per_item)
    threshold = find_threshold(layout)
    before = find_themselves(layout, threshold)
    assert before.mean() < 0.95
    offsets, items = add_self_hits(layout, "l2", held_items(layout))
    mended = layout._replace(offsets=offsets, items=items)
    check_layout(mended)
    assert find_themselves(mended, threshold).all()


@pytest.mark.usefixtures("room")
def test_what_misses_itself_gets_one_more_bucket_and_nothing_else_changes() -> None:
    layout = make(repetitions=2)
    missed = np.flatnonzero(~find_themselves(layout, find_threshold(layout)))
    offsets, items = add_self_hits(layout, "l2", held_items(layout))
    logits = Searcher(layout).route(layout.vectors)
    added: dict[int, int] = {}
    for r in range(2):
        for b in range(B):
            old = layout.items[layout.offsets[r, b] : layout.offsets[r, b + 1]].tolist()
            new = items[offsets[r, b] : offsets[r, b + 1]].tolist()
            assert new[: len(old)] == old
            assert len(set(new)) == len(new)
            more = new[len(old) :]
            assert r == 0 or not more
            added |= dict.fromkeys(more, b)
            assert all(b == logits[item, 0].argmax() for item in more)
    assert len(items) == len(layout.items) + len(added)
    assert sorted(added) == missed.tolist()


@pytest.mark.parametrize("slack", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("per_item", [1, 2])
def test_a_full_bucket_takes_no_more(
    slack: float, per_item: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one with room does, unless the item is there already."""
    monkeypatch.setattr(self_hits, "_SLACK", slack)
    layout = make(per_item=per_item)
    before = np.diff(layout.offsets[0])
    offsets, items = add_self_hits(layout, "l2", held_items(layout))
    after = np.diff(offsets[0])
    most = np.ceil(slack * before.mean())
    assert (after <= np.maximum(before, most)).all()
    assert (after.sum() > before.sum()) == (most > before.min())
    for b in range(B):
        inside = items[offsets[0, b] : offsets[0, b + 1]]
        assert len(set(inside.tolist())) == len(inside)
    threshold = find_threshold(layout)
    mended = find_themselves(layout._replace(offsets=offsets, items=items), threshold)
    assert (mended >= find_themselves(layout, threshold)).all()


@pytest.mark.usefixtures("room")
def test_a_duplicate_will_do() -> None:
    """Of equal items, one in the bucket of their query is enough."""
    layout = make()
    offsets, items = add_self_hits(layout, "l2", held_items(layout))
    copies = np.append(np.arange(50, 60), 40)
    alone = find_themselves(layout, find_threshold(layout))[copies]
    added = len(items) - len(layout.items)
    assert added > 0
    if alone.all():  # some copy is there already
        assert np.isin(items, copies).sum() == len(copies)
    assert find_themselves(layout._replace(offsets=offsets, items=items), 0.0)[copies].all()


def test_inner_products_are_left_alone() -> None:
    layout = make(metric=DOT)
    offsets, items = add_self_hits(layout, "ip", held_items(layout))
    assert offsets is layout.offsets
    assert items is layout.items


def test_a_partition_that_is_right_is_left_as_it_is() -> None:
    """Each item lies where its query goes first."""
    layout = make()
    offsets, items = add_self_hits(layout, "l2", held_items(layout))
    again = layout._replace(offsets=offsets, items=items)
    low = find_threshold(layout)
    assert find_threshold(again) >= low
    routed = Searcher(layout).route(layout.vectors)[:, 0].argmax(axis=1)
    order = np.argsort(routed, kind="stable").astype(np.int32)
    counts = np.bincount(routed, minlength=B)
    right = layout._replace(offsets=np.concatenate([[0], np.cumsum(counts)])[None], items=order)
    offsets, items = add_self_hits(right, "l2", held_items(right))
    np.testing.assert_array_equal(offsets, right.offsets)
    np.testing.assert_array_equal(items, right.items)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = make(repetitions=2, per_item=2)
    whole = add_self_hits(layout, "cosine", held_items(layout))
    monkeypatch.setattr(thresholds, "_BLOCK", 7 * 2 * B)
    for one, other in zip(add_self_hits(layout, "cosine", held_items(layout)), whole, strict=True):
        np.testing.assert_array_equal(one, other)
