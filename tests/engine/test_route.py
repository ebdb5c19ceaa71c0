"""Routing against the routers that it reads, on every back-end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import (
    as_kernels_see,
    assemble_layout,
    constant_router,
    random_partition,
    random_router,
)
from searching import explain, plan, search

from irli._native import BLOCK, VectorSearcher
from irli.engine.int8 import make_projection, untile
from irli.engine.router import Router
from irli.engine.vector_layout import VectorLayout

pytestmark = pytest.mark.usefixtures("simd")

DIM = 9


def queries(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def layout_of(routers: list[Router]) -> VectorLayout:
    partitions = [random_partition(5, model.buckets) for model in routers]
    return assemble_layout(routers, partitions, queries(5))


def routed(layout: VectorLayout, q: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the log-probabilities of queries, (n, R, B)."""
    searcher = VectorSearcher(layout)
    return np.stack([explain(layout, row, plan(k=1), searcher=searcher).logits for row in q])


def check(models: list[Router], q: NDArray[np.float32]) -> None:
    got = routed(layout_of(models), q)
    for r, model in enumerate(models):
        np.testing.assert_allclose(got[:, r], model.log_probabilities(q), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("linear", "hidden"), [(0, 20), (6, 10), (9, 1)])
@pytest.mark.parametrize("buckets", [1, 2, 37, 600])
def test_plain_routers(linear: int, hidden: int, buckets: int) -> None:
    check([random_router(DIM, buckets, linear=linear, hidden=hidden)], queries(20))


@pytest.mark.parametrize("soften", [(0.5, 0.01, 1e9), (0.01, 0.5, 1e9), (3.0, 0.0, 20.0)])
@pytest.mark.parametrize("form", ["plain", "int8"])
def test_far_queries_have_smaller_logits(form: str, soften: tuple[float, float, float]) -> None:
    model = random_router(DIM, 70, linear=9, hidden=7, soften=soften)
    near, far = queries(20), 30 * queries(20, seed=1)
    plain = model._replace(soften=np.zeros(3, dtype=np.float32))
    for q in (near, far):
        sure = model.log_probabilities(q).max(axis=1)
        assert (sure <= plain.log_probabilities(q).max(axis=1) + 1e-5).all()
    if soften[1] < 0.1:  # else a large logit says that a query is near
        gap = model.log_probabilities(far).max(axis=1) - plain.log_probabilities(far).max(axis=1)
        assert gap.mean() < -0.5
    if form == "int8":
        compact = model.to_int8(queries(500))
        got = routed(layout_of([compact]), near)[:, 0]
        assert np.abs(got - compact.log_probabilities(near)).mean() < 0.1
    else:
        check([model], near)


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


# --- blocks of queries -----------------------------------------------------------------------


def models_of(form: str) -> list[Router]:
    plain = [random_router(DIM, 70, linear=9, hidden=30, seed=seed) for seed in range(2)]
    if form == "plain":
        return plain
    return [model.to_int8(queries(300)) for model in plain]


def with_projection(models: list[Router], layout: VectorLayout, sample: NDArray) -> VectorLayout:
    """Return the layout with an 8-bit projection for the features of the models."""
    columns = np.concatenate([model.project for model in models], axis=1)
    shifts = np.concatenate([model.shift for model in models])
    return as_kernels_see(layout._replace(projection=make_projection(sample, columns, shifts)))


@pytest.mark.parametrize("form", ["plain", "int8", "projection"])
@pytest.mark.parametrize("n", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_a_query_is_routed_alike_alone_and_in_a_block(form: str, n: int) -> None:
    """Each query finds its way into one bucket, which is all that it reads."""
    models = models_of("int8" if form == "projection" else form)
    X = queries(400, seed=7)
    partitions = [random_partition(400, 70, seed=seed) for seed in range(2)]
    layout = assemble_layout(models, partitions, X)
    if form == "projection":
        layout = with_projection(models, layout, queries(300))
    q, p = queries(n, seed=8), plan(k=3, probes=1)
    batch = search(VectorSearcher(layout), q, p)
    for i in range(n):
        alone = explain(layout, q[i], p)
        np.testing.assert_array_equal(batch.items[i], alone.items)
        np.testing.assert_array_equal(batch.distances[i], alone.distances)


# --- softmax ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1000.0])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_softmax_of_any_spread(count: int, spread: float) -> None:
    """Also where most buckets are far below the best one."""
    logits = (spread * np.random.default_rng(count).normal(size=count)).astype(np.float32)
    layout = layout_of([constant_router(DIM, logits)])
    got = routed(layout, queries(1))[0, 0]
    right = logits.astype(np.float64) - logits.max()
    right -= np.log(np.exp(right).sum())
    off = 1e-6 * max(1, np.abs(logits).max())  # what float32 tells apart
    np.testing.assert_allclose(got, right, rtol=1e-6, atol=off)


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
    projected = with_projection(compact, layout, sample)
    q = (scale * (queries(40, seed=1) + 2)).astype(np.float32)
    got, right = routed(projected, q), routed(layout, q)
    assert np.abs(got - right).mean() < 0.03 * right.std()
    assert (got.argmax(axis=2) == right.argmax(axis=2)).mean() > 0.9


@pytest.mark.parametrize("dim", [1, 3, 4, 15, 16, 17, 70])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_a_projection_rounds_queries_to_63_steps(dim: int, offset: float) -> None:
    """Exactly as written down: centred, scaled, rounded half up, multiplied, and shifted back."""
    rng = np.random.default_rng(dim)
    sample = (rng.normal(size=(200, dim)) + offset).astype(np.float32)
    model = random_router(dim, 30, linear=20, hidden=0)
    layout = assemble_layout([model], [random_partition(5, 30)], sample[:5].copy())
    projected = with_projection([model], layout, sample)
    made = projected.projection
    weights = untile(made.bytes[0], dim, 20).astype(np.float64) * made.step
    for query in (rng.normal(size=(10, dim)) + offset).astype(np.float32):
        centred = (query - made.centre) * made.scale
        step = np.abs(centred).max() / np.float32(63)
        steps = np.floor(centred.astype(np.float64) * np.float32(63 / np.abs(centred).max()) + 0.5)
        features = step * steps @ weights + made.bias
        logits = features @ model.weights + model.bias
        logits -= logits.max()
        right = logits - np.log(np.exp(logits).sum())
        np.testing.assert_allclose(routed(projected, query[None])[0, 0], right, atol=1e-3)


@pytest.mark.parametrize("query", ["zeros", "the centre", "tiny", "huge"])
def test_a_projection_of_queries_without_a_step(query: str) -> None:
    """Nearly zeros, or beyond all bounds: the query counts as the centre of the sample."""
    sample = queries(200) + 1
    models = [model.to_int8(sample) for model in models_of("plain")]
    layout = with_projection(models, layout_of(models), sample)
    centre = layout.projection.centre
    q = {
        "zeros": np.zeros(DIM),
        "the centre": centre,
        "tiny": centre * np.float32(1 + 1e-7),
        "huge": np.full(DIM, 3e38),
    }[query].astype(np.float32)
    got = routed(layout, q[None])[0]
    assert np.isfinite(got).all()
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1, rtol=1e-4)
    if query == "the centre":
        for r, model in enumerate(models):
            right = model.log_probabilities(centre[None])[0]
            assert np.abs(got[r] - right).max() < 0.25


@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", ["plain", "int8", "projection"])
@pytest.mark.parametrize("value", [1e-45, 1e-38, 1e38, 3e38])
def test_features_that_overflow_leave_a_search(form: str, value: float) -> None:
    """Logits may be anything then. The search ends, and later queries are as before."""
    models = models_of("int8" if form == "projection" else form)
    partitions = [random_partition(60, 70, seed=seed) for seed in range(2)]
    layout = assemble_layout(models, partitions, queries(60, seed=3))
    if form == "projection":
        layout = with_projection(models, layout, queries(300))
    odd = (value * np.sign(queries(3))).astype(np.float32)
    q = np.concatenate([odd, queries(5, seed=4)])
    for probing in ({"probes": 2}, {"threshold": -2.0}):
        found = search(VectorSearcher(layout), q, plan(**probing))
        assert found.finite
        assert ((found.items >= 0) & (found.items < 60)).all()
        alone = search(VectorSearcher(layout), q[3:], plan(**probing))
        np.testing.assert_array_equal(found.items[3:], alone.items)
        np.testing.assert_array_equal(found.distances[3:], alone.distances)
