from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import freeze, random_partition, random_router

from irli import VectorIndex
from irli.engine import router
from irli.engine.route import route
from irli.engine.router import ARRAYS, Router, pack, unpack
from irli.engine.vector_layout import BLOCK, make_scratch
from irli.errors import FormatError
from irli.learning.training import Repetition

DIM = 9
KEEP_ALL = ((16, 1.0), (40, 1.0), (96, 1.0), (None, 1.0))


def queries(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def softmax(model: Router, q: NDArray) -> NDArray[np.float64]:
    """Log-probabilities of a plain router by its definition."""
    features = q.astype(np.float64) @ model.project + model.shift
    features[:, model.linear :] = np.maximum(features[:, model.linear :], 0)
    logits = features @ model.coarse + model.bias
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def routed(routers: list[Router], q: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the kernel makes of it: (n, R, B)."""
    partitions = [random_partition(5, model.buckets) for model in routers]
    layout = freeze(routers, partitions, queries(5))
    scratch = make_scratch(layout)
    out = []
    for start in range(0, len(q), BLOCK):
        block = q[start : start + BLOCK]
        route(layout, block, scratch)
        out.append(scratch.logits[: len(block)].copy())
    return np.concatenate(out)


@pytest.mark.parametrize(("linear", "hidden"), [(0, 20), (6, 10), (9, 1)])
@pytest.mark.parametrize("buckets", [1, 2, 37, 600])
def test_plain_is_a_softmax(linear: int, hidden: int, buckets: int) -> None:
    model = random_router(DIM, buckets, linear=linear, hidden=hidden)
    q = queries(20)
    got = model.log_probabilities(q)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, softmax(model, q), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(routed([model], q)[:, 0], got, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hidden", [5, 30, 110])
def test_cascade_that_keeps_all_buckets_is_plain(
    monkeypatch: pytest.MonkeyPatch, hidden: int
) -> None:
    monkeypatch.setattr(router, "STAGES", KEEP_ALL)
    model = random_router(DIM, 200, linear=9, hidden=hidden)
    cascade = model.cascaded(queries(1500, seed=1))
    q = queries(25, seed=2)
    right = softmax(model, q)
    np.testing.assert_allclose(cascade.log_probabilities(q), right, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(routed([cascade], q)[:, 0], right, rtol=5e-3, atol=5e-3)
    assert cascade.depths[-1] <= 9 + hidden


@pytest.mark.parametrize("hidden", [5, 30, 100])
@pytest.mark.parametrize("buckets", [3, 50, 200])
def test_kernel_routes_like_the_router(hidden: int, buckets: int) -> None:
    models = [
        random_router(DIM, buckets, linear=9, hidden=hidden, seed=seed).cascaded(queries(500))
        for seed in range(3)
    ]
    q = queries(21, seed=3)
    got = routed(models, q)
    for r, model in enumerate(models):
        np.testing.assert_allclose(got[:, r], model.log_probabilities(q), rtol=1e-3, atol=1e-3)


def test_a_cascade_finds_the_best_buckets_of_plain() -> None:
    model = random_router(DIM, 500, linear=9, hidden=40)
    q = queries(200, seed=4)
    best = model.log_probabilities(q).argmax(axis=1)
    found = model.cascaded(queries(1500, seed=1)).log_probabilities(q).argmax(axis=1)
    assert (found == best).mean() > 0.9


@pytest.mark.parametrize("hidden", [5, 30, 110])
def test_multiplications(hidden: int) -> None:
    model = random_router(DIM, 200, linear=9, hidden=hidden)
    features = 9 + hidden
    assert model.multiplications == DIM * features + features * 200
    cascade = model.cascaded(queries(2000))
    kept = len(cascade.turn_shift)
    cost, used = DIM * features + features * kept, 0
    for depth, share in router.STAGES:
        stop = min(depth or kept, kept)
        cost += (stop - used) * max(1, round(share * 200))
        used = stop
    assert used == kept
    assert cascade.multiplications == cost
    if hidden >= 60:
        assert cascade.multiplications < model.multiplications


def test_degenerate_samples_make_a_router_all_the_same() -> None:
    model = random_router(DIM, 20)
    same = np.ones((100, DIM), dtype=np.float32)
    got = model.cascaded(same).log_probabilities(same[:2])
    np.testing.assert_allclose(got, softmax(model, same[:2]), rtol=1e-3, atol=1e-3)


# --- weights of 8 bits -----------------------------------------------------------------------


@pytest.mark.parametrize(("linear", "hidden"), [(0, 20), (9, 32), (6, 1)])
@pytest.mark.parametrize("buckets", [1, 63, 64, 65, 600])
def test_compact_is_nearly_plain(linear: int, hidden: int, buckets: int) -> None:
    model = random_router(DIM, buckets, linear=linear, hidden=hidden)
    compact = model.compact(queries(500, seed=1))
    assert compact.bytes.nbytes >= buckets * (linear + hidden)
    assert compact.coarse.size == 0
    q = queries(100, seed=2)
    right = softmax(model, q)
    got = compact.log_probabilities(q)
    spread = right.std(axis=1).mean() if buckets > 1 else 1.0
    assert np.abs(got - right).mean() < 0.03 * spread
    assert (got.argmax(axis=1) == right.argmax(axis=1)).mean() > 0.85
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1, rtol=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 200),
    st.integers(0, 9),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_kernel_routes_like_a_compact_router(
    buckets: int, linear: int, hidden: int, n: int, seed: int
) -> None:
    models = [
        random_router(DIM, buckets, linear=linear, hidden=hidden, seed=seed + r).compact(
            queries(50)
        )
        for r in range(2)
    ]
    q = queries(n, seed=seed)
    got = routed(models, q)
    for r, model in enumerate(models):
        # Features halfway between two steps may be rounded either way.
        gap = np.abs(got[:, r] - model.log_probabilities(q))
        assert np.median(gap) < 1e-3
        assert gap.max() < 0.25


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e18])
def test_a_compact_router_of_any_scale(scale: float) -> None:
    """Features that are always zero, weights of zeros, and squares beyond float32."""
    model = random_router(DIM, 70)
    model = model._replace(project=model.project * np.float32(scale), shift=0 * model.shift)
    compact = model.compact(queries(50))
    q = queries(10, seed=1)
    got, right = compact.log_probabilities(q), softmax(model, q)
    assert np.isfinite(got).all()
    if scale == 0.0:
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)
    else:
        assert (got.argmax(axis=1) == right.argmax(axis=1)).mean() > 0.8
    np.testing.assert_allclose(routed([compact], q)[:, 0].argmax(axis=1), got.argmax(axis=1))


def test_compact_routers_pack_and_unpack() -> None:
    models = [random_router(DIM, 30, seed=seed).compact(queries(50)) for seed in range(3)]
    stages = np.stack([models[0].depths, models[0].keeps], axis=1).tolist()
    for one, again in zip(models, unpack(pack(models), models[0].linear, stages), strict=True):
        for name in Router._fields:
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name))


# --- packing ---------------------------------------------------------------------------------


def cascades(ranks: list[int], buckets: int = 80) -> list[Router]:
    """Cascades of which only the first few features, as the ranks say, tell buckets apart."""
    return [
        random_router(DIM, buckets, linear=9, hidden=60, rank=rank, seed=rank).cascaded(
            queries(800)
        )
        for rank in ranks
    ]


def test_pack_and_unpack() -> None:
    models = [random_router(DIM, 30, seed=seed) for seed in range(3)]
    stages = np.stack([models[0].depths, models[0].keeps], axis=1).tolist()
    for one, again in zip(models, unpack(pack(models), models[0].linear, stages), strict=True):
        for name in Router._fields:
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name))


@pytest.mark.parametrize("name", ARRAYS)
def test_unpack_names_what_is_missing(name: str) -> None:
    tensors = pack([random_router(DIM, 30)])
    del tensors[name]
    with pytest.raises(FormatError, match=f"{name}.* missing"):
        unpack(tensors, 6, [[16, 30]])


@pytest.mark.parametrize("ranks", [[30, 30], [12, 60], [60, 12], [3, 17, 41]], ids=str)
def test_cascades_of_different_ranks_in_one_index(
    monkeypatch: pytest.MonkeyPatch, ranks: list[int]
) -> None:
    """Each repetition of an index routes as its own router does."""
    models = cascades(ranks)
    X = queries(300, seed=8)
    repetitions = [
        Repetition(model, random_partition(len(X), 80, seed=r), [])
        for r, model in enumerate(models)
    ]
    monkeypatch.setattr("irli.learning.runs.learn", lambda *args, **kwargs: repetitions)
    index = VectorIndex().fit(X, threads=1)
    layout = index._searcher.layout  # type: ignore[union-attr]
    q = queries(8, seed=9)
    scratch = make_scratch(layout)
    route(layout, q, scratch)
    for r, model in enumerate(models):
        np.testing.assert_allclose(
            scratch.logits[:, r], model.log_probabilities(q), rtol=1e-3, atol=1e-3
        )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 9),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_any_shape_routes_like_the_router(
    buckets: int, linear: int, hidden: int, n: int, seed: int
) -> None:
    model = random_router(DIM, buckets, linear=linear, hidden=hidden, seed=seed)
    q = queries(n, seed=seed)
    np.testing.assert_allclose(
        routed([model], q)[:, 0], model.log_probabilities(q), rtol=1e-3, atol=1e-3
    )
