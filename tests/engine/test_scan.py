"""The compressed first pass: the kernel against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import as_kernels_see, assemble_layout, random_partition, random_router
from stages import ALL, Stages
from stages import plan as any_plan

from irli.engine.simd import LANES, MOST
from irli.engine.vector_layout import (
    CODES,
    DOT,
    L2,
    Scratch,
    SearchPlan,
    VectorLayout,
    make_scratch,
)
from irli.learning.partition import Partition

DIM, B = 5, 12


@cache
def index(
    n: int = 150,
    repetitions: int = 1,
    per_item: int = 2,
    metric: int = L2,
    pieces: int = 8,
    ties: bool = False,
) -> VectorLayout:
    X = np.random.default_rng(0).normal(size=(n, DIM)).astype(np.float32)
    if ties:
        X = X[np.arange(n) % 7]
    routers = [random_router(DIM, B, seed=r) for r in range(repetitions)]
    partitions = [random_partition(n, B, per_item, seed=r) for r in range(repetitions)]
    return assemble_layout(routers, partitions, X, metric, pieces)


def plan(**changes: Any) -> SearchPlan:
    return any_plan(**{"candidates": 20, "score": CODES, **changes})


def query(seed: int = 1, scale: float = 1.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=(1, DIM)) * scale).astype(np.float32)


def sums_of_entries(layout: VectorLayout, table: NDArray, r: int, b: int) -> dict[int, int]:
    """Add up the codes of one bucket, read as the layout says: {item: sum}."""
    first, last = layout.offsets[r, b], layout.offsets[r, b + 1]
    sums = {}
    for place, item in enumerate(layout.items[first:last].tolist()):
        block, lane = divmod(place, LANES)
        column = 2 * lane if lane < 16 else 2 * (lane - 16) + 1
        bytes_ = layout.codes.blocks[layout.codes.offsets[r, b] + block, :, column]
        rows = np.arange(len(bytes_))
        halves = table[0, rows, bytes_ & 15].astype(int), table[1, rows, bytes_ >> 4].astype(int)
        sums[item] = int(halves[0].sum() + halves[1].sum())
    return sums


def check_scan(
    layout: VectorLayout,
    p: SearchPlan,
    q: NDArray[np.float32],
    allowed: NDArray = ALL,
    scratch: Scratch | None = None,
) -> Scratch:
    """What is chosen from the probed buckets is right; return what the scan left."""
    stages = Stages(layout, q, p, allowed, scratch)
    stages.route()
    probed, found, read = stages.scan()
    scratch = stages.scratch
    buckets = [divmod(int(c), B) for c in scratch.probed[:probed]]
    assert len(set(buckets)) == probed
    sums: dict[int, int] = {}
    entries = 0
    for r, b in buckets:
        part = sums_of_entries(layout, scratch.table, r, b)
        entries += len(part)
        for item, total in part.items():
            assert sums.setdefault(item, total) == total, "an item has one code wherever it is"
    assert read == entries
    there = [item for item in sums if not len(allowed) or allowed[item]]
    there.sort(key=lambda item: (sums[item], item), reverse=True)
    assert sorted(scratch.touched[:found].tolist()) == sorted(there[: p.candidates])
    if found < p.k:
        assert probed == layout.bias.size, "stopped before everything was looked at"
    assert scratch.table.max() <= MOST
    return scratch


# --- the table -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("pieces", [4, 12])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_table(metric: int, pieces: int, scale: float) -> None:
    layout = index(metric=metric, pieces=pieces)
    q = query(scale=scale)
    table = check_scan(layout, plan(), q).table
    codes = layout.codes
    at = (q.astype(np.float64) @ codes.rotation + codes.shift).reshape(pieces, -1)
    values = np.einsum("ms,msw->mw", at, codes.codewords) + codes.bias
    values -= values.min(axis=1, keepdims=True)
    right = values / values.max() * MOST
    got = table[:, :, :16].transpose(1, 0, 2).reshape(pieces, 16)
    assert got.max() == MOST
    np.testing.assert_allclose(got, right, atol=0.51)
    np.testing.assert_array_equal(table[:, :, :16], table[:, :, 16:])


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 1e38, 3e38, np.inf, np.nan])
def test_table_of_an_odd_query_stays_in_range(metric: int, value: float) -> None:
    """Sums beyond 16 bits would be written outside of their histogram."""
    layout = index(metric=metric)
    for q in (np.full((1, DIM), value), value * np.sign(query())):
        check_scan(layout, plan(), q.astype(np.float32))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_table_with_something_odd_among_codewords(odd: float) -> None:
    layout = index()
    bias = layout.codes.bias.copy()
    bias[:, ::3] = odd  # beside numbers of all sizes
    bias[:, 1::3] *= np.float32(1e6)
    layout = layout._replace(codes=layout.codes._replace(bias=bias))
    check_scan(as_kernels_see(layout), plan(), query())


def test_table_of_equal_vectors() -> None:
    X = np.ones((40, DIM), dtype=np.float32)
    layout = assemble_layout([random_router(DIM, B)], [random_partition(40, B)], X, L2, 8)
    check_scan(layout, plan(k=20), query())


# --- the scan --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 2),
    st.booleans(),
    st.one_of(st.integers(1, B), st.floats(-8, 0)),
    st.integers(1, 200),
    st.sampled_from([None, 0.0, 0.02, 0.5]),
    st.integers(0, 99),
)
def test_scan(
    repetitions: int,
    per_item: int,
    ties: bool,
    reach: float,
    candidates: int,
    share: float | None,
    seed: int,
) -> None:
    """Any number of copies of an item, ties, filters, and widening where too few are found."""
    layout = index(repetitions=repetitions, per_item=per_item, ties=ties)
    probing = {"probes": reach} if isinstance(reach, int) else {"threshold": reach}
    k = 1 + seed % candidates
    allowed = ALL if share is None else np.random.default_rng(seed).random(150) < share
    p = plan(k=k, candidates=candidates, **probing)
    check_scan(layout, p, query(seed), allowed)


@pytest.mark.parametrize("load", [0, 1, 31, 32, 33, 64, 65])
def test_scan_of_round_and_odd_buckets(load: int) -> None:
    """All items in one bucket, which is no other's business."""
    X = np.random.default_rng(0).normal(size=(load + 3, DIM)).astype(np.float32)
    owner = np.full((load + 3, 1), 4, dtype=np.int32)
    owner[load:] = 7
    layout = assemble_layout([random_router(DIM, B)], [Partition(B, owner)], X, L2, 4)
    for candidates in (1, 5, 200):
        scratch = check_scan(layout, plan(k=1, candidates=candidates), query())
        assert scratch.counts[0] == B


def test_scan_widens_until_enough_are_found() -> None:
    layout = index()
    probed = [
        check_scan(layout, plan(k=k, probes=1, candidates=k), query()).counts[0]
        for k in (1, 100, 200)
    ]
    assert probed[0] == 1 < probed[1] <= probed[2] == B


@pytest.mark.parametrize("candidates", [1, 40])
def test_scan_with_little_room_for_keys(candidates: int) -> None:
    """Those that cannot become candidates any more are dropped on the way."""
    layout = index(n=3000, ties=True)
    room = np.empty(2 * candidates + 2 * LANES, dtype=np.int64)
    scratch = make_scratch(layout)._replace(keys=room)
    check_scan(layout, plan(k=1, candidates=candidates), query(), scratch=scratch)


def test_scratch_serves_one_query_after_another() -> None:
    layout = index(repetitions=2)
    scratch = make_scratch(layout)
    for seed in range(6):
        check_scan(layout, plan(probes=1 + seed), query(seed), scratch=scratch)
