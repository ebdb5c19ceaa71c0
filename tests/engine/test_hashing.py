from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irli.engine import hashing
from irli.engine.hashing import PRIME, UniversalHash, mix_numbers
from irli.errors import InvalidParameter

items = st.lists(st.integers(0, PRIME - 1), max_size=50)
seeds = st.integers(0, 2**32)


@given(items, st.integers(1, PRIME), seeds)
def test_matches_exact_integers(xs: list[int], buckets: int, seed: int) -> None:
    h = UniversalHash(buckets, seed)
    exact = [(h._a * x + h._b) % PRIME % buckets for x in xs]
    found = h(np.array(xs, dtype=np.int64))
    assert found.dtype == np.int32
    assert found.tolist() == exact


@given(items, st.integers(1, 1000), seeds)
def test_in_range_and_deterministic(xs: list[int], buckets: int, seed: int) -> None:
    found = UniversalHash(buckets, seed)(np.array(xs, dtype=np.int64))
    assert ((found >= 0) & (found < buckets)).all()
    np.testing.assert_array_equal(found, UniversalHash(buckets, seed)(np.array(xs, dtype=np.int64)))


def test_seeds_give_different_functions() -> None:
    x = np.arange(1000)
    tables = [UniversalHash(64, seed)(x) for seed in range(20)]
    agreement = [(tables[i] == tables[j]).mean() for i in range(20) for j in range(i)]
    assert max(agreement) < 0.2


@pytest.mark.parametrize("buckets", [2, 10, 100])
def test_two_items_collide_about_once_in_b(buckets: int) -> None:
    pairs = np.array([[0, 1], [5, 5 + buckets], [17, 2_000_000_000], [3, 12_345]])
    hashed = np.array([UniversalHash(buckets, seed)(pairs) for seed in range(4000)])
    collisions = (hashed[..., 0] == hashed[..., 1]).mean(axis=0)
    error = np.sqrt(1 / buckets * (1 - 1 / buckets) / 4000)
    np.testing.assert_allclose(collisions, 1 / buckets, atol=4.5 * error)


def test_buckets_fill_evenly() -> None:
    loads = np.bincount(UniversalHash(100, 3)(np.arange(100_000)), minlength=100)
    assert loads.max() < 1.5 * loads.mean()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.uint64])
def test_any_integer_type_gives_the_same_buckets(dtype: type) -> None:
    h = UniversalHash(7, 1)
    np.testing.assert_array_equal(h(np.arange(100, dtype=dtype)), h(np.arange(100)))


@pytest.mark.parametrize("bad", [[-1], [PRIME], [0.5], ["a"], [True], [2**63]])
def test_refuses_what_is_no_item_number(bad: Any) -> None:
    with pytest.raises(InvalidParameter, match="'items' parameter must hold integers"):
        UniversalHash(7, 1)(bad)


@pytest.mark.parametrize(("buckets", "seed"), [(0, 0), (PRIME + 1, 0), (1.5, 0), (4, -1)])
def test_refuses_bad_parameters(buckets: int, seed: int) -> None:
    with pytest.raises(InvalidParameter, match="UniversalHash"):
        UniversalHash(buckets, seed)


# --- mixed numbers -------------------------------------------------------------------------------


@given(st.lists(st.integers(0, PRIME - 1), max_size=50, unique=True))
def test_mixing_is_one_to_one(xs: list[int]) -> None:
    mixed = mix_numbers(np.array(xs, dtype=np.int64))
    assert ((mixed >= 0) & (mixed < PRIME)).all()
    assert len(set(mixed.tolist())) == len(xs)


def test_no_number_becomes_the_one_that_no_hash_takes() -> None:
    """2^31 - 1 is mixed to by one number, which is then mixed again."""
    around = PRIME - 1 - np.arange(100_000)
    assert mix_numbers(around).max() < PRIME
    inverse = [pow(factor, -1, 2**31) for factor in hashing._FACTORS]
    x = PRIME
    for undo in reversed(inverse):
        x = (x ^ (x >> 16)) * undo & PRIME
    x ^= x >> 16
    assert hashing._mix_bits(np.array([x]))[0] == PRIME
    assert mix_numbers([x])[0] < PRIME


@pytest.mark.parametrize(("items", "buckets"), [(1_183_514, 5000), (60_000, 1000), (10_000, 64)])
def test_loads_vary_like_independent_draws(items: int, buckets: int) -> None:
    """The standard deviation is sqrt(N / B): 15.4 for GloVe-100, where the paper has 15.3."""
    mixed = mix_numbers(np.arange(items))
    right = (items / buckets * (1 - 1 / buckets)) ** 0.5
    for seed in range(6):
        loads = np.bincount(UniversalHash(buckets, seed)(mixed), minlength=buckets)
        assert loads.std() == pytest.approx(right, rel=4 / (2 * buckets) ** 0.5)
