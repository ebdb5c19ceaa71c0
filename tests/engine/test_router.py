"""Routers as plain arrays: the softmax they stand for, 8-bit weights, packing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from planted import random_router

from irli.engine.router import ARRAYS, Router, pack, unpack
from irli.errors import FormatError

DIM = 9


def queries(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def softmax(model: Router, q: NDArray) -> NDArray[np.float64]:
    """Log-probabilities of a plain router by its definition."""
    features = q.astype(np.float64) @ model.project + model.shift
    features[:, model.linear :] = np.maximum(features[:, model.linear :], 0)
    logits = features @ model.weights + model.bias
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("linear", "hidden"), [(0, 20), (6, 10), (9, 1)])
@pytest.mark.parametrize("buckets", [1, 2, 37, 600])
def test_plain_is_a_softmax(linear: int, hidden: int, buckets: int) -> None:
    model = random_router(DIM, buckets, linear=linear, hidden=hidden)
    q = queries(20)
    got = model.log_probabilities(q)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, softmax(model, q), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1, rtol=1e-4)


def test_sparse_queries_are_routed_like_dense_ones() -> None:
    model = random_router(DIM, 12)
    q = queries(8) * (queries(8, seed=1) > 0)
    np.testing.assert_allclose(
        model.log_probabilities(sp.csr_array(q)), model.log_probabilities(q), rtol=1e-5, atol=1e-5
    )


# --- weights of 8 bits -----------------------------------------------------------------------


@pytest.mark.parametrize(("linear", "hidden"), [(0, 20), (9, 32), (6, 1)])
@pytest.mark.parametrize("buckets", [1, 63, 64, 65, 600])
def test_8_bits_are_nearly_plain(linear: int, hidden: int, buckets: int) -> None:
    model = random_router(DIM, buckets, linear=linear, hidden=hidden)
    compact = model.to_int8(queries(500, seed=1))
    assert compact.bytes.nbytes >= buckets * (linear + hidden)
    assert compact.weights.size == 0
    q = queries(100, seed=2)
    right = softmax(model, q)
    got = compact.log_probabilities(q)
    spread = right.std(axis=1).mean() if buckets > 1 else 1.0
    assert np.abs(got - right).mean() < 0.03 * spread
    assert (got.argmax(axis=1) == right.argmax(axis=1)).mean() > 0.85
    np.testing.assert_allclose(np.exp(got).sum(axis=1), 1, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e18])
def test_8_bits_of_any_scale(scale: float) -> None:
    """Features that are always zero, weights of zeros, and squares beyond float32."""
    model = random_router(DIM, 70)
    model = model._replace(project=model.project * np.float32(scale), shift=0 * model.shift)
    compact = model.to_int8(queries(50))
    q = queries(10, seed=1)
    got, right = compact.log_probabilities(q), softmax(model, q)
    assert np.isfinite(got).all()
    if scale == 0.0:
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)
    else:
        assert (got.argmax(axis=1) == right.argmax(axis=1)).mean() > 0.8


# --- packing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "int8"])
def test_pack_and_unpack(form: str) -> None:
    models = [random_router(DIM, 30, hidden=60, seed=seed) for seed in range(3)]
    if form != "plain":
        models = [model.to_int8(queries(200)) for model in models]
    for one, again in zip(models, unpack(pack(models), models[0].linear), strict=True):
        for name in Router._fields:
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name))


@pytest.mark.parametrize("name", ARRAYS)
def test_unpack_names_what_is_missing(name: str) -> None:
    tensors = pack([random_router(DIM, 30)])
    del tensors[name]
    with pytest.raises(FormatError, match=f"{name}.* missing"):
        unpack(tensors, 6)
