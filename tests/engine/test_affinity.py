"""Ranking buckets: the same bits as the definition in plain Python, and nothing out of bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from irli.engine.affinity import BestBuckets, Others, Wanting, rank_buckets


class Case(NamedTuple):
    items: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    others: Others
    held: NDArray[np.int32]
    item_weight: NDArray[np.float32]
    wanting: Wanting
    best: BestBuckets
    wanted: int

    def rank(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        ranking = np.full((len(self.items), self.wanted), -7, dtype=np.int32)
        lead = np.full(len(self.items), -7, dtype=np.float32)
        rank_buckets(*self[:-1], ranking, lead)
        return ranking, lead

    def define(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Do the same in plain Python."""
        ranking = np.full((len(self.items), self.wanted), -1, dtype=np.int32)
        lead = np.empty(len(self.items), dtype=np.float32)
        for row, item in enumerate(self.items):
            affinity: dict[int, np.float32] = {}  # in the order in which buckets are touched
            start, stop = self.wanting.indptr[item : item + 2]
            queries = list(zip(self.wanting.queries, self.wanting.weights, strict=True))
            if self.item_weight[item] > 0:
                self.add(affinity, item, self.item_weight[item], self.held[item])
            for query, weight in queries[start:stop]:
                self.add(affinity, query, weight, self.held[item])
            affinity = {b: value for b, value in affinity.items() if self.allowed[b]}
            if len(self.others.buckets):
                for bucket, suit in zip(*(part[row] for part in self.others), strict=True):
                    least = max(suit, np.float32(1e-20)) * np.float32(1e-15)
                    affinity.setdefault(int(bucket), least)
            order = sorted(affinity, key=lambda bucket: -affinity[bucket])[: self.wanted]
            ranking[row, : len(order)] = order
            values = [*(affinity[bucket] for bucket in order), *[np.float32(-1)] * self.wanted]
            lead[row] = values[0] - values[min(1, self.wanted - 1)]
        return ranking, lead

    def add(self, affinity: dict[int, np.float32], query: int, weight: Any, held: int) -> None:
        weight = np.float32(weight)
        for bucket, chance in zip(self.best.buckets[query], self.best.chances[query], strict=True):
            if bucket == held:
                weight *= 1 - chance
        for bucket, chance in zip(self.best.buckets[query], self.best.chances[query], strict=True):
            more = weight * chance * self.best.factors[bucket] + np.float32(1e-15)
            affinity[int(bucket)] = affinity.get(int(bucket), np.float32(0)) + more


def make_case(seed: int, buckets: int = 20, ties: bool = False, others: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    items, queries = int(rng.integers(1, 12)), int(rng.integers(12, 30))
    kept, wanted = int(rng.integers(1, buckets + 1)), int(rng.integers(1, buckets + 3))
    dtype, index = rng.choice([np.uint16, np.int32]), rng.choice([np.int32, np.int64])
    chances = rng.random((queries, kept), dtype=np.float32)
    factors = rng.random(buckets, dtype=np.float32) + np.float32(0.1)
    indptr = np.concatenate([[0], rng.integers(5, size=items).cumsum()]).astype(index)
    weights = rng.random(indptr[-1], dtype=np.float32)
    if ties:
        chances, factors = np.round(chances), np.ones_like(factors)
        weights = np.ones_like(weights)
    allowed = rng.random(buckets) < rng.choice([0.5, 1.0])
    rows = rng.integers(items, size=int(rng.integers(8)))
    more = Others(np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.float32))
    if others and allowed.any() and len(rows):
        free = [rng.permutation(np.flatnonzero(allowed))[:5] for _ in rows]
        suits = (rng.random((len(rows), len(free[0]))) * rng.choice([1, 1e-25])).astype(np.float32)
        more = Others(np.array(free, dtype=np.int32), suits)
    return Case(
        rows,
        allowed,
        more,
        rng.integers(-1, buckets, size=items).astype(np.int32),
        rng.choice(np.float32([0, 3]), size=items),
        Wanting(indptr, rng.integers(queries, size=indptr[-1]).astype(index), weights),
        BestBuckets(
            rng.permuted(np.tile(np.arange(buckets), (queries, 1)), axis=1)[:, :kept].astype(dtype),
            chances,
            factors,
        ),
        wanted,
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 7, 20, 70]), st.booleans(), st.booleans())
def test_the_definition(seed: int, buckets: int, ties: bool, others: bool) -> None:
    case = make_case(seed, buckets, ties, others)
    for found, right in zip(case.rank(), case.define(), strict=True):
        np.testing.assert_array_equal(found, right)


def test_scores_that_are_no_numbers_are_not_ranked() -> None:
    for seed in range(50):
        case = make_case(seed)
        case.best.chances[np.random.default_rng(seed).random(case.best.chances.shape) < 0.2] = (
            np.nan
        )
        ranking, _ = case.rank()
        assert ranking.min(initial=-1) == -1
        assert all(len({*row[row >= 0]}) == (row >= 0).sum() for row in ranking)


@pytest.mark.parametrize("value", [-1, 5000, 60_000])
@pytest.mark.parametrize("name", ["items", "indptr", "queries", "best", "others"])
def test_numbers_out_of_bounds_are_refused(name: str, value: int) -> None:
    case = make_case(5, others=True)
    case = case._replace(
        items=np.array([0, 0]),
        item_weight=np.ones_like(case.item_weight),
        wanting=Wanting(
            np.concatenate([[0], np.full(len(case.held), 2)]), np.array([0, 1]), np.ones(2, "f4")
        ),
        best=case.best._replace(buckets=case.best.buckets.astype(np.int32)),
        others=Others(np.zeros((2, 1), dtype=np.int32), np.ones((2, 1), dtype=np.float32)),
        allowed=np.ones_like(case.allowed),
    )
    case.rank()
    arrays: dict[str, NDArray[Any]] = {
        "items": case.items,
        "indptr": case.wanting.indptr,
        "queries": case.wanting.queries,
        "best": case.best.buckets,
        "others": case.others.buckets,
    }
    arrays[name][...] = value
    with pytest.raises(ValueError, match="out of bounds"):
        case.rank()


def test_wrong_arrays_are_refused() -> None:
    case = make_case(1)
    assert len(case.items)
    for wrong in (
        case._replace(item_weight=np.ones(99, dtype=np.float32)),
        case._replace(wanting=case.wanting._replace(indptr=case.wanting.indptr[:-1])),
        case._replace(wanting=case.wanting._replace(weights=case.wanting.weights[:-1])),
        case._replace(best=case.best._replace(chances=case.best.chances[:-1])),
        case._replace(best=case.best._replace(factors=case.best.factors[:-1])),
        case._replace(wanted=0),
    ):
        with pytest.raises(ValueError, match="must have"):
            wrong.rank()
    for wrong in (
        case._replace(items=case.items.astype(np.int32)),
        case._replace(best=case.best._replace(buckets=case.best.buckets.astype(np.int64))),
        case._replace(best=case.best._replace(chances=case.best.chances.astype(np.float64))),
        case._replace(wanting=case.wanting._replace(queries=case.wanting.queries.astype("u1"))),
    ):
        with pytest.raises(TypeError):
            wrong.rank()
