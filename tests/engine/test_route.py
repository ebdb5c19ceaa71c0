"""The compiled routing against the routers that it reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import as_kernels_see, assemble_layout, random_partition, random_router

from irli.base.memory import read_only
from irli.engine.int8 import make_projection
from irli.engine.route import route
from irli.engine.router import Router
from irli.engine.vector_layout import BLOCK, VectorLayout, make_scratch

DIM = 9


def queries(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def layout_of(routers: list[Router]) -> VectorLayout:
    partitions = [random_partition(5, model.buckets) for model in routers]
    return assemble_layout(routers, partitions, queries(5))


def routed(layout: VectorLayout, q: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the kernel makes of queries, block by block: (n, R, B)."""
    scratch = make_scratch(layout)
    out = []
    for start in range(0, len(q), BLOCK):
        block = q[start : start + BLOCK]
        route(layout, read_only(block), scratch)
        out.append(scratch.logits[: len(block)].copy())
    return np.concatenate(out)


def check(models: list[Router], q: NDArray[np.float32]) -> None:
    got = routed(layout_of(models), q)
    for r, model in enumerate(models):
        np.testing.assert_allclose(got[:, r], model.log_probabilities(q), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("linear", "hidden"), [(0, 20), (6, 10), (9, 1)])
@pytest.mark.parametrize("buckets", [1, 2, 37, 600])
def test_plain_routers(linear: int, hidden: int, buckets: int) -> None:
    check([random_router(DIM, buckets, linear=linear, hidden=hidden)], queries(20))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 9),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_plain_routers_of_any_shape(
    buckets: int, linear: int, hidden: int, n: int, seed: int
) -> None:
    check(
        [random_router(DIM, buckets, linear=linear, hidden=hidden, seed=seed)],
        queries(n, seed=seed),
    )


@pytest.mark.parametrize("hidden", [5, 30, 100])
@pytest.mark.parametrize("buckets", [3, 50, 200])
def test_cascades(hidden: int, buckets: int) -> None:
    models = [
        random_router(DIM, buckets, linear=9, hidden=hidden, seed=seed).to_cascade(queries(500))
        for seed in range(3)
    ]
    check(models, queries(21, seed=3))


@pytest.mark.parametrize("ranks", [[30, 30], [12, 60], [60, 12], [3, 17, 41]], ids=str)
def test_cascades_of_different_ranks_in_one_index(ranks: list[int]) -> None:
    """Where fewer features tell the buckets apart, the others count for nothing."""
    models = [
        random_router(DIM, 80, linear=9, hidden=60, rank=rank, seed=rank).to_cascade(queries(800))
        for rank in ranks
    ]
    check(models, queries(8, seed=9))


# --- weights of 8 bits -----------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 200),
    st.integers(0, 9),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_8_bit_routers(buckets: int, linear: int, hidden: int, n: int, seed: int) -> None:
    plain = (
        random_router(DIM, buckets, linear=linear, hidden=hidden, seed=seed + r) for r in range(2)
    )
    models = [model.to_int8(queries(50)) for model in plain]
    q = queries(n, seed=seed)
    got = routed(layout_of(models), q)
    for r, model in enumerate(models):
        # Features halfway between two steps may be rounded either way.
        gap = np.abs(got[:, r] - model.log_probabilities(q))
        assert np.median(gap) < 1e-3
        assert gap.max() < 0.25


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e18])
def test_8_bit_routers_of_any_scale(scale: float) -> None:
    model = random_router(DIM, 70)
    model = model._replace(project=model.project * np.float32(scale), shift=0 * model.shift)
    compact = model.to_int8(queries(50))
    q = queries(10, seed=1)
    got = routed(layout_of([compact]), q)[:, 0]
    np.testing.assert_array_equal(got.argmax(axis=1), compact.log_probabilities(q).argmax(axis=1))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("buckets", [5, 70])
def test_an_8_bit_projection_changes_little(buckets: int, scale: float) -> None:
    """One pass over all features of all repetitions, about a centre far from zero."""
    sample = (scale * (queries(300) + 2)).astype(np.float32)
    models = [
        random_router(DIM, buckets, seed=r)._replace(
            project=random_router(DIM, buckets, seed=r).project / np.float32(scale)
        )
        for r in range(2)
    ]
    compact = [model.to_int8(sample) for model in models]
    layout = layout_of(compact)
    columns = np.concatenate([model.project for model in compact], axis=1)
    shifts = np.concatenate([model.shift for model in compact])
    projected = layout._replace(projection=make_projection(sample, columns, shifts))
    q = (scale * (queries(40, seed=1) + 2)).astype(np.float32)
    got, right = routed(as_kernels_see(projected), q), routed(layout, q)
    assert np.abs(got - right).mean() < 0.03 * right.std()
    assert (got.argmax(axis=2) == right.argmax(axis=2)).mean() > 0.9
