"""The sparse, blocked ranking against a dense N x B computation of both definitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

import irli
from irli import affinity as module
from irli.affinity import Affinity
from irli.network import RouterNetwork

N, STRANGERS, DIM = 70, 30, 6
OWN = module._OWN_WEIGHT


class World:
    """A random network, items, strangers, and who wants what; three items nobody wants."""

    def __init__(self, buckets: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.buckets = buckets
        self.network = RouterNetwork(DIM, 4, 8, buckets)
        with torch.no_grad():
            self.network.out.weight.mul_(4)
        self.items = torch.from_numpy(rng.normal(size=(N, DIM)).astype(np.float32))
        self.strangers = torch.from_numpy(rng.normal(size=(STRANGERS, DIM)).astype(np.float32) + 1)
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

    def affinity(self, recipe: irli.Recipe) -> Affinity:
        return Affinity(self.network, self.items, self.strangers, self.wanted_by, recipe)

    def chances(self, cut: float) -> NDArray[np.float64]:
        """(N + strangers, B): what each f says, dense."""
        with torch.no_grad():
            logits = self.network(torch.cat([self.items, self.strangers])).double().numpy()
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p if cut == 0 else p / (p + cut)

    def dense(self, kind: str, cut: float, held: NDArray | None = None) -> NDArray[np.float64]:
        """The affinity of every item to every bucket (N, B) by the definitions."""
        chance = self.chances(cut)
        own = np.full(N, 0.0 if kind == "queries" else OWN)
        wanted = np.zeros_like(self.wanted) if kind == "item" else self.wanted
        own[wanted.sum(axis=1) == 0] = OWN
        total = np.zeros((N, self.buckets))
        for item in range(N):
            weights = wanted[item].astype(np.float64).copy()
            mine = own[item]
            if held is not None:
                weights *= 1 - chance[:, held[item]]
                mine *= 1 - chance[item, held[item]]
            total[item] = mine * chance[item] + weights @ chance
        return total


def check_ranking(best: NDArray, decided: NDArray, right: NDArray, count: int) -> None:
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
        np.testing.assert_allclose(decided, top[:, 0] - top[:, 1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["item", "queries", "both"])
@pytest.mark.parametrize("cut", [0.0, 0.005, 0.3])
@pytest.mark.parametrize("buckets", [2, 16, 64])
def test_definitions(kind: str, cut: float, buckets: int) -> None:
    world = World(buckets)
    rank = world.affinity(irli.recipe("default", affinity=kind, cut=cut))
    right = world.dense(kind, cut)
    for count in (1, 2, buckets // 2, buckets):
        best, decided = rank(np.arange(N), count)
        check_ranking(best, decided, right, count)


@pytest.mark.parametrize("kind", ["item", "queries", "both"])
@pytest.mark.parametrize("cut", [0.0, 0.005])
def test_complementing(kind: str, cut: float) -> None:
    world = World(16, seed=1)
    rank = world.affinity(irli.recipe("default", affinity=kind, cut=cut))
    first = world.dense(kind, cut)
    second = world.dense(kind, cut, world.held)
    assert np.abs(first - second).max() > 0.1  # the held bucket matters
    best, decided = rank.complementing(world.held)(np.arange(N), 16)
    check_ranking(best, decided, second, 16)


def test_any_items_in_any_order() -> None:
    world = World(16)
    rank = world.affinity(irli.recipe("default"))
    whole, decided = rank(np.arange(N), 5)
    some = np.array([69, 3, 3, 0, 41])
    best, sure = rank(some, 5)
    np.testing.assert_array_equal(best, whole[some])
    np.testing.assert_array_equal(sure, decided[some])


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(16)
    rank = world.affinity(irli.recipe("default"))
    whole = rank(np.arange(N), 16)
    monkeypatch.setattr(module, "_BLOCK", 9)
    again = world.affinity(irli.recipe("default"))
    parts = again(np.arange(N), 16)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-4, atol=1e-6)
    check_ranking(parts[0], parts[1], world.dense("both", 0.005), 16)


def test_lonely_items_are_ranked_by_their_own_vector() -> None:
    world = World(16)
    own = world.dense("item", 0.005)
    for kind in ("queries", "both", "item"):
        best, _ = world.affinity(irli.recipe("default", affinity=kind))(np.arange(N), 1)
        for item in world.lonely:
            assert best[item, 0] == own[item].argmax()


@pytest.mark.parametrize("kind", ["item", "queries", "both"])
def test_only_the_best_of_each_f_are_kept(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """With fewer kept than there are buckets: the kept ones first, the rest by f(item)."""
    monkeypatch.setattr(module, "_KEPT", 5)
    world = World(32, seed=2)
    rank = world.affinity(irli.recipe("default", affinity=kind))
    chance = world.chances(0.005)
    weak = np.argsort(-chance, axis=1)[:, 5:]
    np.put_along_axis(chance, weak, 0, axis=1)
    world.chances = lambda cut: chance  # type: ignore[method-assign]
    right = world.dense(kind, 0.005)
    own = World(32, seed=2).chances(0.005)

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


def test_ranking_leaves_no_trace() -> None:
    """The scratch of one item must not leak into the next, nor one call into the next."""
    world = World(64, seed=3)
    rank = world.affinity(irli.recipe("default"))
    for _ in range(3):
        for item in (0, 5, 17):
            alone, _ = rank(np.array([item]), 10)
            among, _ = rank(np.arange(N), 10)
            np.testing.assert_array_equal(alone[0], among[item])
