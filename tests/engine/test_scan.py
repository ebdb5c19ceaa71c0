"""The scan of 4-bit codes against NumPy, on every back-end."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import (
    as_kernels_see,
    assemble_layout,
    constant_router,
    plant_codes,
    random_partition,
    random_router,
)
from searching import Allowed, Stages, explain, search
from searching import plan as any_plan

from irli._native import CODES, DOT, L2, LANES, MOST_CANDIDATES, SearchPlan, VectorSearcher
from irli.base.recipe import MOST_PIECES
from irli.engine.int8 import make_projection
from irli.engine.vector_layout import Codes, VectorLayout
from irli.learning.partition import Partition

pytestmark = pytest.mark.usefixtures("simd")

DIM, B = 5, 12
MOST = 127  # the largest value in the table of a query


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
    return (np.random.default_rng(seed).normal(size=DIM) * scale).astype(np.float32)


# --- what NumPy says -------------------------------------------------------------------------


class Tables(NamedTuple):
    """The table (M, 16) of a query, rounded down and up where that is not sure."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]


def tables_of(codes: Codes, q: NDArray[np.float32]) -> Tables:
    """What each codeword adds to a score, from 0 to 127: the smallest of each piece is 0."""
    pieces = len(codes.codewords)
    at = (q.astype(np.float64) @ codes.rotation + codes.shift).reshape(pieces, -1)
    values = np.einsum("ms,msw->mw", at, codes.codewords.astype(np.float64)) + codes.bias
    values -= values.min(axis=1, keepdims=True)
    steps = values * (MOST / values.max()) if values.max() > 0 else values
    return Tables(*(np.floor(steps + 0.5 + off).astype(np.int64) for off in (-0.005, 0.005)))


def sums_of_bucket(
    layout: VectorLayout, table: NDArray[np.int64], r: int, b: int
) -> dict[int, int]:
    """Add up the codes of one bucket, read as the layout says: {item: sum}.

    Byte 2 i of a row belongs to lane i, byte 2 i + 1 to lane 16 + i. Low halves are even pieces.
    """
    first, last = layout.offsets[r, b], layout.offsets[r, b + 1]
    sums = {}
    for place, item in enumerate(layout.items[first:last].tolist()):
        block, lane = divmod(place, LANES)
        column = 2 * lane if lane < 16 else 2 * (lane - 16) + 1
        bytes_ = layout.codes.blocks[layout.codes.offsets[r, b] + block, :, column]
        rows = np.arange(len(bytes_))
        sums[item] = int((table[2 * rows, bytes_ & 15] + table[2 * rows + 1, bytes_ >> 4]).sum())
    return sums


def check_counts(
    layout: VectorLayout, p: SearchPlan, told: Stages, allowed: Allowed = None
) -> list[int]:
    """As many are chosen as there can be, each once; return all that could be chosen."""
    assert len(set(told.probed)) == len(told.probed)
    parts = [layout.items[layout.offsets[r, b] : layout.offsets[r, b + 1]] for r, b in told.probed]
    assert told.read == sum(map(len, parts))
    there = {i for part in parts for i in part.tolist() if allowed is None or allowed[i]}
    assert set(told.candidates) <= there
    assert len(set(told.candidates)) == told.found
    # What a search found before it read on stays among the candidates.
    assert 0 <= told.found - min(len(there), p.candidates) <= (p.k if told.level else 0)
    if told.found < p.k:
        assert len(told.probed) == layout.bias.size, "stopped before everything was looked at"
    return sorted(there)


def check_scan(
    layout: VectorLayout,
    p: SearchPlan,
    q: NDArray[np.float32],
    allowed: Allowed = None,
    searcher: VectorSearcher | None = None,
) -> Stages:
    """What is chosen from the probed buckets is right; return what the scan told."""
    told = explain(layout, q, p, allowed, searcher)
    there = check_counts(layout, p, told, allowed)
    tables = tables_of(layout.codes, q)
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    for sums, table in zip((low, high), tables, strict=True):
        for r, b in told.probed:
            for item, total in sums_of_bucket(layout, table, r, b).items():
                assert sums.setdefault(item, total) == total, "an item has one code everywhere"
    if told.level:
        return told  # what was found first was chosen among fewer
    if (tables.low == tables.high).all():  # of equal sums the larger item
        there.sort(key=lambda item: (low[item], item), reverse=True)
        assert sorted(told.candidates) == sorted(there[: p.candidates])
    elif told.candidates:
        worst = min(high[item] for item in told.candidates)
        assert all(low[item] <= worst for item in set(there) - set(told.candidates))
    return told


# --- the table -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("pieces", [4, 12])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_tables_of_any_scale(metric: int, pieces: int, scale: float) -> None:
    layout = index(metric=metric, pieces=pieces)
    sure = 0
    for seed in range(10):
        for candidates in (1, 10, 75):
            q = query(seed, scale)
            check_scan(layout, plan(k=1, candidates=candidates), q)
        low, high = tables_of(layout.codes, q)
        assert high.max() == MOST
        sure += (low == high).all()
    assert sure >= 1


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 1e38, 3e38])
def test_table_of_an_odd_query_stays_in_range(metric: int, value: float) -> None:
    """Sums beyond 16 bits would be written outside of their histogram."""
    layout = index(metric=metric)
    for q in (np.full(DIM, value), value * np.sign(query())):
        check_counts(layout, plan(), explain(layout, q.astype(np.float32), plan()))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_table_with_something_odd_among_codewords(odd: float) -> None:
    layout = index()
    bias = layout.codes.bias.copy()
    bias[:, ::3] = odd  # beside numbers of all sizes
    bias[:, 1::3] *= np.float32(1e6)
    layout = as_kernels_see(layout._replace(codes=layout.codes._replace(bias=bias)))
    check_counts(layout, plan(), explain(layout, query(), plan()))


def test_table_of_equal_vectors() -> None:
    X = np.ones((40, DIM), dtype=np.float32)
    layout = assemble_layout([random_router(DIM, B)], [random_partition(40, B)], X, L2, 8)
    check_counts(layout, plan(k=20), explain(layout, query(), plan(k=20)))


@pytest.mark.parametrize("pieces", [2, 4, 30, MOST_PIECES])
@pytest.mark.parametrize("extreme", [False, True])
def test_sums_of_any_number_of_pieces(pieces: int, extreme: bool) -> None:
    """Up to the largest sum that there is, which still fits into 16 bits and the histogram."""
    rng = np.random.default_rng(pieces)
    values = rng.integers(MOST + 1, size=(pieces, 16))
    values[:, 0], values[:, 15] = 0, MOST
    numbers = rng.integers(16, size=(100, pieces), dtype=np.uint8)
    if extreme:  # some items as good as can be, some as bad
        numbers = np.repeat(rng.choice([0, 15], size=100).astype(np.uint8)[:, None], pieces, 1)
    X = np.zeros((100, DIM), dtype=np.float32)
    layout = assemble_layout([random_router(DIM, 3)], [random_partition(100, 3)], X)
    layout = plant_codes(layout, numbers, values)
    sums = values[np.arange(pieces), numbers].sum(axis=1)
    order = sorted(range(100), key=lambda item: (sums[item], item), reverse=True)
    for candidates in (1, 7, 99):
        told = explain(layout, query(), plan(k=1, candidates=candidates))
        assert sorted(told.candidates) == sorted(order[:candidates])


def test_coordinates_of_a_projection() -> None:
    """The columns behind those of the routers, with 8-bit weights: nearly the same candidates."""
    layout = index(n=600, repetitions=2, pieces=8)
    sample = np.random.default_rng(3).normal(size=(300, DIM)).astype(np.float32)
    columns = np.concatenate([*layout.project, layout.codes.rotation], axis=1)
    shifts = np.concatenate([*layout.shift, layout.codes.shift])
    projection = make_projection(sample, columns, shifts)
    projected = as_kernels_see(layout._replace(projection=projection))
    same = 0
    for seed in range(20):
        right, got = (
            set(explain(one, query(seed), plan(k=1, candidates=50)).candidates)
            for one in (layout, projected)
        )
        same += len(right & got)
    assert same > 0.85 * 20 * 50


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
    allowed = None if share is None else np.random.default_rng(seed).random(150) < share
    p = plan(k=k, candidates=candidates, **probing)
    check_scan(layout, p, query(seed), allowed)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    buckets=st.integers(1, 5),
    different=st.integers(1, 300),
    candidates=st.integers(1, 310),
    share=st.sampled_from([None, 0.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_scan_of_planted_sums(
    n: int, buckets: int, different: int, candidates: int, share: float | None, seed: int
) -> None:
    """The largest sums are chosen, and of equal ones the larger items: no rounding is involved."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 1), dtype=np.float32)
    logits = rng.normal(size=(2, buckets))
    partitions = [random_partition(n, buckets, seed=seed % 97 + r) for r in range(2)]
    layout = assemble_layout([constant_router(1, one) for one in logits], partitions, X)
    values = rng.integers(MOST + 1, size=(4, 16))
    values[:, 0], values[0, 1] = 0, MOST
    numbers = rng.integers(16, size=(different, 4), dtype=np.uint8)[rng.integers(different, size=n)]
    layout = plant_codes(layout, numbers, values)
    allowed = None if share is None else rng.random(n) < share
    told = explain(layout, X[0], plan(k=1, candidates=candidates), allowed)
    sums = values[np.arange(4), numbers].sum(axis=1)
    there = [item for item in range(n) if allowed is None or allowed[item]]
    there.sort(key=lambda item: (sums[item], item), reverse=True)
    assert sorted(told.candidates) == sorted(there[:candidates])


@pytest.mark.parametrize("load", [0, 1, 31, 32, 33, 64, 65])
def test_scan_of_round_and_odd_buckets(load: int) -> None:
    """All items in one bucket, which is no other's business."""
    X = np.random.default_rng(0).normal(size=(load + 3, DIM)).astype(np.float32)
    owner = np.full((load + 3, 1), 4, dtype=np.int32)
    owner[load:] = 7
    layout = assemble_layout([random_router(DIM, B)], [Partition(B, owner)], X, L2, 4)
    for candidates in (1, 5, 200):
        told = check_scan(layout, plan(k=1, candidates=candidates), query())
        assert len(told.probed) == B


def test_the_padding_of_a_bucket_is_never_chosen() -> None:
    """Codes 0 behind the last item would be the best of all."""
    values = np.zeros((4, 16))
    values[:, 0] = MOST
    X = np.zeros((33, 1), dtype=np.float32)
    layout = assemble_layout([constant_router(1, np.zeros(1))], [random_partition(33, 1)], X)
    layout = plant_codes(layout, np.ones((33, 4), dtype=np.uint8), values)
    told = explain(layout, X[0], plan(k=33, candidates=33))
    assert sorted(told.candidates) == list(range(33))


def test_scan_widens_until_enough_are_found() -> None:
    layout = index()
    probed = [
        len(check_scan(layout, plan(k=k, probes=1, candidates=k), query()).probed)
        for k in (1, 100, 200)
    ]
    assert probed[0] == 1 < probed[1] <= probed[2] == B


@pytest.mark.parametrize("candidates", [1, 40, MOST_CANDIDATES])
def test_scan_with_little_room_for_keys(candidates: int) -> None:
    """Those that cannot become candidates any more are dropped on the way."""
    n, different = 150_000, 5
    X = np.zeros((n, 1), dtype=np.float32)
    layout = assemble_layout([constant_router(1, [0, 1])], [random_partition(n, 2)], X)
    values = np.zeros((2, 16))
    values[0], values[1] = np.arange(16), MOST * (np.arange(16) == 15)
    numbers = np.zeros((n, 2), dtype=np.uint8)
    numbers[:, 0] = np.random.default_rng(0).integers(different, size=n)  # all in one bin
    layout = plant_codes(layout, numbers, values)
    told = explain(layout, X[0], plan(k=1, candidates=candidates))
    right = np.lexsort((np.arange(n), numbers[:, 0]))[::-1][:candidates]
    assert sorted(told.candidates) == sorted(right.tolist())


def test_one_searcher_serves_one_query_after_another() -> None:
    layout = index(repetitions=2)
    searcher = VectorSearcher(layout)
    for seed in range(6):
        check_scan(layout, plan(probes=1 + seed), query(seed), searcher=searcher)


def test_a_batch_is_scanned_like_single_queries() -> None:
    """The tables of a block of queries are not mixed up."""
    layout = index(repetitions=2)
    q = np.stack([query(seed) for seed in range(21)])
    found = search(VectorSearcher(layout), q, plan(probes=3))
    for i in range(21):
        np.testing.assert_array_equal(
            found.items[i], check_scan(layout, plan(probes=3), q[i]).items
        )
