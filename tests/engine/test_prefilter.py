"""Vectors in 8 bits: what they are told apart by, and that nothing near is lost by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import assemble_layout, plant_codes, random_partition, random_router
from searching import explain, plan

from irli._native import CODES, DOT, L2
from irli.engine import prefilter
from irli.engine.prefilter import round_items
from irli.engine.vector_layout import Int8Vectors

pytestmark = pytest.mark.usefixtures("simd")

N, K, B = 400, 10, 4


def filtered(X: NDArray, q: NDArray, metric: int, chosen: NDArray, k: int = K) -> NDArray:
    """Return what is left of the chosen rows of X."""
    routers, partitions = [random_router(X.shape[1], B)], [random_partition(len(X), B)]
    layout = assemble_layout(routers, partitions, X, metric, int8=True)
    # Codes that tell nothing apart: all that is allowed is chosen.
    layout = plant_codes(layout, np.zeros((len(X), 2), dtype=np.uint8), np.zeros((2, 16)))
    allowed = np.zeros(len(X), dtype=bool)
    allowed[chosen] = True
    told = explain(layout, q, plan(k=k, candidates=len(X), score=CODES), allowed)
    assert told.found == len(chosen)
    return np.array(told.candidates, dtype=np.int64)


def near(X: NDArray, q: NDArray, metric: int) -> NDArray:
    X, q = X.astype(np.float64), q.astype(np.float64)
    return -X @ q if metric == DOT else np.square(X - q).sum(axis=1)


@pytest.mark.parametrize("metric", [L2, DOT])
@pytest.mark.parametrize("dim", [1, 7, 128, 300])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
def test_the_nearest_stay_and_the_far_go(metric: int, dim: int, scale: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        widths = rng.lognormal(size=dim)
        X = (scale * (3 + widths * rng.normal(size=(N, dim)))).astype(np.float32)
        q = (scale * (3 + widths * rng.normal(size=dim))).astype(np.float32)
        chosen = rng.permutation(N)[:100]
        left = filtered(X, q, metric, chosen)
        best = chosen[np.argsort(near(X[chosen], q, metric))[:K]]
        assert set(best) <= set(left) <= set(chosen)
        assert len(left) == len(set(left))
        assert dim == 1 or len(left) <= 2 * K


@settings(max_examples=60, deadline=None)
@given(
    metric=st.sampled_from([L2, DOT]),
    dim=st.integers(1, 9),
    exponents=st.tuples(st.integers(-38, 38), st.integers(-38, 38)),
    chosen=st.integers(0, 30),
    k=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_any_range_keeps_k(
    metric: int, dim: int, exponents: tuple[int, int], chosen: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        X = np.clip(rng.normal(size=(30, dim)) * 10.0 ** exponents[0], -3e38, 3e38)
        q = np.clip(rng.normal(size=dim) * 10.0 ** exponents[1], -3e38, 3e38)
    X[:, 0] = X[0, 0]  # nothing to tell apart there
    rows = rng.permutation(30)[:chosen]
    left = filtered(X.astype(np.float32), q.astype(np.float32), metric, rows, k)
    assert set(left) <= set(rows)
    assert min(k, chosen) <= len(left) == len(set(left))


def test_equal_items_stay_together() -> None:
    X = np.tile(np.arange(128, dtype=np.float32), (50, 1))
    X[40:] += 1000
    assert len(filtered(X, X[0], L2, np.arange(50))) == 40


@pytest.mark.parametrize("metric", [L2, DOT])
def test_errors_never_add_up(metric: int) -> None:
    """Data that plain rounding would always move the same way: coarse steps, one outlier."""
    lost = total = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 3, size=(N, 1)) + rng.integers(0, 2, size=(N, 200)) * 0.3
        X[0] = 3000.0  # a step is now larger than all that tells the others apart
        q = X[1] + 0.1
        chosen = rng.permutation(np.arange(1, N))[:100]
        left = filtered(X.astype(np.float32), q.astype(np.float32), metric, chosen)
        near_ones = near(X[chosen], q, metric)
        best = chosen[near_ones < np.sort(near_ones)[K]]
        lost += len(set(best) - set(left))
        total += len(best)
    assert lost <= 0.01 * total


@pytest.mark.parametrize("metric", [L2, DOT])
def test_the_cut_is_three_deviations_below_the_kth_score(metric: int) -> None:
    """Items at known scores: from 2.9 deviations they stay, from 3.1 they go."""
    dim = 16
    rng = np.random.default_rng(0)
    X = 1 + 0.05 * rng.normal(size=(200, dim))  # close calls, in steps of far outliers
    X[:2] = [[-3.0], [3.0]]
    X, q = X.astype(np.float32), rng.normal(size=dim).astype(np.float32)
    rounded = round_items(X, metric == L2, np.random.default_rng(1))  # as assemble_layout does
    steps = (q.astype(np.float64) - rounded.shift) * rounded.step
    scores = rounded.bytes.astype(np.float64) @ steps
    if metric == L2:
        scores -= rounded.lengths
    deviation = np.sqrt(np.square(steps).sum() / 2)
    below = (np.sort(scores)[-K] - scores) / deviation
    assert ((below > 2.8) & (below < 2.99)).any()
    assert ((below > 3.01) & (below < 3.2)).any()
    left = filtered(X, q, metric, np.arange(200))
    assert set(np.flatnonzero(below < 2.99)) <= set(left) <= set(np.flatnonzero(below < 3.01))


@pytest.mark.parametrize("chosen", [0, 1, K - 1, K])
def test_no_more_than_k_all_stay(chosen: int) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    X[:, 0] *= 1e6
    rows = np.arange(20, 20 + chosen)
    assert sorted(filtered(X, X[0], L2, rows)) == rows.tolist()


def rounding(X: NDArray, l2: bool = True) -> Int8Vectors:
    return round_items(X, l2, np.random.default_rng(0))


def test_rounding_errs_by_a_step_and_not_on_average() -> None:
    X = np.random.default_rng(0).gamma(2.0, size=(3000, 20)).astype(np.float32)
    rounded = rounding(X)
    middle = (X.min(axis=0) + X.max(axis=0)) / 2
    errors = (middle + rounded.step * rounded.bytes - X) / rounded.step
    assert (np.abs(errors) <= 1.001).all()
    assert (np.abs(errors.mean(axis=0)) < 0.05).all()
    np.testing.assert_allclose(rounded.shift, X.mean(axis=0), rtol=1e-5)
    expected = np.square(X - rounded.shift).sum(axis=1) / 2
    np.testing.assert_allclose(rounded.lengths, expected, rtol=1e-5)


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    whole = rounding(X)
    monkeypatch.setattr(prefilter, "_BLOCK", 21)
    for a, b in zip(whole, rounding(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
