"""The sparse, blocked ranking against a dense N x B computation of both definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from lessons import make_network
from numpy.typing import NDArray

import irli
from irli.learning import affinity as module
from irli.learning.affinity import Affinity, SummedAffinity
from irli.learning.batches import Inputs
from irli.learning.network import LOSSES
from irli.learning.partition import assign_bounded, assign_least_loaded, bucket_capacity
from irli.learning.weights import draw_weights

N, STRANGERS, DIM = 70, 30, 6
ITEM_WEIGHT = module._ITEM_WEIGHT


class World:
    """A random network, items, strangers, and who wants what; three items nobody wants."""

    def __init__(self, buckets: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.buckets = buckets
        weights = draw_weights((DIM, 4, 8), buckets, 1, False, rng)
        weights.out *= 4
        self.network = make_network(weights)
        items = rng.normal(size=(N, DIM)).astype(np.float32)
        strangers = rng.normal(size=(STRANGERS, DIM)).astype(np.float32) + 1
        self.points = np.concatenate([items, strangers])
        wanted = sp.random_array(
            (N, N + STRANGERS), density=0.08, rng=rng, dtype=np.float32, format="csr"
        )
        wanted.data += 0.1
        wanted = wanted.toarray()
        self.lonely = [0, 17, 69]
        wanted[self.lonely] = 0
        self.wanted = wanted
        self.wanted_by = sp.csr_array(wanted)
        self.held = rng.integers(buckets, size=N).astype(np.int32)
        self.mean = self.chances("queries").mean(axis=0)

    def affinity(self, kind: str = "both") -> Affinity:
        scored = Inputs(self.points)
        recipe = irli.recipe("default", affinity=kind, choices=32)
        wanted = sp.csr_array((N, N), dtype=np.float32) if kind == "item" else self.wanted_by
        return Affinity(self.network, 0, scored, wanted, recipe)

    def chances(self, kind: str) -> NDArray[np.float64]:
        """(N + strangers, B): what each f says, dense."""
        logits = self.network.score(self.points, 0).astype(np.float64)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p / (p + 0.005) if kind == "both" else p

    def dense(self, kind: str, held: NDArray | None = None) -> NDArray[np.float64]:
        """The affinity of every item to every bucket (N, B) by the definitions."""
        chance = self.chances(kind)
        own = np.full(N, 0.0 if kind == "queries" else ITEM_WEIGHT)
        wanted = np.zeros_like(self.wanted) if kind == "item" else self.wanted
        own[wanted.sum(axis=1) == 0] = ITEM_WEIGHT
        total = np.zeros((N, self.buckets))
        for item in range(N):
            weights = wanted[item].astype(np.float64).copy()
            mine = own[item]
            if held is not None:
                weights *= 1 - chance[:, held[item]]
                mine *= 1 - chance[item, held[item]]
            total[item] = mine * chance[item] + weights @ chance
        return total / self.mean if kind == "queries" else total


def check_ranking(best: NDArray, lead: NDArray, right: NDArray, count: int) -> None:
    """The ranking is by the right affinities, whichever of equals comes first."""
    assert best.shape == (len(right), count)
    assert all(len(set(row)) == count for row in best)
    np.testing.assert_allclose(
        np.take_along_axis(right, best, axis=1),
        -np.sort(-right, axis=1)[:, :count],
        rtol=1e-4,
        atol=1e-6,
    )
    if count > 1:
        top = -np.sort(-right, axis=1)
        np.testing.assert_allclose(lead, top[:, 0] - top[:, 1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["item", "queries", "both"])
@pytest.mark.parametrize("buckets", [2, 16, 64])
def test_definitions(kind: str, buckets: int) -> None:
    world = World(buckets)
    rank = world.affinity(kind)
    right = world.dense(kind)
    for count in (1, 2, buckets // 2, buckets):
        best, lead = rank(np.arange(N), count)
        check_ranking(best, lead, right, count)


@pytest.mark.parametrize("kind", ["item", "queries", "both"])
def test_complementing(kind: str) -> None:
    world = World(16, seed=1)
    rank = world.affinity(kind)
    first = world.dense(kind)
    second = world.dense(kind, world.held)
    assert np.abs(first - second).max() > 0.1  # the held bucket matters
    best, lead = rank.complementing(world.held)(np.arange(N), 16)
    check_ranking(best, lead, second, 16)


def test_any_items_in_any_order() -> None:
    world = World(16)
    rank = world.affinity()
    whole, lead = rank(np.arange(N), 5)
    some = np.array([69, 3, 3, 0, 41])
    best, sure = rank(some, 5)
    np.testing.assert_array_equal(best, whole[some])
    np.testing.assert_array_equal(sure, lead[some])


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(16)
    rank = world.affinity()
    whole = rank(np.arange(N), 16)
    monkeypatch.setattr(module, "_BLOCK", 9)
    again = world.affinity()
    parts = again(np.arange(N), 16)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-4, atol=1e-6)
    check_ranking(parts[0], parts[1], world.dense("both"), 16)


def test_lonely_items_are_ranked_by_their_own_vector() -> None:
    world = World(16)
    own = world.dense("item")
    for kind in ("queries", "both", "item"):
        best, _ = world.affinity(kind)(np.arange(N), 1)
        for item in world.lonely:
            right = own[item] / world.mean if kind == "queries" else own[item]
            assert best[item, 0] == right.argmax()


@pytest.mark.parametrize("kind", ["item", "queries", "both"])
def test_only_the_best_of_each_f_are_kept(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """With fewer kept than there are buckets: the kept ones first, the rest by f(item)."""
    monkeypatch.setattr(module, "count_kept_buckets", lambda *_: 5)
    world = World(32, seed=2)
    rank = world.affinity(kind)
    chance = world.chances(kind)
    weak = np.argsort(-chance, axis=1)[:, 5:]
    np.put_along_axis(chance, weak, 0, axis=1)
    world.chances = lambda kind: chance  # type: ignore[method-assign]
    right = world.dense(kind)
    own = World(32, seed=2).chances(kind)

    best, _ = rank(np.arange(N), 5)
    for item in range(N):
        there = best[item][best[item] >= 0]
        expected = -np.sort(-right[item])[: len(there)]
        np.testing.assert_allclose(right[item, there], expected, rtol=1e-4, atol=1e-6)

    whole, _ = rank(np.arange(N), 32)
    for item in range(N):
        assert sorted(whole[item]) == list(range(32))
        # A bucket that f(item) kept was touched even if nobody weighs it.
        kept = right[item] > 0
        if kind == "queries":
            kept |= chance[item] > 0
        first, rest = whole[item, : kept.sum()], whole[item, kept.sum() :]
        assert kept[first].all()
        values = right[item, first]
        assert (np.diff(values) <= 1e-6).all()
        assert (np.diff(own[item, rest]) <= 1e-7).all()


@pytest.mark.parametrize("kept", [5, 64])
@pytest.mark.parametrize("rooms", [1, 2, 11])
def test_among_some_buckets(monkeypatch: pytest.MonkeyPatch, kept: int, rooms: int) -> None:
    """The order of some buckets is theirs in the whole ranking, kept or not."""
    monkeypatch.setattr(module, "count_kept_buckets", lambda *_: kept)
    world = World(32, seed=4)
    rank = world.affinity()
    among = np.sort(np.random.default_rng(1).choice(32, rooms, replace=False))
    whole, _ = rank(np.arange(N), 32)
    best, _ = rank(np.arange(N), 4, among)
    for row, everything in zip(best, whole, strict=True):
        right = [bucket for bucket in everything if bucket in among][:4]
        assert row.tolist() == right + [-1] * (4 - len(right))


def test_ranking_leaves_no_trace() -> None:
    """The scratch of one item must not leak into the next, nor one call into the next."""
    world = World(64, seed=3)
    rank = world.affinity()
    for _ in range(3):
        for item in (0, 5, 17):
            alone, _ = rank(np.array([item]), 10)
            among, _ = rank(np.arange(N), 10)
            np.testing.assert_array_equal(alone[0], among[item])


# --- items without vectors -------------------------------------------------------------------


class Strange:
    """Items that are no points: sparse queries, two heads, and what each query wants."""

    def __init__(self, buckets: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.buckets = buckets
        self.weights = draw_weights((DIM, 0, 8), buckets, 2, True, rng)
        self.weights.project *= 10
        self.weights.out *= 4
        self.network = make_network(self.weights, sparse=True)
        rows = rng.normal(size=(50, DIM)) * (rng.random((50, DIM)) < 0.6)
        self.queries = sp.csr_array(rows.astype(np.float32))
        self.wanted = (rng.random((N, 50)) * (rng.random((N, 50)) < 0.1)).astype(np.float32)
        self.wanted[:, 0] += 0.1  # everybody is wanted by somebody
        self.lonely = [0, 17, 69]
        self.wanted[self.lonely] = 0
        self.held = rng.integers(buckets, size=N).astype(np.int32)

    def affinity(self, head: int = 1, *, normalize: bool = True) -> Affinity:
        kind = "queries" if normalize else "both"
        recipe = irli.recipe("default", affinity=kind, choices=32)
        wanted = sp.csr_array(self.wanted)
        return Affinity(
            self.network, head, Inputs(self.queries), wanted, recipe, items_are_queries=False
        )

    def chances(self, *, normalize: bool, head: int = 1) -> NDArray[np.float64]:
        """(queries, B), dense."""
        logits = self.network.score(self.queries, head).astype(np.float64)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p / p.mean(axis=0) if normalize else p / (p + 0.005)


WANTED = [item for item in range(N) if item not in (0, 17, 69)]


@pytest.mark.parametrize("head", [0, 1])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("buckets", [2, 16, 64])
def test_affinity_of_items_without_vectors(head: int, normalize: bool, buckets: int) -> None:
    world = Strange(buckets)
    right = (world.wanted @ world.chances(normalize=normalize, head=head))[WANTED]
    rank = world.affinity(head, normalize=normalize)
    for count in (1, 2, buckets):
        best, lead = rank(np.array(WANTED), count)
        check_ranking(best, lead, right, count)


def test_normalizing_takes_the_favourites_away() -> None:
    """Nearly all queries prefer bucket 3: that says nothing of any of them."""
    world = Strange(16)
    world.weights.bias[1, 3] += 8
    world.network = make_network(world.weights, sparse=True)
    plain, _ = world.affinity(normalize=False)(np.array(WANTED), 1)
    normalized, _ = world.affinity(normalize=True)(np.array(WANTED), 1)
    assert (plain == 3).mean() > 0.7
    assert (normalized == 3).mean() < 0.4


def test_second_buckets_without_vectors() -> None:
    world = Strange(16)
    chance = world.chances(normalize=False)
    missed = 1 - chance[:, world.held].T  # (N, queries)
    best, lead = world.affinity(normalize=False).complementing(world.held)(np.array(WANTED), 16)
    check_ranking(best, lead, ((world.wanted * missed) @ chance)[WANTED], 16)


def test_normalized_second_buckets_are_ranked_at_all() -> None:
    world = Strange(16)
    world.weights.out *= 3
    world.network = make_network(world.weights, sparse=True)
    best, _ = world.affinity(normalize=True).complementing(world.held)(np.array(WANTED), 16)
    assert (np.sort(best, axis=1) == np.arange(16)).all()


@pytest.mark.parametrize("count", [5, 32])
def test_the_kept_come_first_and_the_rest_by_those_asked(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(module, "count_kept_buckets", lambda *_: 5)
    world = Strange(32)
    chance = world.chances(normalize=False)
    kept = np.zeros_like(chance)
    strong = np.argsort(-chance, axis=1)[:, :5]
    np.put_along_axis(kept, strong, np.take_along_axis(chance, strong, axis=1), axis=1)
    right = world.wanted @ kept
    best, _ = world.affinity(normalize=False)(np.array(WANTED), count)
    for row, item in zip(best, WANTED, strict=True):
        there = row[row >= 0]
        assert len(set(there)) == len(there)
        first = min(count, int((right[item] > 0).sum()))
        assert len(there) == (first if count == 5 else 32)
        np.testing.assert_allclose(
            right[item, there[:first]], -np.sort(-right[item])[:first], rtol=1e-4, atol=1e-6
        )
        asked = np.flatnonzero(world.wanted[item])[: module._FEW]
        rest = chance[asked][:, there[first:]].sum(axis=0)
        assert (np.diff(rest) <= 1e-5).all()


@pytest.mark.parametrize("buckets", [16, 100])
def test_items_that_nobody_wants_get_a_bucket(buckets: int) -> None:
    world = Strange(buckets)
    most = bucket_capacity(N, buckets, 1.3)
    loads = np.zeros(buckets, dtype=np.int64)
    chosen = assign_bounded(world.affinity(), N, most, min(32, buckets), loads)
    assert (chosen >= 0).all()
    assert loads.sum() == N
    assert loads.max() <= most
    again = assign_bounded(world.affinity(), N, most, min(32, buckets), np.zeros_like(loads))
    np.testing.assert_array_equal(again, chosen)


def test_items_that_nobody_wants_get_the_least_loaded_bucket() -> None:
    chosen = assign_least_loaded(Strange(16).affinity(), N, 16, 3, np.random.default_rng(0))
    assert (chosen >= 0).all()


# --- Definition 1 as it is -------------------------------------------------------------------


def squash(logits: NDArray[np.float64], loss: str) -> NDArray[np.float64]:
    """Return what the loss trains, by its definition."""
    if loss == "sigmoid-bce":
        return 1 / (1 + np.exp(-logits))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("block", [1, 40, 1 << 20])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("buckets", [2, 100])
def test_the_sum_over_all_buckets(
    monkeypatch: pytest.MonkeyPatch, buckets: int, loss: str, block: int
) -> None:
    """Against the dense sum, whose buckets are more than those that are usually kept."""
    monkeypatch.setattr(module, "_SUMS", block * 7)
    monkeypatch.setattr(module, "_SUMMED", block * 3)
    world = Strange(buckets)
    scores = squash(world.network.score(world.queries, 1).astype(np.float64), loss)
    right = ((world.wanted > 0) @ scores)[WANTED]
    points, wanted = Inputs(world.queries), sp.csr_array(world.wanted)
    rank = SummedAffinity(world.network, 1, points, wanted, loss, items_are_queries=False)
    for count in (1, 2, buckets):
        best, lead = rank(np.array(WANTED), count)
        check_ranking(best, lead, right, count)
    among = np.array([0, buckets - 1])
    best, lead = rank(np.array(WANTED), 2, among)
    check_ranking(np.searchsorted(among, best), lead, right[:, among], 2)
    everybody, _ = rank(np.arange(N), 2)
    assert ((everybody >= 0) & (everybody < buckets)).all()
    assert (everybody[:, 0] != everybody[:, 1]).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sum_for_items_with_vectors(loss: str) -> None:
    """Each query counts once; who is relevant to none is ranked by the own vector."""
    world = World(64)
    logits = world.network.score(world.points, 0).astype(np.float64)
    wanted = world.wanted > 0
    wanted[world.lonely, world.lonely] = True
    points = Inputs(world.points)
    rank = SummedAffinity(world.network, 0, points, world.wanted_by, loss)
    best, lead = rank(np.arange(N), 64)
    check_ranking(best, lead, wanted @ squash(logits, loss), 64)
